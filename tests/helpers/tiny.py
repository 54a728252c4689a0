"""A vision transformer small enough for tests, with weights large enough that every branch of
it matters."""

import pytest
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import nn

import pvera
from pvera import IA3, AdaptFormer, Bottleneck, DoRA, InputError, Linear, LoRA, PVeRA, VeRA

CLASSES = 5
#: One small configuration per method.
METHODS = {
    m.key: m
    for m in (
        Linear(),
        Bottleneck(ratio=4),
        IA3(),
        AdaptFormer(ratio=4),
        DoRA(rank=3),
        LoRA(rank=3),
        VeRA(rank=8),
        PVeRA(rank=8),
    )
}


def make_vit(seed: int = 0, dim: int = 24, depth: int = 2, **options) -> VisionTransformer:
    """Make a ViT with 16 patches, a class token, two heads and DINOv2's layer scale; `seed`
    draws all weights."""
    options = {"img_size": 32, "patch_size": 8, "init_values": 1.0, "num_classes": 0} | options
    return randomise(
        VisionTransformer(embed_dim=dim, depth=depth, num_heads=2, **options), seed
    ).eval()


@torch.no_grad()
def randomise(model: nn.Module, seed: int) -> nn.Module:
    source = torch.Generator().manual_seed(seed)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            noise = torch.randn(parameter.shape, generator=source)
            if isinstance(module, (nn.Linear, nn.Conv2d)) and name == "weight":
                parameter.copy_(noise / parameter[0].numel() ** 0.5)
            elif isinstance(module, nn.LayerNorm) and name == "weight" or name == "gamma":
                parameter.copy_(1 + 0.2 * noise)
            else:
                parameter.copy_((1.0 if isinstance(module, nn.Embedding) else 0.2) * noise)
    return model


def make_images(count: int = 3, seed: int = 0, size: int = 32) -> torch.Tensor:
    return torch.randn(count, 3, size, size, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def perturb(model: nn.Module, seed: int = 0, scale: float = 0.1) -> nn.Module:
    """Add normal noise to every trained tensor, away from zeros, ones and symmetry; return the
    model."""
    source = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter += scale * torch.randn(parameter.shape, generator=source).to(parameter)
    return model


def close(actual, expected, tolerance=1e-5):
    torch.testing.assert_close(actual, expected, rtol=0, atol=tolerance)


def refused(call, message: str) -> str:
    """Check that `call` raises a one-line InputError that contains `message`, and return its
    text."""
    with pytest.raises(InputError) as error:
        call()
    assert message in str(error.value) and "\n" not in str(error.value)
    return str(error.value)


def adapted(method="pvera", seed=0, **vit) -> pvera.AdaptedModel:
    """Adapt a ViT of these options with a method or grid, or the small one of a key, and
    perturb what trains."""
    method = METHODS[method] if isinstance(method, str) else method
    return perturb(
        pvera.adapt(make_vit(**vit), method, CLASSES, seed), seed if isinstance(seed, int) else 0
    )
