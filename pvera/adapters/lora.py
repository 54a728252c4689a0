"""LoRA: Low-Rank Adaptation (Hu et al., ICLR 2022; Section 3.1).

    x_LoRA = (x Wᵀ + b_W) + α/r (x A B)                    (Eq. 3)
    W ← W + α/r (A B)ᵀ                                     (the merge)

A (d × r) and B (r × d) are trained, one pair per layer and position. A starts as N(0, 1/r), B as zero. Dropout, if
any, drops part of the x in x A B (`DropoutAdapter`).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters import base
from pvera.adapters.base import Method, add_products, generator, products, select
from pvera.adapters.stochastic import DropoutAdapter
from pvera.encoders import EncoderLayer


@dataclass(frozen=True)
class LoRA(Method):
    """Hyperparameters of LoRA.

    rank: r.   alpha: α of Eq. 3.   targets: the adapted projections, letters of "qkv".
    same_draw: A starts alike in every layer, as in the published program, which sets its seed anew for each layer.
    dropout: share of the input x of A that training drops.
    """

    key: ClassVar[str] = "lora"
    title: ClassVar[str] = "LoRA"
    colour: ClassVar[str] = "#332288"
    marker: ClassVar[str] = "X"
    rank: int = base.positive_int(64)
    alpha: float = base.positive(16.0)
    targets: str = base.positions("qv")
    same_draw: bool = False
    dropout: float = base.share(0.0)

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "LoRAAdapter":
        return LoRAAdapter(self, layer.dim, index, seed)


class LoRAAdapter(DropoutAdapter):
    """A (d, p, r), B (p, r, d) and the scale α/r of one layer, for the p targets."""

    def __init__(self, method: LoRA, dim: int, index: int, seed: int):
        super().__init__(index, seed, method.dropout)
        self.method, self.targets = method, method.targets
        self.scale = method.alpha / method.rank
        self.A, self.B = low_rank_pair(dim, method, 0 if method.same_draw else index, seed)

    def add(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        targets, at = self.matching(projections)
        if not targets:
            return y
        A, B = select(self.A, 1, targets), select(self.B, 0, targets)
        return add_products(y, products(x, A), B, at, self.scale)  # Eq. 3

    def merge_projection(
        self, weight: Tensor, bias: Tensor, projections: str
    ) -> tuple[Tensor, Tensor]:
        targets, at = self.matching(projections)
        weight[at] += self.scale * low_rank_weight(self.A[:, targets], self.B[targets]).to(
            weight.dtype
        )
        return weight, bias


def low_rank_pair(dim: int, method, draw: int, seed: int) -> tuple[nn.Parameter, nn.Parameter]:
    """Return A (d, p, r) from N(0, 1/r) and B (p, r, d) of zeros, for the p targets of `method`.

    draw: which numbers A gets; DoRA uses the layer's index, as LoRA does by default.
    """
    count, source = len(method.targets), generator(seed, "low rank", draw)
    A = torch.empty(count, dim, method.rank).normal_(
        0, 1 / math.sqrt(method.rank), generator=source
    )
    return nn.Parameter(A.movedim(0, 1).contiguous()), nn.Parameter(
        torch.zeros(count, method.rank, dim)
    )


def low_rank_weight(A: Tensor, B: Tensor) -> Tensor:
    """Return (A B)ᵀ of every position, (p, d_out, d_in)."""
    return torch.einsum("dpr,pre->ped", A, B)
