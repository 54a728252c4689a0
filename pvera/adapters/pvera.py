"""PVeRA: Probabilistic Vector-based Random Matrix Adaptation (Section 3.2).

    μ, log σ² = x A ⊙ d                                    (Eq. 5)
    z = μ + ε ⊙ σ,  ε ~ N(0, I)                            (Eq. 6)
    x_PVeRA = (x Wᵀ + b_W) + α (z B ⊙ b)                   (Eq. 7)
    L = L_CE + β Σ_layers L_KL                             (Eq. 8: the training loss)
    L_KL = ½ Σ_{q,v} KL(N(μ, σ²) ‖ N(0, I))                (Eq. 9)
    W ← W + α (A_μ diag(d_μ) B diag(b))ᵀ                   (Eq. 10: the merge, of the mean)

A (w × 2r) and B (r × w) are random and frozen; all layers share one pair per projection, or one
pair for all. Only the vectors d (2r) and b (w) are trained. The first halves of A and d, A_μ and
d_μ, give the mean. The paper calls the other half of x A ⊙ d the standard deviation; the
official code, PEFT and this file take it as log σ², which keeps σ positive.

Training samples z. In evaluation z = μ, and the adapter is VeRA's with A_μ and d_μ. With a fixed
`sigma`, which is not in the paper, A and d have no second half: training and inference cost as much
as VeRA's.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from pvera.adapters import hyperparameters
from pvera.adapters.base import Method, full_precision, matmul, select
from pvera.adapters.passes import recomputing
from pvera.adapters.stochastic import PassSettings
from pvera.adapters.vera import SharedMatrices, VeRAAdapter
from pvera.encoders import EncoderLayer


@dataclass(frozen=True)
class PVeRA(Method):
    """Hyperparameters of PVeRA."""

    key: ClassVar[str] = "pvera"
    title: ClassVar[str] = "PVeRA"
    colour: ClassVar[str] = "#D55E00"
    marker: ClassVar[str] = "o"
    #: r, the size of the latent z.
    rank: int = hyperparameters.positive_int(256)
    #: α of Eq. 7.
    alpha: float = hyperparameters.positive(16.0)
    #: The target projections, letters of "qkv".
    targets: str = hyperparameters.target_projections("qv")
    #: Distribution of A and B: "normal" (Section 3.1) or "uniform" (Kaiming, the official code).
    init: str = hyperparameters.one_of("normal", "uniform")
    #: "sum" is Eq. 9; "mean" is the official code's: the mean over latent and targets, without
    #: the ½ before Σ.
    kl: str = hyperparameters.one_of("sum", "mean")
    #: A and B are shared by all layers. "position": a pair per target, that is per position in
    #: "qkv" (the official code); "shared": one pair for all targets (PEFT).
    pair: str = hyperparameters.one_of("position", "shared")
    #: Training samples z (Eq. 6), with a trained or a fixed σ; without, z = μ there as well.
    noise: bool = hyperparameters.flag(True)
    #: σ of Eq. 6 as a fixed number; None: σ is trained.
    sigma: float | None = hyperparameters.positive(None)

    def shared(self, dim: int, seed: int) -> SharedMatrices:
        """Return A and B."""
        shared = SharedMatrices(self, dim, seed, halves=(2,))
        # Without a half for log σ². A_μ is the same with a trained σ and a fixed one.
        if self.sigma is not None:
            shared.A = shared.A[:, :1].contiguous()
        return shared

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "PVeRAAdapter":
        """Return d and b of one layer."""
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
    """d (halves, p, r) and b (p, w) of one layer, for the p targets (see `SharedMatrices`).

    There are two halves, that of μ and that of log σ², or μ's alone if σ is fixed. With z = μ the
    adapter is VeRA's without dropout, from which it inherits Eq. 7, the merge, and the pass of
    position embeddings.
    """

    def __init__(self, method: PVeRA, dim: int, shared: SharedMatrices, index: int, seed: int):
        super().__init__(method, dim, shared, index, seed)
        self.is_stochastic = True  # by its own noise: dropout is 0
        self.samples_in_training = method.noise
        #: The KL term of the last pass through each linear layer.
        self._kl: dict[str, Tensor | None] = {}

    def __getstate__(self) -> dict:
        """Leave out the KL term: a copy has had none of the original's passes."""
        return super().__getstate__() | {"_kl": {}}

    @property
    def mean_factors(self) -> tuple[Tensor, Tensor]:
        """A_μ (w, p, r) and d_μ (p, r), which the merge (Eq. 10) keeps."""
        return self.shared.A[:, 0], self.d[0]

    def distribution(self, x: Tensor, target_indices: list[int]) -> tuple[Tensor, Tensor]:
        """Return μ and log σ (Eq. 5), each (n, t, p, r), of p targets, for x (n, t, w).

        fp32 holds σ up to log σ² = 177 and σ² up to 88. Beyond, the loss is infinite, and the run
        counts as diverged.
        """
        # (w, halves, p or 1, r)
        A = select(self.shared.A, 2, self.shared.pair_indices(target_indices))
        d = full_precision(select(self.d, 1, target_indices))  # (halves, p, r)
        # x A keeps its precision: the product with d, in fp32, has that of d.
        halves = matmul(x, A).unbind(2)  # each (n, t, p or 1, r)
        mu = halves[0] * d[0]
        if self.method.sigma is not None:
            return mu, torch.full_like(mu, math.log(self.method.sigma))
        return mu, halves[1] * (d[1] / 2)  # log σ = ½ log σ²

    def _sample_latent(
        self, x: Tensor, target_indices: list[int], settings: PassSettings
    ) -> tuple[Tensor, Tensor | None]:
        """Return z (n, t, p, r), and L_KL if the pass has it."""
        if not settings.sampling and not settings.with_kl:
            return self.latent(x, target_indices), None  # μ, without the cost of σ
        mu, log_sigma = self.distribution(x, target_indices)  # Eq. 5
        sigma = torch.exp(log_sigma)
        z = mu
        if settings.sampling:
            epsilon = self.sample_noise(torch.randn, mu, settings)
            z = torch.addcmul(mu, epsilon, sigma)  # Eq. 6
        kl = None
        if settings.with_kl:
            divergence = self.divergence(mu, sigma, log_sigma)  # Eq. 9
            kl = mean_over_tokens(divergence, settings.token_mask)
        return z, kl

    def project(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return x_PVeRA (Eq. 7) for y = x Wᵀ + b_W, and keep L_KL."""
        target_indices, output_indices = self.matching(projections)
        if not target_indices:
            return y
        settings = self.pass_settings(projections, x.device)
        z, kl = self._sample_latent(x, target_indices, settings)
        if not recomputing():  # a repeated pass computes the KL term again, but keeps the first one
            self._kl[projections] = kl
        return self.add_latent(y, z, target_indices, output_indices)

    def divergence(self, mu: Tensor, sigma: Tensor, log_sigma: Tensor) -> Tensor:
        """Return L_KL (Eq. 9) of every token, (n, t), for tensors (n, t, p, r)."""
        # ½ Σ (μ² + σ² − 1 − log σ²), of which the last term is 2 log σ
        squares = (mu**2).sum((2, 3)) + (sigma**2 - 1).sum((2, 3))
        kl = 0.5 * squares - log_sigma.sum((2, 3))  # Σ KL(N(μ, σ²) ‖ N(0, I))
        if self.method.kl == "mean":
            return kl / (self.method.rank * len(self.method.targets))
        return 0.5 * kl

    def kl_divergence(self) -> Tensor | float:
        """Return the KL term of the last pass, a scalar.

        Raises:
            RuntimeError: The pass had no KL term, or in training none with a gradient.
        """
        terms = [kl for kl in self._kl.values() if kl is not None]
        if not terms:
            raise RuntimeError("no KL term: run a forward pass first, outside without_kl()")
        kl: Any = sum(terms)
        trains = self.training and next(self.parameters()).requires_grad and torch.is_grad_enabled()
        if trains and not kl.requires_grad:
            raise RuntimeError(
                "the KL term has no gradient: its pass ran under no_grad(), or in a re-entrant "
                "checkpoint (use_reentrant=False keeps the graph)"
            )
        return kl


def mean_over_tokens(divergence: Tensor, token_mask: Tensor | None) -> Tensor:
    """Return the mean divergence (n, t) without padding: every text has the same weight."""
    if token_mask is not None:
        weights = token_mask.shape[1] / token_mask.sum(1, keepdim=True)
        divergence = divergence * token_mask * weights
    return divergence.mean()
