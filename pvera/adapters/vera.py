"""VeRA: Vector-based Random Matrix Adaptation (Kopiczko et al., ICLR 2024; Section 3.1).

    x_VeRA = (x Wᵀ + b_W) + α ((x A ⊙ d) B ⊙ b)            (Eq. 4)
    W ← W + α (A diag(d) B diag(b))ᵀ                       (the merge)

A (w × r) and B (r × w) are random and frozen; all layers share one pair per projection, or one
pair for all. Only the vectors d (r) and b (w) are trained. b starts at zero, so the adapter starts
as the identity. Dropout, if any, drops part of the x in x A, or of the latent x A ⊙ d.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters import hyperparameters
from pvera.adapters.base import Method, change_at, matmul, select
from pvera.adapters.stochastic import AdditiveAdapter
from pvera.encoders import EncoderLayer
from pvera.seeds import generator


@dataclass(frozen=True)
class VeRA(Method):
    """Hyperparameters of VeRA."""

    key: ClassVar[str] = "vera"
    title: ClassVar[str] = "VeRA"
    colour: ClassVar[str] = "#0072B2"
    marker: ClassVar[str] = "h"
    #: r, the length of d.
    rank: int = hyperparameters.positive_int(256)
    #: α of Eq. 4.
    alpha: float = hyperparameters.positive(16.0)
    #: The target projections, letters of "qkv".
    targets: str = hyperparameters.target_projections("qv")
    #: Distribution of A and B: "normal" (Section 3.1) or "uniform" (Kaiming, the official code).
    init: str = hyperparameters.one_of("normal", "uniform")
    #: A and B are shared by all layers. "position": a pair per target, that is per position in
    #: "qkv" (the official code); "shared": one pair for all targets (PEFT).
    pair: str = hyperparameters.one_of("position", "shared")
    #: Share that training drops.
    dropout: float = hyperparameters.fraction(0.0)
    #: Dropout of the "input" x of A, or of the "latent" x A ⊙ d.
    dropout_on: str = hyperparameters.one_of("input", "latent")

    def shared(self, dim: int, seed: int) -> "SharedMatrices":
        """Return A and B."""
        return SharedMatrices(self, dim, seed)

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "VeRAAdapter":
        """Return d and b of one layer."""
        return VeRAAdapter(self, layer.dim, shared, index, seed, self.dropout)


class SharedMatrices(nn.Module):
    """The frozen A (w, *halves, p, r) and B (p, r, w), which all layers share.

    Args:
        method: A method with `rank`, `targets`, `init` and `pair`.
        dim: Width w.
        seed: Seed of the numbers.
        halves: () for VeRA's A (w × r), (2,) for PVeRA's A (w × 2r).
    """

    #: p is the number of targets, or one if they share a pair.
    A: Tensor
    B: Tensor

    def __init__(self, method: Any, dim: int, seed: int, halves: tuple[int, ...] = ()):
        super().__init__()
        self.is_one_pair = method.pair == "shared"
        rank = method.rank
        shape_of_A = (dim, math.prod(halves) * rank)
        pairs_of_A = []
        pairs_of_B = []
        for name in ["shared"] if self.is_one_pair else method.targets:
            A = random_matrix(method.init, shape_of_A, seed, "frozen", "A", name)
            pairs_of_A.append(A.view(dim, *halves, rank))
            pairs_of_B.append(random_matrix(method.init, (rank, dim), seed, "frozen", "B", name))
        self.register_buffer("A", torch.stack(pairs_of_A, -2))
        self.register_buffer("B", torch.stack(pairs_of_B))

    def pair_indices(self, target_indices: list[int]) -> list[int]:
        """Return where the targets' pairs stand in A and B; one pair broadcasts over all."""
        return [0] if self.is_one_pair else target_indices


def random_matrix(init: str, shape: tuple[int, int], *key: object) -> Tensor:
    """Return a random matrix, which follows from `key`.

    Both distributions have the variance 2 / columns, that of PyTorch's Kaiming initialisation. The
    paper names a "precomputed σ" without its value; the official code uses this one.
    """
    std = math.sqrt(2 / shape[1])
    rng = generator(*key)
    if init == "normal":
        return torch.empty(shape).normal_(0, std, generator=rng)
    bound = math.sqrt(3) * std
    return torch.empty(shape).uniform_(-bound, bound, generator=rng)


class VeRAAdapter(AdditiveAdapter):
    """d (*halves, p, r) and b (p, w) of one layer, for the p targets (see `SharedMatrices`).

    d starts as ones times one number from uniform(1e-5, 1) per projection and layer (Algorithm 2).
    """

    vectors = ("d", "b")
    shared: SharedMatrices

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
        self.method = method
        # Not as a submodule: the shared module is the member's, and stands in its state once.
        object.__setattr__(self, "shared", shared)
        self.targets = method.targets
        count = len(method.targets)
        rng = generator(seed, "scale", index)
        first_d = torch.empty(count, 1).uniform_(1e-5, 1, generator=rng)
        # shared.A is (w, *halves, p, r)
        self.d = nn.Parameter(torch.ones(*shared.A.shape[1:-2], count, method.rank) * first_d)
        self.b = nn.Parameter(torch.zeros(count, dim))

    def project(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return x_VeRA for y = x Wᵀ + b_W, with dropout in training."""
        target_indices, output_indices = self.matching(projections)
        if self.method.dropout_on == "input" or not target_indices:
            return super().project(x, y, projections)
        z = self.drop(self.latent(x, target_indices), projections)
        return self.add_latent(y, z, target_indices, output_indices)

    def add(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return x_VeRA for y = x Wᵀ + b_W (Eq. 4)."""
        target_indices, output_indices = self.matching(projections)
        if not target_indices:
            return y
        return self.add_latent(y, self.latent(x, target_indices), target_indices, output_indices)

    @property
    def mean_factors(self) -> tuple[Tensor, Tensor]:
        """A (w, p, r) and d (p, r) of the mean latent."""
        return self.shared.A, self.d

    def latent(self, x: Tensor, target_indices: list[int]) -> Tensor:
        """Return x A ⊙ d (n, t, p, r) of p targets, for x (n, t, w)."""
        A, d = self.mean_factors
        A = select(A, 1, self.shared.pair_indices(target_indices))  # (w, p or 1, r)
        return matmul(x, A) * select(d, 0, target_indices)

    def add_latent(
        self, y: Tensor, z: Tensor, target_indices: list[int], output_indices: list[int]
    ) -> Tensor:
        """Return y + α (z B ⊙ b).

        Args:
            y: (n, t, q, w), the q projections of one linear layer.
            z: (n, t, p, r), of the p targets among them.
            target_indices: Their indices in B and b.
            output_indices: Their indices in y.
        """
        B = select(self.shared.B, 0, self.shared.pair_indices(target_indices)).to(y.dtype)
        B = B.expand(len(target_indices), -1, -1)  # (p, r, w)
        scale = (self.method.alpha * select(self.b, 0, target_indices)).to(y.dtype)  # α b

        def add(i: int, y_i: Tensor) -> Tensor:
            # z B ⊙ α b, (n, t, w)
            return torch.addcmul(y_i, z[:, :, i].to(y.dtype) @ B[i], scale[i])

        return change_at(y, output_indices, add)

    def merge_projection(
        self, weight: Tensor, bias: Tensor, projections: str
    ) -> tuple[Tensor, Tensor]:
        """Return W + α (A diag(d) B diag(b))ᵀ (q, w, w), and the biases."""
        target_indices, output_indices = self.matching(projections)
        A, d = self.mean_factors
        pairs = self.shared.pair_indices(target_indices)
        # (w, p or 1, r), (p, r), (p or 1, r, w) and (p, w)
        factors = A[:, pairs], d[target_indices], self.shared.B[pairs], self.b[target_indices]
        change = self.method.alpha * torch.einsum("wpr,pr,prv,pv->pvw", *factors)
        weight[output_indices] += change.to(weight.dtype)
        return weight, bias
