"""VeRA: Vector-based Random Matrix Adaptation (Kopiczko et al., ICLR 2024; Section 3.1).

    x_VeRA = (x Wᵀ + b_W) + α ((x A ⊙ d) B ⊙ b)            (Eq. 4)
    W ← W + α (A diag(d) B diag(b))ᵀ                       (the merge)

A (d × r) and B (r × d) are random and frozen; all layers share one pair per projection, or one pair for all.
Only the vectors d (r) and b (d) are trained. b starts at zero, so the adapter starts as the identity.
Dropout, if any, drops part of the x in x A, or of the latent x A ⊙ d (`DropoutAdapter`).
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters import options
from pvera.adapters.base import Method, change_at, matching, products, select
from pvera.adapters.stochastic import DropoutAdapter
from pvera.encoders import EncoderLayer
from pvera.seeding import generator


@dataclass(frozen=True)
class VeRA(Method):
    """Hyperparameters of VeRA.

    rank: r, the length of d.   alpha: α of Eq. 4.   targets: the adapted projections, letters of "qkv".
    init: distribution of A and B, "normal" (Section 3.1) or "uniform" (Kaiming, the published program).
    pair: one A, B per "position" (the published program), or one "shared" by all targets (PEFT).
    dropout: share that training drops.   dropout_on: of the "input" x of A, or of the "latent" x A ⊙ d.
    """

    key: ClassVar[str] = "vera"
    title: ClassVar[str] = "VeRA"
    colour: ClassVar[str] = "#0072B2"
    marker: ClassVar[str] = "h"
    rank: int = options.positive_int(256)
    alpha: float = options.positive(16.0)
    targets: str = options.positions("qv")
    init: str = options.one_of("normal", "uniform")
    pair: str = options.one_of("position", "shared")
    dropout: float = options.share(0.0)
    dropout_on: str = options.one_of("input", "latent")

    def shared(self, dim: int, seed: int) -> "SharedMatrices":
        return SharedMatrices(self, dim, seed)

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "VeRAAdapter":
        return VeRAAdapter(self, layer.dim, shared, index, seed)


class SharedMatrices(nn.Module):
    """The frozen A (d, *parts, p, r) and B (p, r, d), which all layers share.

    p is the number of targets, or one where they share a pair.   parts: () for VeRA's A (d × r), (2,) for PVeRA's
    A (d × 2r).
    """

    A: Tensor
    B: Tensor

    def __init__(self, method: Any, dim: int, seed: int, parts: tuple[int, ...] = ()):
        super().__init__()
        width = math.prod(parts) * method.rank
        self.one = method.pair == "shared"
        names = ["shared"] if self.one else method.targets
        pairs = [draw_matrices(method.init, dim, width, method.rank, seed, name) for name in names]
        self.register_buffer("A", torch.stack([A.view(dim, *parts, method.rank) for A, _ in pairs], -2))
        self.register_buffer("B", torch.stack([B for _, B in pairs]))

    def pairs(self, targets: list[int]) -> list[int]:
        """Return the indices of the pairs of the `targets`. A shared one broadcasts over them."""
        return [0] if self.one else targets


class VeRAAdapter(DropoutAdapter):
    """d (p, r) and b (p, d) of one layer, for the p targets."""

    vectors = ("d", "b")

    def __init__(self, method: VeRA, dim: int, shared: SharedMatrices, index: int, seed: int):
        super().__init__(index, seed, method.dropout)
        self.method, self.shared = method, shared
        self.d = nn.Parameter(draw_scale((len(method.targets), method.rank), seed, index))
        self.b = nn.Parameter(torch.zeros(len(method.targets), dim))

    def project(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        targets, at = matching(self.method.targets, projections)
        if self.method.dropout_on == "input" or not targets:
            return super().project(x, y, projections)
        return add_scaled(self, y, self.drop(self.latent(x, targets), projections), targets, at)

    def add(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        targets, at = matching(self.method.targets, projections)
        return add_scaled(self, y, self.latent(x, targets), targets, at) if targets else y  # Eq. 4

    def latent(self, x: Tensor, targets: list[int]) -> Tensor:
        """Return x A ⊙ d (n, t, p, r) for x (n, t, d) and the p `targets`."""
        return products(x, select(self.shared.A, 1, self.shared.pairs(targets))) * select(self.d, 0, targets)

    def merge_projection(self, weight: Tensor, bias: Tensor, projections: str) -> tuple[Tensor, Tensor]:
        targets, at = matching(self.method.targets, projections)
        weight[at] += merged_update(self, self.shared.A, self.d, targets).to(weight.dtype)
        return weight, bias


def add_scaled(adapter: Any, y: Tensor, z: Tensor, targets: list[int], at: list[int]) -> Tensor:
    """Return y (n, t, q, d) with α (z B ⊙ b) added at `at`, for z (n, t, p, r) of the p `targets`."""
    B = select(adapter.shared.B, 0, adapter.shared.pairs(targets)).to(y.dtype).expand(len(targets), -1, -1)
    scale = (adapter.method.alpha * select(adapter.b, 0, targets)).to(y.dtype)
    return change_at(y, at, lambda i, part: torch.addcmul(part, z[:, :, i].to(y.dtype) @ B[i], scale[i]))


def merged_update(adapter: Any, A: Tensor, d: Tensor, targets: list[int]) -> Tensor:
    """Return α (A diag(d) B diag(b))ᵀ (p, d_out, d_in) of the p `targets`, for A (d, p, r) and d (p, r)."""
    pairs, B, b = adapter.shared.pairs(targets), adapter.shared.B, adapter.b
    return adapter.method.alpha * torch.einsum("dpr,pr,pre,pe->ped", A[:, pairs], d[targets], B[pairs], b[targets])


def draw_matrices(init: str, dim: int, width: int, rank: int, seed: int, position: str) -> tuple[Tensor, Tensor]:
    """Return A (dim, width) and B (rank, dim) of one position ("shared" for all), drawn from `seed`.

    Both distributions have the variance 2 / columns, that of PyTorch's Kaiming initialisation. The paper names a
    "precomputed σ" without its value; the published program uses this one.
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
    """Return the initial d (..., p, r): ones times one number from uniform(1e-5, 1) per position and layer (Alg. 2)."""
    number = torch.empty(shape[-2], 1).uniform_(1e-5, 1, generator=generator(seed, "scale", layer))
    return torch.ones(shape) * number
