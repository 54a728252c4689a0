"""timm's models with separate biases of queries and values beside a fused layer that they do not call (BEiT, EVA)."""

import copy

import pytest
import torch
from families import BIASES_APART, CLASSES, close, equal_bits, features_of, make, make_inputs
from tiny import METHODS, make_vit, perturb

import pvera
from pvera import InputError

EXAMPLES = ["beit_base_patch16_224", "vit_base_patch16_dinov3_qkvb"]
KEYS = ["ia3", "lora", "pvera"]


def adapted(example: str, key: str):
    return perturb(pvera.adapt(make(example), METHODS[key], CLASSES)).eval()


@pytest.mark.parametrize("example", EXAMPLES)
@pytest.mark.parametrize("key", KEYS)
def test_the_state_keeps_its_names(example, key):
    """The adapted backbone keeps the plain one's tensor names; the merged state loads into a plain backbone."""
    plain, model = make(example), adapted(example, key)
    inputs = make_inputs(plain)
    equal_bits(model.backbone.state_dict(), plain.state_dict())
    assert "backbone.blocks.0.attn.q_bias" in model.state_dict()
    with torch.no_grad():
        expected, before = model.features(inputs)[0], copy.deepcopy(model.state_dict())
        model.merge_()
        equal_bits(model.state_dict(), before)
        plain.load_state_dict(model.backbone.state_dict())
        close(features_of(plain, inputs), expected)
    model.unmerge_()
    fresh = adapted(example, key)
    perturb(fresh, seed=1)
    fresh.load_state_dict(before)
    assert torch.equal(fresh(inputs), model(inputs))


@pytest.mark.parametrize("key", KEYS)
def test_unload_shows_the_biases_again(key):
    """An adapted attention hides its parameter `q_bias`; unloading restores it, also in a copy."""
    encoder = make(EXAMPLES[0])
    attention = encoder.blocks[0].attn
    biases, attributes = (attention.q_bias, attention.v_bias), set(vars(attention))
    model = pvera.adapt(encoder, METHODS[key], CLASSES)
    assert attention.q_bias is None
    copied = copy.deepcopy(model).unload()
    assert model.unload() is encoder
    assert attention.q_bias is biases[0] and attention.v_bias is biases[1] and set(vars(attention)) == attributes
    assert torch.equal(copied.blocks[0].attn.q_bias, biases[0])


def test_autocast_and_half_precision():
    """Biases of another precision do not change the products' precision."""
    model = adapted(EXAMPLES[0], "pvera")
    images, seen = make_inputs(model.backbone), []
    model.backbone.blocks[0].attn.qkv.register_forward_hook(lambda module, args, y: seen.append(y.dtype))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        model(images)
    assert seen == [torch.bfloat16]


@pytest.mark.parametrize("example", BIASES_APART)
def test_peft_is_refused(example, tmp_path):
    """PEFT's adapters of the fused layer would silently do nothing."""
    with pytest.raises(InputError, match="PEFT's adapters have no effect on this backbone"):
        pvera.export_peft(adapted(example, "lora"), tmp_path / "export")
    assert not (tmp_path / "export").exists()
    pvera.export_peft(pvera.adapt(make_vit(), METHODS["lora"], CLASSES), tmp_path)
    with pytest.raises(InputError, match="PEFT's adapters have no effect on this backbone"):
        pvera.import_peft(tmp_path, make(example))
