"""PVeRA: Probabilistic Vector-based Random Matrix Adaptation (Section 3.2).

    μ, log σ² = x A ⊙ d                                    (Eq. 5)
    z = μ + ε ⊙ σ,  ε ~ N(0, I)                            (Eq. 6)
    x_PVeRA = (x Wᵀ + b_W) + α (z B ⊙ b)                   (Eq. 7)
    L = L_CE + β Σ_layers L_KL                             (Eq. 8: the training loss; the caller chooses β)
    L_KL = ½ Σ_{q,v} KL(N(μ, σ²) ‖ N(0, I))                (Eq. 9)
    W ← W + α (A_μ diag(d_μ) B diag(b))ᵀ                   (Eq. 10: the merge, which keeps the mean)

A (d × 2r) and B (r × d) are random and frozen; all layers share one pair per projection, or one pair for all.
Only the vectors d (2r) and b (d) are trained. The first halves of A and d, A_μ and d_μ, give the mean. The paper calls
the other half of x A ⊙ d the standard deviation; the published program, PEFT and this file take it as log σ², which
keeps σ positive.

With a fixed `sigma`, not in the paper, σ is that number for every x. Then A and d have no second half: training
and inference take as much as VeRA's.

The class `PVeRAAdapter` computes these equations in this order. In training z is drawn; in evaluation z = μ.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters import options
from pvera.adapters.base import Method, full_precision, matching, products, select
from pvera.adapters.stochastic import StochasticAdapter
from pvera.adapters.vera import SharedMatrices, add_scaled, draw_scale, merged_update
from pvera.encoders import EncoderLayer


@dataclass(frozen=True)
class PVeRA(Method):
    """Hyperparameters of PVeRA.

    rank: r, the size of the latent z.   alpha: α of Eq. 7.   targets: the adapted projections, letters of "qkv".
    init: distribution of A and B, "normal" (Section 3.1) or "uniform" (Kaiming, the published program).
    pair: one A, B per "position" (the published program), or one "shared" by all targets (PEFT).
    kl: "sum" is Eq. 9. "mean" is the published program's: the mean over latent and targets, without the ½ before Σ.
    noise: z is drawn in training (Eq. 6); without, z = μ there as well.
    sigma: σ of Eq. 6 as a fixed number; None: σ is trained.
    """

    key: ClassVar[str] = "pvera"
    title: ClassVar[str] = "PVeRA"
    colour: ClassVar[str] = "#D55E00"
    marker: ClassVar[str] = "o"
    rank: int = options.positive_int(256)
    alpha: float = options.positive(16.0)
    targets: str = options.positions("qv")
    init: str = options.one_of("normal", "uniform")
    kl: str = options.one_of("sum", "mean")
    pair: str = options.one_of("position", "shared")
    noise: bool = True
    sigma: float | None = options.positive_or_none()

    @property
    def halves(self) -> int:
        """The halves of A and d: μ's, and log σ²'s where σ is trained."""
        return 2 if self.sigma is None else 1

    def shared(self, dim: int, seed: int) -> SharedMatrices:
        shared = SharedMatrices(self, dim, seed, parts=(2,))
        shared.A = shared.A[:, : self.halves].contiguous()  # A_μ is the same with either σ
        return shared

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "PVeRAAdapter":
        return PVeRAAdapter(self, layer.dim, shared, index, seed)


class PVeRAAdapter(StochasticAdapter):
    """d (halves, p, r) and b (p, d) of one layer, for the p targets; see `SharedMatrices` for A and B."""

    vectors = ("d", "b")

    def __init__(self, method: PVeRA, dim: int, shared: SharedMatrices, index: int, seed: int):
        super().__init__(index, seed, draws_in_training=method.noise)
        self.method, self.shared = method, shared
        self.d = nn.Parameter(draw_scale((method.halves, len(method.targets), method.rank), seed, index))
        self.b = nn.Parameter(torch.zeros(len(method.targets), dim))

    def project(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return x_PVeRA for y = x Wᵀ + b_W, and keep L_KL."""
        targets, at = matching(self.method.targets, projections)
        if not targets:
            return y
        now = self.settings(projections, x.device)
        if now.sampling or now.with_kl:
            mu, log_sigma = self.distribution(x, targets)  # Eq. 5
            sigma = torch.exp(log_sigma)
            z = torch.addcmul(mu, self.draw(torch.randn, mu, now), sigma) if now.sampling else mu  # Eq. 6
            kl = self.divergence(mu, sigma, log_sigma) if now.with_kl else None  # Eq. 9
        else:
            z, kl = self.latent(x, targets), None
        self.keep_kl(projections, kl, now)
        return add_scaled(self, y, z, targets, at)  # Eq. 7

    def distribution(self, x: Tensor, targets: list[int]) -> tuple[Tensor, Tensor]:
        """Return μ and log σ (Eq. 5), each (n, t, p, r), for x (n, t, d) and the p `targets`.

        fp32 holds σ up to log σ² = 177 and σ² up to 88. Beyond, the loss is infinite, and the run counts as diverged.
        """
        A, d = select(self.shared.A, 2, self.shared.pairs(targets)), select(self.d, 1, targets)
        # x A keeps its precision: the product with d, in fp32, has that of d.
        xA, d = products(x, A).unbind(2), full_precision(d)
        mu = xA[0] * d[0]
        if self.method.sigma is not None:
            return mu, torch.full_like(mu, math.log(self.method.sigma))
        return mu, xA[1] * (d[1] / 2)

    def latent(self, x: Tensor, targets: list[int]) -> Tensor:
        """Return μ = x A_μ ⊙ d_μ alone, (n, t, p, r)."""
        return products(x, select(self.shared.A[:, 0], 1, self.shared.pairs(targets))) * select(self.d[0], 0, targets)

    def divergence(self, mu: Tensor, sigma: Tensor, log_sigma: Tensor) -> Tensor:
        """Return L_KL (Eq. 9) of every token, (n, t), for tensors (n, t, p, r)."""
        squares, logs = (mu**2).sum((2, 3)) + (sigma**2 - 1).sum((2, 3)), log_sigma.sum((2, 3))
        kl = 0.5 * squares - logs  # Σ KL(N(μ, σ²) ‖ N(0, I))
        if self.method.kl == "mean":
            return kl / (self.method.rank * len(self.method.targets))
        return 0.5 * kl

    def merge_projection(self, weight: Tensor, bias: Tensor, projections: str) -> tuple[Tensor, Tensor]:
        """Return the merged weight (Eq. 10) and the bias as it was."""
        targets, at = matching(self.method.targets, projections)
        weight[at] += merged_update(self, self.shared.A[:, 0], self.d[0], targets).to(weight.dtype)
        return weight, bias

    def project_position_embeddings(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return Eq. 7 with z = μ: position embeddings belong to no sample, so they get no noise and no KL term."""
        targets, at = matching(self.method.targets, projections)
        return add_scaled(self, y, self.latent(x, targets), targets, at) if targets else y
