"""DoRA: Weight-Decomposed Low-Rank Adaptation (Liu et al., 2024).

    x_DoRA = x W'ᵀ + b_W,  W' = m ⊙ (W + ΔW) / ‖W + ΔW‖,  ΔW = α/r (A B)ᵀ

m starts as ‖W‖, A and B as in LoRA, so W' starts as W. With one norm per output row, as in the authors' own
code and PEFT, m is trained. The published program takes one norm per input column, leaves m frozen and omits
α/r. It also writes k as m ⊙ W / ‖W‖, without update and with frozen m, which is W.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from .base import Adapter, Method, overlap, take
from .fused import add_products, scale_at
from .lora import low_rank_latent, low_rank_pair, low_rank_weight


@dataclass(frozen=True)
class DoRA(Method):
    """Hyperparameters of DoRA: rank r, α, adapted projections (letters of "qkv").

    norm: over the "input" dimension (one magnitude per output row) or over the "output" dimension.
    train_magnitude: whether m is trained.   scaled: whether the update carries α/r.
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

    def adapter(self, layer, index, shared, seed) -> "DoRAAdapter":
        return DoRAAdapter(self, layer, index, seed)

    def multiply_adds(self, shape, sampled=False) -> int:
        t, d = shape.tokens, shape.dim
        tokens = 2 * t * self.rank * d if self.norm == "input" else t * d**2
        return len(self.targets) * (tokens + self.rank * d**2)


class DoRAAdapter(Adapter):
    def __init__(self, method: DoRA, layer, index: int, seed: int):
        super().__init__()
        self.method, self.layer = method, layer
        self.A, self.B = low_rank_pair(layer.dim, method, index, seed)
        self.axis = 1 if method.norm == "input" else 0
        norms = torch.stack([layer.projection(p)[0].norm(dim=self.axis) for p in method.targets])
        self.m = nn.Parameter(norms.float(), requires_grad=method.train_magnitude)

    @property
    def scale(self) -> float:
        return self.method.alpha / self.method.rank if self.method.scaled else 1.0

    def project(self, x: Tensor, y: Tensor, positions: str) -> Tensor:
        mine, theirs = overlap(self.method.targets, positions)
        if not mine:
            return y
        frozen = [self.layer.projection(self.method.targets[i]) for i in mine]
        W, bias = (torch.stack(tensors) for tensors in zip(*frozen))
        A, B = take(self.A, 1, mine), take(self.B, 0, mine)
        V = W + self.scale * low_rank_weight(A, B)
        ratio = take(self.m, 0, mine) / V.norm(dim=self.axis + 1)
        if self.axis == 0:  # columns scale the input, which needs a product of its own
            parts = list(y.unbind(2))
            for i, j in enumerate(theirs):
                parts[j] = nn.functional.linear(x * ratio[i], V[i], bias[i])
            return torch.stack(parts, 2)
        # Rows scale the output: the frozen product, y - bias, is reused.
        y = scale_at(y, ratio, (1 - ratio) * bias, theirs)
        return add_products(y, low_rank_latent(x, A), self.scale * B * ratio.unsqueeze(1), theirs)

    def fold_projection(self, weight: Tensor, bias: Tensor, positions: str) -> tuple[Tensor, Tensor]:
        mine, theirs = overlap(self.method.targets, positions)
        V = weight[theirs] + self.scale * low_rank_weight(self.A[:, mine], self.B[mine])
        ratio = self.m[mine] / V.norm(dim=self.axis + 1)
        weight[theirs] = (V * ratio.unsqueeze(2 if self.axis == 1 else 1)).to(weight.dtype)
        return weight, bias
