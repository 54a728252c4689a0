"""LoRA: Low-Rank Adaptation (Hu et al., ICLR 2022; Section 3.1).

    x_LoRA = (x Wᵀ + b_W) + α/r (x A B)                    (Eq. 3)
    W ← W + α/r (A B)ᵀ                                     (the merge)

A (d × r) and B (r × d) are trained, one pair per layer and target projection. A starts as N(0,
1/r), B as zero. Dropout, if any, drops part of the x in x A B (`AdditiveAdapter`).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters import hyperparameters
from pvera.adapters.base import Method, add_matmul, matmul, select
from pvera.adapters.stochastic import AdditiveAdapter
from pvera.encoders import EncoderLayer
from pvera.seeds import generator


@dataclass(frozen=True)
class LoRA(Method):
    """Hyperparameters of LoRA."""

    key: ClassVar[str] = "lora"
    title: ClassVar[str] = "LoRA"
    colour: ClassVar[str] = "#332288"
    marker: ClassVar[str] = "X"
    #: r.
    rank: int = hyperparameters.positive_int(64)
    #: α of Eq. 3.
    alpha: float = hyperparameters.positive(16.0)
    #: The target projections, letters of "qkv".
    targets: str = hyperparameters.target_projections("qv")
    #: A starts with equal numbers in every layer, as in the official code, which sets its seed
    #: again for each layer.
    same_draw: bool = hyperparameters.flag(False)
    #: Share of the input x of A that training drops.
    dropout: float = hyperparameters.fraction(0.0)

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "LoRAAdapter":
        """Return A and B of one layer."""
        return LoRAAdapter(self, layer.dim, index, seed)


class LoRAAdapter(AdditiveAdapter):
    """A (d, p, r), B (p, r, d) and the scale α/r of one layer, for the p targets."""

    def __init__(self, method: LoRA, dim: int, index: int, seed: int):
        super().__init__(index, seed, method.dropout)
        self.method = method
        self.targets = method.targets
        self.scale = method.alpha / method.rank
        self.A, self.B = low_rank_pair(dim, method, 0 if method.same_draw else index, seed)

    def add(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return x_LoRA for y = x Wᵀ + b_W."""
        target_indices, output_indices = self.matching(projections)
        if not target_indices:
            return y
        A = select(self.A, 1, target_indices)  # (d, p, r)
        B = select(self.B, 0, target_indices)  # (p, r, d)
        return add_matmul(y, matmul(x, A), B, output_indices, self.scale)  # Eq. 3

    def merge_projection(
        self, weight: Tensor, bias: Tensor, projections: str
    ) -> tuple[Tensor, Tensor]:
        """Return the merged weights (q, d, d), and the biases."""
        target_indices, output_indices = self.matching(projections)
        change = self.scale * low_rank_weight(self.A[:, target_indices], self.B[target_indices])
        weight[output_indices] += change.to(weight.dtype)
        return weight, bias


def low_rank_pair(
    dim: int, method: Any, index: int, seed: int
) -> tuple[nn.Parameter, nn.Parameter]:
    """Return A (d, p, r) from N(0, 1/r) and B (p, r, d) of zeros, for the p targets.

    Args:
        dim: Width d.
        method: A method with `rank` and `targets`.
        index: Number of the layer; equal numbers have equal A.
        seed: Seed of A.
    """
    count = len(method.targets)
    std = 1 / math.sqrt(method.rank)
    rng = generator(seed, "low rank", index)
    A = torch.empty(count, dim, method.rank).normal_(0, std, generator=rng)
    B = torch.zeros(count, method.rank, dim)
    return nn.Parameter(A.movedim(0, 1).contiguous()), nn.Parameter(B)


def low_rank_weight(A: Tensor, B: Tensor) -> Tensor:
    """Return (A B)ᵀ of every projection, (p, d_out, d_in)."""
    return torch.einsum("dpr,pre->ped", A, B)
