"""Parameters and multiply-adds: torch's counts against fvcore's, closed forms, a case by hand, the paper's numbers."""

import closed_forms
import pytest
import torch
from tiny import METHODS

import pvera
from pvera import AdaptFormer, Bottleneck, DoRA, LoRA, PVeRA, VeRA, backbones, cost

CLASSES = 5
#: The methods of `tiny`, and options that change a count.
VARIED = [
    *METHODS.values(), Bottleneck(ratio=5), AdaptFormer(ratio=7), LoRA(rank=5, targets="k"),
    VeRA(rank=5, targets="qkv"), PVeRA(rank=5, targets="v"), DoRA(rank=3, targets="kv"),
    DoRA(rank=3, norm="output", train_magnitude=False),
    VeRA(rank=5, targets="qkv", pair="shared"), PVeRA(rank=5, pair="shared"), PVeRA(rank=5, sigma=1.0),
]  # fmt: skip


@pytest.mark.parametrize("method", VARIED, ids=str)
def test_counts_are_the_closed_forms_and_leave_the_vit_as_it_was(vit, method):
    vit.train().norm.weight.requires_grad_(False)
    before = {name: p.requires_grad for name, p in vit.named_parameters()}
    counted, bare = cost.count(vit, method, CLASSES), closed_forms.backbone(vit)
    assert counted.backbone_multiply_adds == bare
    assert counted.inference - bare == closed_forms.adapters(vit, method) == cost.adapter_multiply_adds(vit, method)
    merges = method.key not in ("bottleneck", "adaptformer")
    assert counted.merged == (bare if merges else None)
    added = closed_forms.adapters(vit, method, sampled=True)
    assert counted.sampled == (bare + added if method.key == "pvera" else None)
    assert cost.adapter_multiply_adds(vit, method, sampled=True) == added
    assert (counted.head_multiply_adds, counted.head_parameters) == (24 * CLASSES, 25 * CLASSES)
    assert cost.trained_parameters(vit, method) == counted.adapter_parameters
    assert vit.training and before == {name: p.requires_grad for name, p in vit.named_parameters()}
    assert cost.count(vit.to("meta"), method, CLASSES) == counted, "shapes without weights are enough"


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("method", [Bottleneck(), AdaptFormer(), LoRA(rank=8), VeRA(rank=8), PVeRA(rank=8)], ids=str)
def test_fvcore_counts_the_same(vit, method):
    """The paper counts with fvcore, for which a fused attention is nothing and a LayerNorm five per number."""
    from fvcore.nn import FlopCountAnalysis

    for block in vit.blocks:
        block.attn.fused_attn = False
    images = torch.zeros(1, 3, 32, 32)
    model = pvera.adapt(vit, method, CLASSES).eval()
    with model.without_kl():
        analysis = FlopCountAnalysis(model, images).unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        assert analysis.total() - analysis.by_operator()["layer_norm"] == cost.multiply_adds(model, images)


def test_a_case_by_hand(vit):
    """2 layers of width 24, 17 tokens; the adapter of r = 8 on q and v."""
    counted = cost.count(vit, PVeRA(rank=8))
    patches = 16 * (3 * 8 * 8) * 24
    projections, attention = 17 * (72 + 24 + 96 + 96) * 24, 2 * 17 * 17 * 24
    assert counted.backbone_multiply_adds == 2 * (projections + attention) + patches
    assert counted.inference - counted.backbone_multiply_adds == 2 * 2 * (17 * 24 * 8 + 17 * 8 * 24)
    assert counted.sampled - counted.backbone_multiply_adds == 2 * 2 * (17 * 24 * 16 + 17 * 8 * 24)
    assert counted.adapter_parameters == 2 * 2 * (2 * 8 + 24)
    fixed, vera = (cost.count(vit, method) for method in (PVeRA(rank=8, sigma=1.0), VeRA(rank=8)))
    assert (fixed.sampled, fixed.adapter_parameters) == (vera.inference, vera.adapter_parameters)
    assert counted.frozen_parameters == 2 * (24 * 16 + 8 * 24)
    assert counted.backbone_parameters == sum(p.numel() for p in vit.parameters())


def test_percentages_of_the_paper():
    """Section 4.3, on ViT-B/14 at 224 pixels."""
    vit = backbones.shapes("dinov2_b")
    pvera_ = cost.count(vit, PVeRA())
    vera = cost.count(vit, VeRA(), backbone=pvera_.backbone_multiply_adds)
    assert 100 * (pvera_.sampled / pvera_.backbone_multiply_adds - 1) == pytest.approx(15.7, abs=0.05)
    assert 100 * (vera.inference / vera.backbone_multiply_adds - 1) == pytest.approx(10.5, abs=0.05)
    assert pvera_.inference == vera.inference
    assert pvera_.merged == vera.merged == pvera_.backbone_multiply_adds == 23_161_227_264
    assert (pvera_.adapter_parameters, vera.adapter_parameters) == (30_720, 24_576)
