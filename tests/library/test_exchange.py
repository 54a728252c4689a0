"""Adapters exchanged with PEFT through folders: outputs, draws and heads are the same."""

import json

import peft
import pytest
import timm
import torch
from encoders import as_dinov2
from exchange import (
    CLASSES,
    FUSED,
    SEPARATE,
    configurations,
    peft_made,
    saved,
    set_options,
    trained,
)
from families import CHECKS, OPTIONS, SMALL, Case, features_of, make, make_inputs
from safetensors.torch import load_file
from tiny import METHODS, make_images, make_vit, perturb

import pvera
from pvera import DoRA, LoRA, PVeRA, VeRA

EXPORTED = [
    *(METHODS[key] for key in ("pvera", "vera", "lora", "dora", "ia3")),
    *(kind(rank=4, targets=targets) for kind in (PVeRA, VeRA, LoRA, DoRA) for targets in ("k", "qkv")),
    PVeRA(rank=4, alpha=3.0, pair="shared"),
    PVeRA(rank=4, sigma=1.0),
    VeRA(rank=4, targets="kv", pair="shared"),
    DoRA(rank=4, scaled=False, transpose=False, train_magnitude=False),
]


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-5)


# ---------------------------------------------------------------- to PEFT


@pytest.mark.parametrize("example", ["vit_base_patch14_dinov2", "Dinov2Model"])
@pytest.mark.parametrize("method", EXPORTED, ids=str)
def test_peft_computes_the_exported_adapter_and_it_comes_back(tmp_path, method, example):
    CHECKS["exchange"](Case(example, method), tmp_path)


def test_a_merged_model_exports_the_same_folder(tmp_path):
    for method in (METHODS["dora"], METHODS["pvera"]):
        model = trained(method)
        pvera.export_peft(model, tmp_path / "plain")
        pvera.export_peft(model.merge_(), tmp_path / "merged")
        plain, merged = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("plain", "merged"))
        torch.testing.assert_close(merged, plain, rtol=0, atol=0)


# ---------------------------------------------------------------- from PEFT


def unscaled_queries(qkv):
    """Undo the scale of queries, which (IA)³ does not have."""
    qkv.ia3_l["default"][:24] = 1


def magnitudes_of_keys(qkv):
    """Leave of DoRA's update that of queries, and of keys the magnitudes: then these count as adapted."""
    qkv.lora_B["default"].weight[24:] = 0
    qkv.lora_magnitude_vector["default"].weight[48:] = qkv.base_layer.weight[48:].norm(dim=1)


FROM_FUSED = [(name, None, "") for name in configurations(FUSED) if name != "ia3"]
FROM_FUSED += [("ia3", unscaled_queries, ""), ("dora", magnitudes_of_keys, "qk")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name, change, targets", FROM_FUSED)
@torch.no_grad()
def test_timms_fused_layer_from_peft(tmp_path, images, name, change, targets):
    config = configurations(FUSED)[name]
    config.modules_to_save = ["head"]
    theirs = peft_made(config)
    for block in theirs.base_model.model.blocks if change else ():
        change(block.attn.qkv)
    theirs.save_pretrained(tmp_path)
    imported = pvera.import_peft(tmp_path, make_vit())
    assert not imported.training
    assert getattr(imported.members[0].method, "targets", "").startswith(targets)
    imported, theirs, images = imported.double(), theirs.double(), images.double()
    close(imported.eval()(images), theirs(images))
    close(imported.merge_()(images), theirs(images))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", configurations(SEPARATE))
def test_separate_projections_from_peft(tmp_path, images, name):
    """Outputs are equal on the same encoder, and on timm's with the same weights."""
    theirs = saved(configurations(SEPARATE)[name], tmp_path, "transformers")
    expected = theirs(images).last_hidden_state[:, 0]
    for backbone in (as_dinov2(make_vit()), make_vit()):
        imported = pvera.import_peft(tmp_path, backbone, num_classes=3).eval()
        close(imported.features(images)[0], expected)
        assert imported(images).shape == (3, 3)


def test_imported_adapters_train_on_and_are_saved(tmp_path, images):
    """Imported A and B come from no seed, so the file holds them."""
    saved(configurations(SEPARATE)["pvera"], tmp_path, "transformers")
    model = pvera.import_peft(tmp_path, make_vit(), num_classes=3)
    (model(images).sum() + model.kl_divergence()).backward()
    assert all(p.grad is not None and p.grad.any() for p in model.members[0].trained().values())
    pvera.save(model, tmp_path / "adapter.safetensors")
    assert torch.equal(pvera.load(make_vit(), tmp_path / "adapter.safetensors").eval()(images), model.eval()(images))


# ---------------------------------------------------------------- draws


DRAWS = 4000


@pytest.mark.parametrize(
    "method, example",
    [
        (PVeRA(rank=8), "vit_base_patch14_dinov2"),
        (PVeRA(rank=8, pair="shared", targets="qkv"), "vit_base_patch14_dinov2"),
        (PVeRA(rank=8, pair="shared"), "Dinov2Model"),
        (PVeRA(rank=8, targets="v"), "Dinov2Model"),
    ],
    ids=str,
)
@torch.no_grad()
def test_peft_draws_as_widely(tmp_path, method, example):
    """One image's features have the standard deviation of PEFT's, in the root mean square."""
    model = perturb(pvera.adapt(make(example), method, CLASSES)).eval()
    pvera.export_peft(model, tmp_path)
    set_options(tmp_path, sample_at_inference=True)
    theirs = peft.PeftModel.from_pretrained(make(example), tmp_path).eval()
    images = make_images(1).expand(DRAWS, -1, -1, -1)
    torch.manual_seed(0)
    expected = features_of(theirs.base_model.model, images).var(0).mean().sqrt()
    set_options(tmp_path, sample_at_inference=False)
    for ours in (model, pvera.import_peft(tmp_path, make(example)).eval()):
        with ours.sampling(seed=0):
            drawn = ours.features(images)[0].var(0).mean().sqrt()
        assert (drawn / expected).item() == pytest.approx(1, abs=0.03)


def test_a_mean_that_peft_cannot_sample_is_exported_as_vera(tmp_path):
    """As VeRA, PEFT draws no noise for it."""
    pvera.export_peft(trained(PVeRA(rank=8), "transformers"), tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["peft_type"] == "VERA"
    assert pvera.import_peft(tmp_path, make_vit()).members[0].method.key == "vera"


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


def test_the_features_that_a_head_of_texts_reads(tmp_path):
    model = perturb(pvera.adapt(make("BertModel"), METHODS["pvera"], CLASSES, pool="mean"), scale=0.03).eval()
    pvera.export_peft(model, tmp_path)
    texts = make_inputs(model.backbone)
    close(pvera.import_peft(tmp_path, make("BertModel")).eval()(texts), model(texts))
    first = pvera.import_peft(tmp_path, make("BertModel"), pool="first").eval()
    assert first.pool == "first" and (first(texts) - model(texts)).abs().max() > 1e-3
