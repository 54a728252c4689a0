"""DoRA: Weight-Decomposed Low-Rank Adaptation (Liu et al., ICML 2024).

    V = W + ΔW,  ΔW = α/r (A B)ᵀ
    W' = m ⊙ V / ‖V‖
    x_DoRA = x W'ᵀ + b_W
    W ← W'                                                 (the merge)

A and B start as in LoRA and m starts as ‖W‖, so W' starts as W; if a norm is zero, W' is V. As in
DoRA's own code and in PEFT, every output row of V has a norm, and m is trained. Those two treat ‖V‖
as a constant in the backward pass, to save memory; here gradients flow through it.

The official code of the paper differs in four points: every input column has a norm, m is
frozen, α/r is left out, and ΔW is A B without the transpose. W is (out × in), so A B puts the
random A on the output side and the zero B on the input side.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters import hyperparameters
from pvera.adapters.base import (
    Adapter,
    Method,
    add_matmul,
    change_at,
    full_precision,
    matmul,
    select,
)
from pvera.adapters.lora import low_rank_pair, low_rank_weight
from pvera.encoders import EncoderLayer


@dataclass(frozen=True)
class DoRA(Method):
    """Hyperparameters of DoRA; the last four at their defaults are DoRA's own."""

    key: ClassVar[str] = "dora"
    title: ClassVar[str] = "DoRA"
    colour: ClassVar[str] = "#009E73"
    marker: ClassVar[str] = "P"
    #: r.
    rank: int = hyperparameters.positive_int(64)
    #: α.
    alpha: float = hyperparameters.positive(16.0)
    #: The target projections, letters of "qkv".
    targets: str = hyperparameters.target_projections("qv")
    #: Over the "input" dimension (one magnitude per output row) or the "output" dimension (one per
    #: input column, as in the official code).
    norm: str = hyperparameters.one_of("input", "output")
    #: m is trained; not in the official code.
    train_magnitude: bool = hyperparameters.flag(True)
    #: ΔW has the factor α/r; not in the official code.
    scaled: bool = hyperparameters.flag(True)
    #: ΔW is (A B)ᵀ, the weight of x A B; in the official code it is A B.
    transpose: bool = hyperparameters.flag(True)

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "DoRAAdapter":
        """Return A, B and m of one layer."""
        return DoRAAdapter(self, layer, index, seed)


class DoRAAdapter(Adapter):
    """A (d, p, r), B (p, r, d), m (p, d) and the scale α/r (or 1) of one layer, for the p targets.

    V, its norms and m have the precision of the trained tensors, whatever the backbone's is: a
    ratio of norms is near one and would lose its digits.
    """

    vectors = ("m",)

    def __init__(self, method: DoRA, layer: EncoderLayer, index: int, seed: int):
        super().__init__()
        self.method = method
        self.layer = layer
        self.targets = method.targets
        self.scale = method.alpha / method.rank if method.scaled else 1.0
        self.A, self.B = low_rank_pair(layer.dim, method, index, seed)
        #: The axis of V (p, d_out, d_in) over which a norm is taken.
        self.norm_dim = 2 if method.norm == "input" else 1
        W = torch.stack([layer.projection(letter)[0] for letter in method.targets])
        norms = full_precision(W).norm(dim=self.norm_dim)
        self.m = nn.Parameter(norms, requires_grad=method.train_magnitude)

    def factors(self, target_indices: list[int]) -> tuple[Tensor, Tensor]:
        """Return C (d, p, r) and D (p, r, d) with ΔW = α/r (C D)ᵀ: A and B, or Bᵀ and Aᵀ."""
        A = select(self.A, 1, target_indices)
        B = select(self.B, 0, target_indices)
        if self.method.transpose:
            return A, B
        return B.permute(2, 0, 1), A.permute(1, 2, 0)

    def direction(self, W: Tensor, target_indices: list[int]) -> tuple[Tensor, Tensor]:
        """Return V (p, d_out, d_in) and m / ‖V‖ (p, d) for frozen weights W."""
        V = W + self.scale * low_rank_weight(*self.factors(target_indices))
        norm = V.norm(dim=self.norm_dim)
        has_direction = norm > 0  # a row of zeros has none, and stays as it is
        ratio = select(self.m, 0, target_indices) / torch.where(has_direction, norm, 1)
        return V, torch.where(has_direction, ratio, 1)

    def project(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return x_DoRA for y = x Wᵀ + b_W."""
        target_indices, output_indices = self.matching(projections)
        if not target_indices:
            return y
        frozen = [self.layer.projection(self.targets[i]) for i in target_indices]
        W = torch.stack([weight for weight, _ in frozen])  # (p, d_out, d_in)
        b_W = torch.stack([bias for _, bias in frozen])  # (p, d_out)
        V, ratio = self.direction(W, target_indices)

        if self.norm_dim == 1:  # m / ‖V‖ scales the input, so x W'ᵀ is a product of its own
            W = (V * ratio.unsqueeze(1)).to(x.dtype)
            return change_at(y, output_indices, lambda i, _: nn.functional.linear(x, W[i], b_W[i]))
        # m / ‖V‖ scales the output: x W'ᵀ + b_W = m / ‖V‖ ⊙ (y − b_W + α/r x C D) + b_W
        shift = (1 - ratio) * b_W
        y = change_at(y, output_indices, lambda i, y_i: torch.addcmul(shift[i], y_i, ratio[i]))
        C, D = self.factors(target_indices)
        return add_matmul(y, matmul(x, C), D * ratio.unsqueeze(1), output_indices, self.scale)

    def merge_projection(
        self, weight: Tensor, bias: Tensor, projections: str
    ) -> tuple[Tensor, Tensor]:
        """Return W' (q, d, d), and the biases."""
        target_indices, output_indices = self.matching(projections)
        V, ratio = self.direction(weight[output_indices], target_indices)
        W = V * ratio.unsqueeze(self.norm_dim)
        weight[output_indices] = W.to(weight.dtype)
        return weight, bias
