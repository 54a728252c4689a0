"""Latents of the last layer's adapter (Section 4.4): μ and samples of PVeRA, x A ⊙ d of VeRA.

The last layer is the one closest to the head. Earlier layers use their mean.
"""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from pvera.errors import import_extra
from pvera.model import AdaptedModel
from pvera.seeds import generator


@torch.no_grad()
def last_layer(model: AdaptedModel, images: Tensor, targets: str) -> tuple[Tensor, Tensor | None]:
    """Return μ and σ of the last layer, each (n, tokens, p, r) in fp32; VeRA has no σ.

    Args:
        model: PVeRA's or VeRA's, with one active member, in evaluation mode.
        images: (n, 3, height, width).
        targets: The p target projections, for example "qv".
    """
    member = model.one_active_member("read")
    inputs: list[Tensor] = []
    linear, _ = model.encoder_layers[-1].qkv_linears[0]
    handle = linear.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    try:
        with model.without_kl():
            model.features(images)
    finally:
        handle.remove()

    adapter: Any = member.adapters[-1]
    target_indices = [adapter.targets.index(letter) for letter in targets]
    if not hasattr(adapter, "distribution"):
        return adapter.latent(inputs[0], target_indices).float(), None
    mu, log_sigma = adapter.distribution(inputs[0], target_indices)
    return mu.float(), torch.exp(log_sigma).float()


def adaptation(model: AdaptedModel, images: Tensor) -> dict[str, Tensor]:
    """Return two summaries of μ_q + μ_v, each (n,), which tell images out of distribution.

    The paper speaks of "the values" of this sum of the last layer, which is a vector per token:

        mean   over tokens and latent dimensions: the literal reading, in which signs cancel
        norm   the Euclidean length, averaged over tokens: how large the values are
    """
    mu, _ = last_layer(model, images, "qv")
    total = mu.sum(2)  # (n, tokens, r)
    return {"mean": total.mean((1, 2)), "norm": total.norm(dim=2).mean(1)}


def lengths(model: AdaptedModel, images: Tensor) -> Tensor:
    """Return the Euclidean length of the last layer's μ_q at each patch, (n, height, width)."""
    mu, _ = last_layer(model, images, "q")
    return _at_patches(model, mu).norm(dim=3)


def _at_patches(model: AdaptedModel, latents: Tensor) -> Tensor:
    """Return latents (n, tokens, 1, r) at the patches, (n, height, width, r); of timm's models."""
    height, width = cast(Any, model.backbone).patch_embed.grid_size
    # Class and register tokens come first.
    return latents[:, -height * width :, 0].unflatten(1, (height, width))


@dataclass(frozen=True)
class Maps:
    """Latents of the last layer's query over the patches, projected to one number per patch.

    The paper does not name its projection. Here it is the first principal component of μ_q over the
    patches of all images, for the samples too. Its sign gives patches with a long μ_q high values.
    """

    #: (n, height, width) of μ_q.
    mu: np.ndarray
    #: (k, n, height, width) of N(μ_q, σ_q²); k = 0 for VeRA.
    samples: np.ndarray
    #: Share of the variance of μ_q over all these patches that the projection keeps.
    explained: float


def maps(model: AdaptedModel, images: Tensor, samples: int, seed: int = 0) -> Maps:
    """Return `Maps` of images.

    Args:
        model: See `last_layer`.
        images: (n, 3, height, width).
        samples: Number of samples; VeRA has none.
        seed: Seed of the samples.
    """
    PCA = import_extra("sklearn.decomposition", "study").PCA
    mean, sigma = last_layer(model, images, "q")
    mu = _at_patches(model, mean).cpu()
    vectors = mu.flatten(0, -2).numpy()  # (patches, r)
    component = PCA(1, svd_solver="full").fit(vectors)

    def project(z: Tensor) -> np.ndarray:
        return component.transform(z.flatten(0, -2).numpy()).reshape(z.shape[:-1])

    projected = project(mu)
    correlation = np.corrcoef(projected.ravel(), np.linalg.norm(vectors, axis=1))[0, 1]
    sign = 1 if correlation >= 0 else -1
    projected_samples = np.empty((0, *mu.shape[:-1]))
    if sigma is not None and samples:
        rng = generator(seed, "latents")
        noise = torch.randn(samples, *mu.shape, generator=rng, dtype=torch.float32, device="cpu")
        projected_samples = sign * project(mu + _at_patches(model, sigma).cpu() * noise)
    return Maps(sign * projected, projected_samples, float(component.explained_variance_ratio_[0]))
