"""Adapters on backbones of other precisions."""

import copy

import pytest
import torch
from test_adapters import dora
from tiny import make_images, make_vit, perturb
from torch.nn import functional as F

import pvera
from pvera import DoRA

# ---------------------------------------------------------------- precision


@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("norm", ["input", "output"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_dora_on_a_backbone_of_another_precision(dtype, norm, transpose):
    """DoRA's update is as exact as the backbone's type, compared with the same tensors in fp64."""
    method = DoRA(rank=3, norm=norm, transpose=transpose)
    vit, x = make_vit().to(dtype), make_images(5, size=24).flatten(2)[:, :, :24].to(dtype)
    adapter = perturb(pvera.adapt(vit, method, num_classes=5)).members[0].layers[0]
    kept = torch.promote_types(dtype, torch.float32)
    assert {tensor.dtype for tensor in adapter.parameters()} == {kept}
    qkv = vit.blocks[0].attn.qkv
    weights = zip(qkv.weight.chunk(3), qkv.bias.chunk(3))
    initial = torch.stack([W.double().norm(dim=adapter.axis) for W in qkv.weight.chunk(3)])[[0, 2]]
    start = pvera.adapt(make_vit().to(dtype), method, num_classes=5).members[0].layers[0].m
    torch.testing.assert_close(start.double(), initial, rtol=1e-6 if dtype != torch.float64 else 1e-14, atol=0)

    y = F.linear(x, qkv.weight, qkv.bias).unflatten(-1, (3, -1))
    outputs = adapter.project(x, y.clone(), "qkv")
    exact = {p: (W.double(), bias.double()) for p, (W, bias) in zip("qkv", weights)}
    equations = dora(copy.deepcopy(adapter).double(), method, exact)
    assert outputs.dtype == dtype and torch.equal(outputs[:, :, 1], y[:, :, 1])
    for i, p in ((0, "q"), (2, "v")):
        expected = equations[p](x.double(), None)
        error = (outputs[:, :, i].double() - expected).abs().max() / expected.abs().max()
        assert error < 4 * torch.finfo(dtype).eps
    outputs.sum().backward()
    assert all(p.grad.dtype == kept and p.grad.isfinite().all() for p in adapter.parameters())
