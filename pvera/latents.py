"""Latents of the last layer's adapter (Section 4.4): μ and draws of PVeRA, x A ⊙ d of VeRA.

The last layer is the one closest to the head. Earlier layers take their mean, whatever the model's mode.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from pvera.adapters.base import generator
from pvera.errors import InputError, import_extra
from pvera.model import AdaptedModel


@torch.no_grad()
def last_layer(model: AdaptedModel, images: Tensor, positions: str) -> tuple[Tensor, Tensor | None]:
    """Return μ and σ of the last layer, each (n, tokens, p, r) in fp32, for the p `positions`, for example "qv".

    For VeRA, μ is x A ⊙ d, and σ is None. InputError for other methods, for positions without an adapter and for
    several active members, RuntimeError for a merged model.
    """
    member = model.only_member("looked into")
    adapter: Any = member.layers[-1]
    method: Any = member.method  # only methods with a latent get beyond the first check
    if not hasattr(adapter, "latent"):
        raise InputError(f"{method.title} has no latent: only VeRA and PVeRA do")
    if missing := set(positions) - set(method.targets):
        raise InputError(
            f"this {method.title} adapts {method.targets!r}, and so has no latent for {min(missing)!r}"
        )
    if model.merged:
        raise RuntimeError("a merged model has no latent: call unmerge_() first")
    inputs: list[Tensor] = []
    projection = model._layers[-1].projections[0][0]
    handle = projection.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    try:
        # VeRA with dropout has no variance, but it too draws in training mode.
        with (
            model.sampling(enabled=False) if member.is_stochastic else nullcontext(),
            model.without_kl(),
        ):
            model.features(images)
    finally:
        handle.remove()
    index = [method.targets.index(position) for position in positions]
    if not hasattr(adapter, "distribution"):
        return adapter.latent(inputs[0], index).float(), None
    mu, log_sigma = adapter.distribution(inputs[0], index)
    return mu.float(), torch.exp(log_sigma).float()


def adaptation(model: AdaptedModel, images: Tensor) -> dict[str, Tensor]:
    """Return two summaries of μ_q + μ_v of the last layer, each (n,), which tell images out of distribution.

    The paper speaks of "the values" of this sum, which is a vector per token:

        mean   over tokens and latent dimensions: the literal reading, in which signs cancel
        norm   the Euclidean length, averaged over tokens: how large the values are
    """
    total = last_layer(model, images, "qv")[0].sum(2)
    return {"mean": total.mean((1, 2)), "norm": total.norm(dim=2).mean(1)}


def lengths(model: AdaptedModel, images: Tensor) -> Tensor:
    """Return the Euclidean length of μ_q of the last layer at each patch, (n, height, width)."""
    return _of_patches(model, last_layer(model, images, "q")[0]).norm(dim=3)


def _of_patches(model: AdaptedModel, latents: Tensor) -> Tensor:
    """Return latents (n, tokens, 1, r) at the patches of timm's models alone, (n, height, width, r)."""
    height, width = cast(Any, model.backbone).patch_embed.grid_size
    return latents[:, -height * width :, 0].unflatten(
        1, (height, width)
    )  # class and register tokens come first


@dataclass(frozen=True)
class Maps:
    """Latents of the last layer's query over the patches, projected to one number per patch.

    mu: (n, height, width) of μ_q.   draws: (k, n, height, width) of N(μ_q, σ_q²); k = 0 for VeRA, and without draws.
    explained: share of the variance of μ_q over all these patches that the projection keeps.

    The paper does not name its projection. Here it is the first principal component of μ_q over the patches of all
    images, for the draws too. Its sign gives patches with a long μ_q high values.
    """

    mu: np.ndarray
    draws: np.ndarray
    explained: float


def maps(model: AdaptedModel, images: Tensor, draws: int, seed: int = 0) -> Maps:
    """Return `Maps` of images (n, 3, height, width) with `draws` draws from `seed`; VeRA has no draws."""
    if type(draws) is not int or draws < 0:
        raise InputError(f"draws must be a whole number from 0, not {draws!r}")
    PCA = import_extra("sklearn.decomposition", "study").PCA
    mean, sigma = last_layer(model, images, "q")
    mu = _of_patches(model, mean).cpu()
    latents = mu.flatten(0, -2).numpy()
    component = PCA(1, svd_solver="full").fit(latents)

    def project(z: Tensor) -> np.ndarray:
        return component.transform(z.flatten(0, -2).numpy()).reshape(z.shape[:-1])

    sign = 1 if np.corrcoef(project(mu).ravel(), np.linalg.norm(latents, axis=1))[0, 1] >= 0 else -1
    drawn = np.empty((0, *mu.shape[:-1]))
    if sigma is not None and draws:
        source = generator(seed, "latents")
        noise = torch.randn(draws, *mu.shape, generator=source, dtype=torch.float32, device="cpu")
        drawn = sign * project(mu + _of_patches(model, sigma).cpu() * noise)
    return Maps(sign * project(mu), drawn, float(component.explained_variance_ratio_[0]))
