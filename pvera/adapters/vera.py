"""VeRA: Vector-based Random matrix Adaptation (Kopiczko et al., ICLR 2024; Section 3.1).

    x_VeRA = (x Wᵀ + b_W) + α ((x A ⊙ d) B ⊙ b)            (Eq. 4)
    W ← W + α (A diag(d) B diag(b))ᵀ                       (the merge)

A (d × r) and B (r × d) are random, frozen and shared by all layers, one pair per position; only d (r) and
b (d) are trained.
"""

import math
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters.base import Adapter, Method, add_products, overlap, products, take
from pvera.seeding import generator


@dataclass(frozen=True)
class VeRA(Method):
    """Hyperparameters of VeRA: rank r, α of Eq. 4, adapted projections (letters of "qkv"), and the
    distribution of A and B, "normal" (Section 3.1) or "uniform" (Kaiming, the published program)."""

    key: ClassVar[str] = "vera"
    title: ClassVar[str] = "VeRA"
    colour: ClassVar[str] = "#0072B2"
    marker: ClassVar[str] = "h"
    rank: int = 256
    alpha: float = 16.0
    targets: str = "qv"
    init: str = field(default="normal", metadata={"choices": ("normal", "uniform")})

    def shared(self, dim: int, seed: int) -> "Frozen":
        return Frozen(self, dim, seed)

    def adapter(self, layer, index, shared, seed) -> "VeRAAdapter":
        return VeRAAdapter(self, layer.dim, shared, index, seed)

    def multiply_adds(self, shape, sampled=False) -> int:
        return len(self.targets) * 2 * shape.tokens * self.rank * shape.dim


class Frozen(nn.Module):
    """A (d, p, r) and B (p, r, d) of the p targets."""

    def __init__(self, method: VeRA, dim: int, seed: int):
        super().__init__()
        pairs = [draw_frozen(method.init, dim, method.rank, method.rank, seed, p) for p in method.targets]
        self.register_buffer("A", torch.stack([A for A, _ in pairs], 1))
        self.register_buffer("B", torch.stack([B for _, B in pairs]))


class VeRAAdapter(Adapter):
    def __init__(self, method: VeRA, dim: int, shared: Frozen, index: int, seed: int):
        super().__init__()
        self.method, self.shared = method, shared
        self.d = nn.Parameter(draw_scale((len(method.targets), method.rank), seed, index))
        self.b = nn.Parameter(torch.zeros(len(method.targets), dim))

    def project(self, x: Tensor, y: Tensor, positions: str) -> Tensor:
        mine, theirs = overlap(self.method.targets, positions)
        if not mine:
            return y
        B, b = take(self.shared.B, 0, mine), take(self.b, 0, mine)
        return add_products(y, self.latent(x, mine), B * (self.method.alpha * b).unsqueeze(1), theirs)  # Eq. 4

    def latent(self, x: Tensor, index: list[int]) -> Tensor:
        """x A ⊙ d, (n, t, p, r), of x (n, t, d) for the targets at `index`."""
        return products(x, take(self.shared.A, 1, index)) * take(self.d, 0, index)

    def fold_projection(self, weight: Tensor, bias: Tensor, positions: str) -> tuple[Tensor, Tensor]:
        mine, theirs = overlap(self.method.targets, positions)
        weight[theirs] += merge_vera(self, self.shared.A, self.d, mine).to(weight.dtype)
        return weight, bias


def merge_vera(adapter, A: Tensor, d: Tensor, targets: list[int]) -> Tensor:
    """Return α (A diag(d) B diag(b))ᵀ, (p, d_out, d_in), of A (d, p, r) and d (p, r) for the `targets`."""
    B, b = adapter.shared.B, adapter.b
    return adapter.method.alpha * torch.einsum("dpr,pr,pre,pe->ped", A[:, targets], d[targets], B[targets], b[targets])


def draw_frozen(init: str, dim: int, width: int, rank: int, seed: int, position: str) -> tuple[Tensor, Tensor]:
    """A (dim, width) and B (rank, dim) of one position, drawn from `seed`.

    Both distributions have the variance of PyTorch's Kaiming initialisation of tensors of these shapes,
    2 / columns: the paper names a "precomputed σ" without its value, the published program uses this one.
    """
    draws = []
    for name, shape in (("A", (dim, width)), ("B", (rank, dim))):
        source, std = generator(seed, "frozen", name, position), math.sqrt(2 / shape[1])
        if init == "uniform":
            bound = math.sqrt(3) * std
            draws.append(torch.empty(shape).uniform_(-bound, bound, generator=source))
        else:
            draws.append(torch.empty(shape).normal_(0, std, generator=source))
    return draws[0], draws[1]


def draw_scale(shape: tuple[int, ...], seed: int, layer: int) -> Tensor:
    """Initial d (..., p, r): ones times one number from uniform(1e-5, 1) per position and layer (Alg. 2)."""
    number = torch.empty(shape[-2], 1).uniform_(1e-5, 1, generator=generator(seed, "scale", layer))
    return torch.ones(shape) * number
