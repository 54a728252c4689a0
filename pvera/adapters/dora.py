"""DoRA: Weight-Decomposed Low-Rank Adaptation (Liu et al., 2024).

    x_DoRA = x W'ᵀ + b_W,  W' = m ⊙ V / ‖V‖,  V = W + ΔW,  ΔW = α/r (A B)ᵀ

m starts as ‖W‖, A and B as in LoRA, so W' starts as W. With one norm per output row, as in the authors' own
code and PEFT, m is trained. The published program takes one norm per input column, leaves m frozen, omits
α/r and adds A B as it stands, which puts the random A on the output side of W (out × in) and the zero B on its
input side. It also writes k as m ⊙ W / ‖W‖, without update and with frozen m, which is W.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters.base import Adapter, Method, add_products, full_precision, overlap, products, scale_at, take
from pvera.adapters.lora import low_rank_pair, low_rank_weight


@dataclass(frozen=True)
class DoRA(Method):
    """Hyperparameters of DoRA: rank r, α, adapted projections (letters of "qkv").

    norm: over the "input" dimension (one magnitude per output row) or over the "output" dimension.
    train_magnitude: whether m is trained.   scaled: whether the update carries α/r.
    transpose: whether ΔW is (A B)ᵀ, as x A B makes it, or A B.
    """

    key: ClassVar[str] = "dora"
    title: ClassVar[str] = "DoRA"
    colour: ClassVar[str] = "#009E73"
    marker: ClassVar[str] = "P"
    rank: int = 64
    alpha: float = 16.0
    targets: str = "qv"
    norm: str = field(default="input", metadata={"choices": ("input", "output")})
    train_magnitude: bool = True
    scaled: bool = True
    transpose: bool = True

    def adapter(self, layer, index, shared, seed) -> "DoRAAdapter":
        return DoRAAdapter(self, layer, index, seed)

    def multiply_adds(self, shape, sampled=False) -> int:
        t, d = shape.tokens, shape.dim
        tokens = 2 * t * self.rank * d if self.norm == "input" else t * d**2
        return len(self.targets) * (tokens + self.rank * d**2)


class DoRAAdapter(Adapter):
    """V, its norms and m are computed in the type of what is trained, whatever the backbone's is: a ratio of norms near
    one would lose its digits."""

    def __init__(self, method: DoRA, layer, index: int, seed: int):
        super().__init__()
        self.method, self.layer = method, layer
        self.A, self.B = low_rank_pair(layer.dim, method, index, seed)
        self.axis = 1 if method.norm == "input" else 0
        frozen = torch.stack([layer.projection(p)[0] for p in method.targets])
        norms = full_precision(frozen).norm(dim=self.axis + 1)
        self.m = nn.Parameter(norms, requires_grad=method.train_magnitude)

    @property
    def scale(self) -> float:
        return self.method.alpha / self.method.rank if self.method.scaled else 1.0

    def factors(self, index: list[int]) -> tuple[Tensor, Tensor]:
        """C (d, p, r) and D (p, r, d) of the targets at `index`, with ΔW = α/r (C D)ᵀ."""
        A, B = take(self.A, 1, index), take(self.B, 0, index)
        return (A, B) if self.method.transpose else (B.permute(2, 0, 1), A.permute(1, 2, 0))

    def direction(self, W: Tensor, index: list[int]) -> tuple[Tensor, Tensor]:
        """V, (p, d_out, d_in), of the targets at `index`, whose frozen weights are W, and m / ‖V‖, (p, d)."""
        V = W + self.scale * low_rank_weight(*self.factors(index))
        return V, take(self.m, 0, index) / V.norm(dim=self.axis + 1)

    def project(self, x: Tensor, y: Tensor, positions: str) -> Tensor:
        mine, theirs = overlap(self.method.targets, positions)
        if not mine:
            return y
        frozen = [self.layer.projection(self.method.targets[i]) for i in mine]
        W, bias = (torch.stack(tensors) for tensors in zip(*frozen, strict=True))
        V, ratio = self.direction(W, mine)
        if self.axis == 0:  # columns scale the input, which needs a product of its own
            parts, V = list(y.unbind(2)), V * ratio.unsqueeze(1)
            for i, j in enumerate(theirs):
                parts[j] = nn.functional.linear(x, V[i].to(x.dtype), bias[i]).to(y.dtype)
            return torch.stack(parts, 2)
        # Rows scale the output: the frozen product, y - bias, is reused.
        y = scale_at(y, ratio, theirs, (1 - ratio) * bias)
        C, D = self.factors(mine)
        return add_products(y, products(x, C), self.scale * D * ratio.unsqueeze(1), theirs)

    def fold_projection(self, weight: Tensor, bias: Tensor, positions: str) -> tuple[Tensor, Tensor]:
        mine, theirs = overlap(self.method.targets, positions)
        if not mine:
            return weight, bias
        V, ratio = self.direction(weight[theirs], mine)
        weight[theirs] = (V * ratio.unsqueeze(2 if self.axis == 1 else 1)).to(weight.dtype)
        return weight, bias
