"""Parameters and multiply-adds: torch's counts against fvcore's, closed forms, a case by hand, the paper's numbers."""

import pytest
import torch
from tiny import METHODS

import pvera
from pvera import AdaptFormer, Bottleneck, LoRA, PVeRA, VeRA, cost

CLASSES = 5


@pytest.mark.parametrize(
    "method", [*METHODS.values(), VeRA(rank=5, targets="qkv", pair="shared"), PVeRA(rank=5, sigma=1.0)], ids=str
)
def test_counts_agree_and_leave_the_vit_as_it_was(vit, method):
    """All layers together, the first alone times the layers, the shapes without weights."""
    vit.train().norm.weight.requires_grad_(False)
    before, counted = {name: p.requires_grad for name, p in vit.named_parameters()}, cost.count(vit, method, CLASSES)
    bare = counted.backbone_multiply_adds
    assert counted.inference - bare == cost.adapter_multiply_adds(vit, method)
    assert counted.merged == (None if method.key in ("bottleneck", "adaptformer") else bare)
    drawn = bare + cost.adapter_multiply_adds(vit, method, sampled=True)
    assert counted.sampled == (drawn if method.key == "pvera" else None)
    assert (counted.head_multiply_adds, counted.head_parameters) == (24 * CLASSES, 25 * CLASSES)
    assert cost.trained_parameters(vit, method) == counted.adapter_parameters
    assert vit.training and before == {name: p.requires_grad for name, p in vit.named_parameters()}
    assert cost.count(vit.to("meta"), method, CLASSES) == counted


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
