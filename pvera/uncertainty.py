"""Monte Carlo inference (Section 3.3): several forward passes, each with latents of its own."""

from collections.abc import Mapping

import torch
from torch import Tensor

from .errors import InputError
from .model import AdaptedModel


@torch.no_grad()
def sample(model: AdaptedModel, images: Tensor | Mapping[str, Tensor], k: int, seed: int = 0) -> Tensor:
    """Softmax scores (k, batch, classes) of k draws for images or text (see `adapt`).

    The mode of `model` stays as it is, and so does its training noise; the draws follow from `seed`. Average
    probabilities over draws, not logits. InputError for a method without a distribution or k < 1,
    RuntimeError for a merged model. Memory does not grow with k beyond the scores.
    """
    if not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a positive integer, not {k!r}")
    with model.sampling(seed), model.without_kl():
        return torch.stack([model(images).float().softmax(-1) for _ in range(k)])
