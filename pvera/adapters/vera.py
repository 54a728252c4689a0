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

from pvera.adapters import base
from pvera.adapters.base import Method, change_at, generator, products, select
from pvera.adapters.stochastic import DropoutAdapter
from pvera.encoders import EncoderLayer


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
    rank: int = base.positive_int(256)
    alpha: float = base.positive(16.0)
    targets: str = base.positions("qv")
    init: str = base.one_of("normal", "uniform")
    pair: str = base.one_of("position", "shared")
    dropout: float = base.share(0.0)
    dropout_on: str = base.one_of("input", "latent")

    def shared(self, dim: int, seed: int) -> "SharedMatrices":
        return SharedMatrices(self, dim, seed)

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "VeRAAdapter":
        return VeRAAdapter(self, layer.dim, shared, index, seed, self.dropout)


class SharedMatrices(nn.Module):
    """The frozen A (d, *parts, p, r) and B (p, r, d), which all layers share.

    p is the number of targets, or one where they share a pair.   parts: () for VeRA's A (d × r), (2,) for PVeRA's
    A (d × 2r).
    """

    A: Tensor
    B: Tensor

    def __init__(self, method: Any, dim: int, seed: int, parts: tuple[int, ...] = ()):
        super().__init__()
        self.one = method.pair == "shared"
        names = ["shared"] if self.one else method.targets
        wide, tall = (dim, math.prod(parts) * method.rank), (method.rank, dim)
        A = [draw_matrix(method.init, wide, seed, "frozen", "A", name) for name in names]
        self.register_buffer(
            "A", torch.stack([matrix.view(dim, *parts, method.rank) for matrix in A], -2)
        )
        B = [draw_matrix(method.init, tall, seed, "frozen", "B", name) for name in names]
        self.register_buffer("B", torch.stack(B))

    def pairs(self, targets: list[int]) -> list[int]:
        """Return the indices of the pairs of the `targets`. A shared one broadcasts over them."""
        return [0] if self.one else targets


def draw_matrix(init: str, shape: tuple[int, int], *key: object) -> Tensor:
    """Return a random matrix, drawn from `key`.

    Both distributions have the variance 2 / columns, that of PyTorch's Kaiming initialisation. The paper names a
    "precomputed σ" without its value; the published program uses this one.
    """
    source, std = generator(*key), math.sqrt(2 / shape[1])
    if init == "normal":
        return torch.empty(shape).normal_(0, std, generator=source)
    bound = math.sqrt(3) * std
    return torch.empty(shape).uniform_(-bound, bound, generator=source)


class VeRAAdapter(DropoutAdapter):
    """d (*parts, p, r) and b (p, d) of one layer, for the p targets; see `SharedMatrices` for parts, A and B.

    d starts as ones times one number from uniform(1e-5, 1) per position and layer (Algorithm 2).
    """

    vectors = ("d", "b")

    def __init__(
        self,
        method: Any,
        dim: int,
        shared: SharedMatrices,
        index: int,
        seed: int,
        dropout: float = 0.0,
    ):
        super().__init__(index, seed, dropout)
        self.method, self.shared, self.targets = method, shared, method.targets
        count, source = len(method.targets), generator(seed, "scale", index)
        start = torch.empty(count, 1).uniform_(1e-5, 1, generator=source)
        self.d = nn.Parameter(torch.ones(*shared.A.shape[1:-2], count, method.rank) * start)
        self.b = nn.Parameter(torch.zeros(count, dim))

    def project(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        targets, at = self.matching(projections)
        if self.method.dropout_on == "input" or not targets:
            return super().project(x, y, projections)
        return self.add_latent(y, self.drop(self.latent(x, targets), projections), targets, at)

    def add(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        targets, at = self.matching(projections)
        return self.add_latent(y, self.latent(x, targets), targets, at) if targets else y  # Eq. 4

    @property
    def mean(self) -> tuple[Tensor, Tensor]:
        """A (d, p, r) and d (p, r) of the mean latent."""
        return self.shared.A, self.d

    def latent(self, x: Tensor, targets: list[int]) -> Tensor:
        """Return x A ⊙ d (n, t, p, r) for x (n, t, d) and the p `targets`."""
        A, d = self.mean
        return products(x, select(A, 1, self.shared.pairs(targets))) * select(d, 0, targets)

    def add_latent(self, y: Tensor, z: Tensor, targets: list[int], at: list[int]) -> Tensor:
        """Return y (n, t, q, d) with α (z B ⊙ b) added at `at`, for z (n, t, p, r) of the p `targets`."""
        B = (
            select(self.shared.B, 0, self.shared.pairs(targets))
            .to(y.dtype)
            .expand(len(targets), -1, -1)
        )
        scale = (self.method.alpha * select(self.b, 0, targets)).to(y.dtype)
        return change_at(
            y, at, lambda i, part: torch.addcmul(part, z[:, :, i].to(y.dtype) @ B[i], scale[i])
        )

    def merge_projection(
        self, weight: Tensor, bias: Tensor, projections: str
    ) -> tuple[Tensor, Tensor]:
        targets, at = self.matching(projections)
        (A, d), pairs = self.mean, self.shared.pairs(targets)
        factors = A[:, pairs], d[targets], self.shared.B[pairs], self.b[targets]
        weight[at] += (self.method.alpha * torch.einsum("dpr,pr,pre,pe->ped", *factors)).to(
            weight.dtype
        )
        return weight, bias
