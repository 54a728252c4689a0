"""DoRA: Weight-Decomposed Low-Rank Adaptation (Liu et al., ICML 2024).

    V = W + ΔW,  ΔW = α/r (A B)ᵀ
    W' = m ⊙ V / ‖V‖
    x_DoRA = x W'ᵀ + b_W
    W ← W'                                                 (the merge)

A and B start as in LoRA and m starts as ‖W‖, so W' starts as W; where a norm is zero, W' is V. As in DoRA's own code
and in PEFT, every output row of V has a norm, and m is trained. Those two treat ‖V‖ as a constant in the backward pass,
to save memory; here gradients flow through it. The published program differs in four points: every input column has a
norm, m is frozen, α/r is left out, and ΔW is A B without the transpose. W is (out × in), so A B puts the random A on
the output side and the zero B on the input side.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters import base
from pvera.adapters.base import (
    Adapter,
    Method,
    add_products,
    change_at,
    full_precision,
    products,
    select,
)
from pvera.adapters.lora import low_rank_pair, low_rank_weight
from pvera.encoders import EncoderLayer


@dataclass(frozen=True)
class DoRA(Method):
    """Hyperparameters of DoRA; the last four at their defaults are DoRA's own, the others the published program's.

    rank: r.   alpha: α.   targets: the adapted projections, letters of "qkv".
    norm: over the "input" dimension (one magnitude per output row) or the "output" dimension (one per input column).
    train_magnitude: whether m is trained.   scaled: whether ΔW carries α/r.
    transpose: whether ΔW is (A B)ᵀ, the weight of x A B, or A B.
    """

    key: ClassVar[str] = "dora"
    title: ClassVar[str] = "DoRA"
    colour: ClassVar[str] = "#009E73"
    marker: ClassVar[str] = "P"
    rank: int = base.positive_int(64)
    alpha: float = base.positive(16.0)
    targets: str = base.positions("qv")
    norm: str = base.one_of("input", "output")
    train_magnitude: bool = True
    scaled: bool = True
    transpose: bool = True

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "DoRAAdapter":
        return DoRAAdapter(self, layer, index, seed)


class DoRAAdapter(Adapter):
    """A (d, p, r), B (p, r, d), m (p, d) and the scale α/r (or 1) of one layer, for the p targets.

    V, its norms and m have the precision of the trained tensors, whatever the backbone's is: a ratio of norms is near
    one and would lose its digits.
    """

    vectors = ("m",)

    def __init__(self, method: DoRA, layer: EncoderLayer, index: int, seed: int):
        super().__init__()
        self.method, self.layer, self.targets = method, layer, method.targets
        self.scale = method.alpha / method.rank if method.scaled else 1.0
        self.A, self.B = low_rank_pair(layer.dim, method, index, seed)
        self.axis = 1 if method.norm == "input" else 0
        frozen = torch.stack([layer.projection(p)[0] for p in method.targets])
        norms = full_precision(frozen).norm(dim=self.axis + 1)
        self.m = nn.Parameter(norms, requires_grad=method.train_magnitude)

    def factors(self, targets: list[int]) -> tuple[Tensor, Tensor]:
        """Return C (d, p, r) and D (p, r, d) of the `targets`, for which ΔW = α/r (C D)ᵀ: A and B, or Bᵀ and Aᵀ."""
        A, B = select(self.A, 1, targets), select(self.B, 0, targets)
        return (A, B) if self.method.transpose else (B.permute(2, 0, 1), A.permute(1, 2, 0))

    def direction(self, W: Tensor, targets: list[int]) -> tuple[Tensor, Tensor]:
        """Return V (p, d_out, d_in) and m / ‖V‖ (p, d) of the `targets`, whose frozen weights are W."""
        V = W + self.scale * low_rank_weight(*self.factors(targets))
        norm = V.norm(dim=self.axis + 1)
        some = norm > 0  # rows of zeros have no direction
        return V, torch.where(some, select(self.m, 0, targets) / torch.where(some, norm, 1), 1)

    def project(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        targets, at = self.matching(projections)
        if not targets:
            return y
        frozen = [self.layer.projection(self.targets[i]) for i in targets]
        W, bias = (torch.stack(tensors) for tensors in zip(*frozen, strict=True))
        V, ratio = self.direction(W, targets)
        if self.axis == 0:  # m / ‖V‖ scales the input, so x W'ᵀ is a product of its own
            V = V * ratio.unsqueeze(1)
            return change_at(y, at, lambda i, _: nn.functional.linear(x, V[i].to(x.dtype), bias[i]))
        # m / ‖V‖ scales the output: x W'ᵀ + b_W = m / ‖V‖ ⊙ (y − b_W + α/r x C D) + b_W, with y = x Wᵀ + b_W.
        shift = (1 - ratio) * bias
        y = change_at(y, at, lambda i, part: torch.addcmul(shift[i], part, ratio[i]))
        C, D = self.factors(targets)
        return add_products(y, products(x, C), D * ratio.unsqueeze(1), at, self.scale)

    def merge_projection(
        self, weight: Tensor, bias: Tensor, projections: str
    ) -> tuple[Tensor, Tensor]:
        targets, at = self.matching(projections)
        if not targets:
            return weight, bias
        V, ratio = self.direction(weight[at], targets)
        weight[at] = (V * ratio.unsqueeze(2 if self.axis == 1 else 1)).to(weight.dtype)
        return weight, bias
