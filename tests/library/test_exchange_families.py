"""Exchange with PEFT on every family of encoders in docs/backbones.md."""

import copy

import peft
import pytest
import timm
import torch
from families import BIASES_APART, CLASSES, OPTIONS, SMALL, features_of, make, make_inputs
from test_families import CELLS, FAST
from tiny import METHODS, perturb

import pvera

KEYS = ("pvera", "vera", "lora", "dora", "ia3")
#: PEFT's adapters do nothing where a fused layer is not called: `test_biases_apart` checks the refusal.
EXCHANGED = [(e, key) for e, key in CELLS if key in KEYS and e not in BIASES_APART]


@torch.no_grad()
def exchange(example, key, folder):
    """Features by this package, by PEFT, and by this package again."""
    encoder = make(example)
    inputs, bare = make_inputs(encoder), copy.deepcopy(encoder)
    model = perturb(pvera.adapt(encoder, METHODS[key], CLASSES), scale=0.03).eval()
    expected = model.features(inputs)[0]
    pvera.export_peft(model, folder)
    returned = pvera.import_peft(folder, copy.deepcopy(bare)).eval()
    assert (expected - features_of(bare, inputs)).abs().max() > 1e-3
    theirs = peft.PeftModel.from_pretrained(bare, folder).eval()
    torch.testing.assert_close(features_of(theirs.base_model.model, inputs), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(returned(inputs), model(inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("example, key", [cell for cell in EXCHANGED if cell[0] in FAST])
def test_few_families(example, key, tmp_path):
    exchange(example, key, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("example, key", [cell for cell in EXCHANGED if cell[0] not in FAST])
def test_family(example, key, tmp_path):
    exchange(example, key, tmp_path)


TIMM_HEADS = ["vit_base_patch14_dinov2", "vit_base_patch16_siglip_224", "vit_base_patch16_gap_224", "cait_xxs24_224"]


@pytest.mark.parametrize("example", [*TIMM_HEADS, "deit_base_distilled_patch16_224"])
@torch.no_grad()
def test_heads_of_timm(example, tmp_path):
    """PEFT's logits are this package's where one linear layer follows the features; a distilled DeiT has two."""
    encoder = make(example)
    weights = {name: tensor.clone() for name, tensor in encoder.state_dict().items()}
    model = perturb(pvera.adapt(encoder, METHODS["pvera"], CLASSES), scale=0.03).eval()
    pvera.export_peft(model, tmp_path)
    assert (tmp_path / "head.safetensors").exists() == (example not in TIMM_HEADS)
    if example in TIMM_HEADS:
        classifier = timm.create_model(example, num_classes=CLASSES, **OPTIONS.get(example, SMALL)).eval()
        classifier.load_state_dict(weights, strict=False)
        theirs = peft.PeftModel.from_pretrained(classifier, tmp_path).eval()
        images = make_inputs(encoder)
        torch.testing.assert_close(theirs(images), model(images), rtol=1e-4, atol=1e-5)
