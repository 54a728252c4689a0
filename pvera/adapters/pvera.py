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

The class `PVeRAAdapter` computes these equations in this order. In training z is drawn; in evaluation z = μ, and the
adapter is VeRA's with A_μ and d_μ.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pvera.adapters import base
from pvera.adapters.base import Method, full_precision, products, select
from pvera.adapters.stochastic import Pass, recomputing
from pvera.adapters.vera import SharedMatrices, VeRAAdapter
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
    rank: int = base.positive_int(256)
    alpha: float = base.positive(16.0)
    targets: str = base.positions("qv")
    init: str = base.one_of("normal", "uniform")
    kl: str = base.one_of("sum", "mean")
    pair: str = base.one_of("position", "shared")
    noise: bool = True
    sigma: float | None = base.positive(None)

    def shared(self, dim: int, seed: int) -> SharedMatrices:
        shared = SharedMatrices(self, dim, seed, parts=(2,))
        if self.sigma is not None:  # no half for log σ²; A_μ is the same with either σ
            shared.A = shared.A[:, :1].contiguous()
        return shared

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "PVeRAAdapter":
        return PVeRAAdapter(self, layer.dim, shared, index, seed)


def total_loss(cross_entropy: Tensor, kl: Tensor, beta: Tensor | float) -> Tensor:
    """Return the training loss L_CE + β Σ_layers L_KL (Eq. 8).

    Args:
        cross_entropy: L_CE, a scalar, or (members,) of a grid.
        kl: Σ_layers L_KL in the same shape, as `AdaptedModel.kl_divergence` returns it.
        beta: β, one for all members or (members,).
    """
    return cross_entropy + beta * kl


class PVeRAAdapter(VeRAAdapter):
    """d (halves, p, r) and b (p, d) of one layer, for the p targets; see `SharedMatrices` for A and B.

    There is one half, μ's, where σ is fixed.
    """

    def __init__(self, method: PVeRA, dim: int, shared: SharedMatrices, index: int, seed: int):
        super().__init__(method, dim, shared, index, seed)
        self.is_stochastic, self.draws_in_training = True, method.noise
        self._kl: dict[str, Tensor | None] = {}

    def __getstate__(self) -> dict:
        """Leave out the KL term: a copy has had none of the original's passes."""
        return super().__getstate__() | {"_kl": {}}

    @property
    def mean(self) -> tuple[Tensor, Tensor]:
        """A_μ (d, p, r) and d_μ (p, r), which the merge (Eq. 10) keeps."""
        return self.shared.A[:, 0], self.d[0]

    def project(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return x_PVeRA for y = x Wᵀ + b_W, and keep L_KL."""
        targets, at = self.matching(projections)
        if not targets:
            return y
        now = self.settings(projections, x.device)
        if now.sampling or now.with_kl:
            mu, log_sigma = self.distribution(x, targets)  # Eq. 5
            sigma = torch.exp(log_sigma)
            z = (
                torch.addcmul(mu, self.draw(torch.randn, mu, now), sigma) if now.sampling else mu
            )  # Eq. 6
            kl = self.divergence(mu, sigma, log_sigma) if now.with_kl else None  # Eq. 9
        else:
            z, kl = self.latent(x, targets), None
        self.keep_kl(projections, kl, now)
        return self.add_latent(y, z, targets, at)  # Eq. 7

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

    def divergence(self, mu: Tensor, sigma: Tensor, log_sigma: Tensor) -> Tensor:
        """Return L_KL (Eq. 9) of every token, (n, t), for tensors (n, t, p, r)."""
        squares, logs = (mu**2).sum((2, 3)) + (sigma**2 - 1).sum((2, 3)), log_sigma.sum((2, 3))
        kl = 0.5 * squares - logs  # Σ KL(N(μ, σ²) ‖ N(0, I))
        if self.method.kl == "mean":
            return kl / (self.method.rank * len(self.method.targets))
        return 0.5 * kl

    def keep_kl(self, projections: str, divergence: Tensor | None, now: Pass) -> None:
        """Keep the mean of the tokens' divergences (n, t), without padding; None: the pass has no KL term.

        Every text has the same weight, whatever its length.
        """
        if divergence is not None and now.tokens is not None:
            divergence = (
                divergence * now.tokens * (now.tokens.shape[1] / now.tokens.sum(1, keepdim=True))
            )
        mean = None if divergence is None else divergence.mean()
        if (
            not recomputing()
        ):  # the repeated pass saves the same tensors, and its mean is kept already
            self._kl[projections] = mean

    def kl_divergence(self) -> Tensor | float:
        """Return the KL term of the last pass, a scalar. RuntimeError without one, and in training without gradient."""
        terms = [kl for kl in self._kl.values() if kl is not None]
        if not terms:
            raise RuntimeError("no KL term: run a forward pass first, outside without_kl()")
        kl: Any = sum(terms)
        trains = self.training and next(self.parameters()).requires_grad and torch.is_grad_enabled()
        if trains and not kl.requires_grad:
            raise RuntimeError(
                "the KL term has no gradient: its pass ran under no_grad(), or in a re-entrant checkpoint "
                "(use_reentrant=False keeps the graph)"
            )
        return kl
