"""PVeRA: Probabilistic Vector-based Random matrix Adaptation (Section 3.2).

    μ, log σ² = x A ⊙ d                                    (Eq. 5)
    z = μ + ε ⊙ σ,  ε ~ N(0, I)                            (Eq. 6)
    x_PVeRA = (x Wᵀ + b_W) + α (z B ⊙ b)                   (Eq. 7)
    L = L_CE + β Σ_layers L_KL                             (Eq. 8; β is the caller's)
    L_KL = ½ Σ_{q,v} KL(N(μ, σ²) ‖ N(0, I))                (Eq. 9)
    W ← W + α (A_μ diag(d_μ) B diag(b))ᵀ                   (Eq. 10, the merge)

A (d × 2r) and B (r × d) are random, frozen and shared by all layers, one pair for each position; only d (2r) and
b (d) are trained. The paper calls the second half of x A ⊙ d the standard deviation. The published program, PEFT
and this file take it as log σ², which keeps σ positive.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters.base import Method, add_products, full_precision, overlap, products, take
from pvera.adapters.sampled import SampledAdapter
from pvera.adapters.vera import draw_frozen, draw_scale, merge_vera


@dataclass(frozen=True)
class PVeRA(Method):
    """Hyperparameters of PVeRA.

    rank: r, the size of the latent.   alpha: α of Eq. 7.   targets: adapted projections, letters of "qkv".
    init: distribution of A and B, "normal" (Section 3.1) or "uniform" (Kaiming, the published program).
    kl: over the latent, "sum" (the divergence of Eq. 9) or "mean" (the published program, which also
        averages over the targets where Eq. 9 takes half their sum).
    """

    key: ClassVar[str] = "pvera"
    title: ClassVar[str] = "PVeRA"
    colour: ClassVar[str] = "#D55E00"
    marker: ClassVar[str] = "o"
    rank: int = 256
    alpha: float = 16.0
    targets: str = "qv"
    init: str = field(default="normal", metadata={"choices": ("normal", "uniform")})
    kl: str = field(default="sum", metadata={"choices": ("sum", "mean")})

    def shared(self, dim: int, seed: int) -> "Frozen":
        return Frozen(self, dim, seed)

    def adapter(self, layer, index, shared, seed) -> "PVeRAAdapter":
        return PVeRAAdapter(self, layer.dim, shared, index, seed)

    def multiply_adds(self, shape, sampled=False) -> int:
        return len(self.targets) * (3 if sampled else 2) * shape.tokens * self.rank * shape.dim


class Frozen(nn.Module):
    """A (d, 2, p, r) and B (p, r, d) of the p targets: the first half of A's second axis gives μ."""

    def __init__(self, method: PVeRA, dim: int, seed: int):
        super().__init__()
        pairs = [draw_frozen(method.init, dim, 2 * method.rank, method.rank, seed, p) for p in method.targets]
        self.register_buffer("A", torch.stack([A.view(dim, 2, method.rank) for A, _ in pairs], 2))
        self.register_buffer("B", torch.stack([B for _, B in pairs]))


class PVeRAAdapter(SampledAdapter):
    """d (2, p, r) and b (p, d) of one layer, for the p targets."""

    def __init__(self, method: PVeRA, dim: int, shared: Frozen, index: int, seed: int):
        super().__init__(index, seed)
        self.method, self.shared = method, shared
        self.d = nn.Parameter(draw_scale((2, len(method.targets), method.rank), seed, index))
        self.b = nn.Parameter(torch.zeros(len(method.targets), dim))

    def project(self, x: Tensor, y: Tensor, positions: str) -> Tensor:
        mine, theirs = overlap(self.method.targets, positions)
        if not mine:
            return y
        now, divergence = self.settings(positions, x.device), None
        if now.mean_in_weights:
            z = self.noise_around_mean(x, mine, now)
        elif now.sampling or now.with_kl:
            mu, log_var = self.distribution(x, mine)
            sigma = torch.exp(log_var / 2)
            z = torch.addcmul(mu, self.noise(mu, now), sigma) if now.sampling else mu  # Eq. 6
            if now.with_kl:
                divergence = self.divergence(mu, sigma, log_var)
        else:
            z = self.latent(x, mine)
        self.keep_kl(positions, divergence, now)
        return self.add(y, z, mine, theirs)

    def project_positions(self, x: Tensor, y: Tensor, positions: str) -> Tensor:
        """Take the mean: position embeddings belong to no sample, so there is no noise and no KL term."""
        mine, theirs = overlap(self.method.targets, positions)
        return self.add(y, self.latent(x, mine), mine, theirs) if mine and not self.mean_in_weights else y

    def distribution(self, x: Tensor, targets: list[int]) -> tuple[Tensor, Tensor]:
        """Return μ and log σ² (Eq. 5), each (n, t, p, r), of x (n, t, d) for the p `targets`.

        In fp32 σ is finite up to log σ² = 177 and σ² up to 88; beyond, the loss is infinite and the run is recorded
        as diverged.
        """
        A, d = take(self.shared.A, 2, targets), take(self.d, 1, targets)
        mu, log_var = (full_precision(products(x, A)) * full_precision(d)).unbind(2)
        return mu, log_var

    def latent(self, x: Tensor, targets: list[int]) -> Tensor:
        """Return μ alone, (n, t, p, r), which takes half of A."""
        return products(x, take(self.shared.A[:, 0], 1, targets)) * take(self.d[0], 0, targets)

    def noise_around_mean(self, x: Tensor, targets: list[int], now) -> Tensor:
        """Return ε ⊙ σ alone, which takes the other half."""
        log_var = products(x, take(self.shared.A[:, 1], 1, targets)) * full_precision(take(self.d[1], 0, targets))
        return log_var.mul_(0.5).exp_().mul_(self.noise(log_var, now))

    def divergence(self, mu: Tensor, sigma: Tensor, log_var: Tensor) -> Tensor:
        """Return the layer's part of Eq. 9 for every token, (n, t), of tensors (n, t, p, r)."""
        kl = 0.5 * (mu**2 + sigma**2 - log_var - 1).sum((2, 3))
        if self.method.kl == "mean":
            return kl / (self.method.rank * len(self.method.targets))
        return 0.5 * kl

    def add(self, y: Tensor, z: Tensor, targets: list[int], at: list[int]) -> Tensor:
        """Return y (n, t, q, d) with α (z B ⊙ b) added (Eq. 7)."""
        B, b = take(self.shared.B, 0, targets), take(self.b, 0, targets)
        return add_products(y, z, B * (self.method.alpha * b).unsqueeze(1), at)

    def fold_projection(self, weight: Tensor, bias: Tensor, positions: str) -> tuple[Tensor, Tensor]:
        mine, theirs = overlap(self.method.targets, positions)
        weight[theirs] += merge_vera(self, self.shared.A[:, 0], self.d[0], mine).to(weight.dtype)
        return weight, bias
