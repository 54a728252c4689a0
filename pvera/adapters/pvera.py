"""PVeRA: Probabilistic Vector-based Random matrix Adaptation (Section 3.2).

    μ, log σ² = x A ⊙ d                                    (Eq. 5)
    z = ε ⊙ σ + μ,  ε ~ N(0, I)                            (Eq. 6)
    x_PVeRA = (x Wᵀ + b_W) + α (z B ⊙ b)                   (Eq. 7)
    L_KL, layer = ½ Σ_{q,v} KL(N(μ, σ²) ‖ N(0, I))         (Eq. 9)
    W ← W + α (A_μ diag(d_μ) B diag(b))ᵀ                   (Eq. 10, the merge)

A (d × 2r) and B (r × d) are random, frozen and shared by all layers, one pair per position; only d (2r) and
b (d) are trained. The paper calls the second half of x A ⊙ d the standard deviation; the published program,
PEFT and this file take it as log σ², which is what leaves σ positive.
"""

from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from ..recompute import recomputing, reentrant
from ..seeding import derive
from .base import Adapter, Method, full_precision, overlap, take
from .fused import add_products, draw
from .vera import draw_frozen, draw_scale


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
    rank: int = 256
    alpha: float = 16.0
    targets: str = "qv"
    init: str = field(default="normal", metadata={"choices": ("normal", "uniform")})
    kl: str = field(default="sum", metadata={"choices": ("sum", "mean")})

    def shared(self, dim: int, seed: int) -> "Frozen":
        return Frozen(self, dim, seed)

    def adapter(self, layer, index, shared, seed) -> "PVeRAAdapter":
        return PVeRAAdapter(self, layer.dim, shared, index, seed)


class Frozen(nn.Module):
    """A (d, 2, p, r) and B (p, r, d) of the p targets: the first half of A's second axis gives μ."""

    def __init__(self, method: PVeRA, dim: int, seed: int):
        super().__init__()
        pairs = [draw_frozen(method.init, dim, 2 * method.rank, method.rank, seed, p) for p in method.targets]
        self.register_buffer("A", torch.stack([A.view(dim, 2, method.rank) for A, _ in pairs], 2))
        self.register_buffer("B", torch.stack([B for _, B in pairs]))


class Pass(NamedTuple):
    """What one pass through an adapter is computed with.

    sampling: z is drawn.   with_kl: the KL term is computed.   around_mean: see `mean_in_weights`.
    tokens: see there.   source: where the pass's random numbers begin; None where it draws none.
    """

    sampling: bool
    with_kl: bool
    around_mean: bool
    tokens: Tensor | None
    source: torch.Generator | None


class PVeRAAdapter(Adapter):
    def __init__(self, method: PVeRA, dim: int, shared: Frozen, index: int, seed: int):
        super().__init__()
        self.method, self.shared = method, shared
        self.d = nn.Parameter(draw_scale((2, len(method.targets), method.rank), seed, index))
        self.b = nn.Parameter(torch.zeros(len(method.targets), dim))
        self.sampling: bool | None = None  # None: sample in training, take the mean in evaluation
        self.with_kl = True  # False spares a mean pass the half of A that only the KL term needs
        self.mean_in_weights = False  # True: the frozen weights hold it, the adapter draws what is around it
        self.tokens: Tensor | None = None  # (n, t) bool: which tokens of the pass are no padding; None: all
        self._noise_seed = derive(seed, "noise", index)
        self._generator: torch.Generator | None = None
        self._kl: dict[str, Tensor] = {}

    def __getstate__(self) -> dict:
        """A copy has not had the passes of the original."""
        return super().__getstate__() | {"_kl": {}}

    def project(self, x: Tensor, y: Tensor, positions: str) -> Tensor:
        mine, theirs = overlap(self.method.targets, positions)
        if not mine:
            return y
        now = self.passes(positions, lambda: self._pass(x.device))
        divergences = None
        if now.around_mean:
            log_var = self._products(x, self.shared.A[:, 1], mine) * full_precision(take(self.d[1], 0, mine))
            z = log_var.mul_(0.5).exp_().mul_(self._noise(log_var, now))
        elif now.sampling:
            h = self._products(x, self.shared.A, mine)
            z, divergences = draw(h, take(self.d, 1, mine), self._noise(h[:, :, 0], now))
        elif now.with_kl:
            z, log_var = self.distribution(x, mine)
            divergences = 0.5 * (z.square() + log_var.exp() - log_var - 1).sum((2, 3))
        else:
            z = self.latent(x, mine)
        self._note_kl(positions, divergences if now.with_kl else None, now.tokens)
        return self._add(y, z, mine, theirs)

    def _pass(self, device: torch.device) -> "Pass":
        """What the pass that begins now is computed with."""
        sampling = self.training if self.sampling is None else self.sampling
        source = None
        if (sampling or self.mean_in_weights) and device.type != "meta":  # which has shapes without numbers
            if self._generator is None or self._generator.device != device:
                self._generator = torch.Generator(device).manual_seed(self._noise_seed)
            source = self._generator.clone_state()
        return Pass(sampling, self.with_kl, self.mean_in_weights, self.tokens, source)

    def _note_kl(self, positions: str, divergences: Tensor | None, tokens: Tensor | None) -> None:
        """Keep the KL term of a pass. RuntimeError where checkpointing has lost its gradient."""
        term = None if divergences is None else self._term(divergences, tokens)
        if recomputing():
            if term is not None and reentrant():
                raise RuntimeError("re-entrant gradient checkpointing loses the KL term's gradient: use "
                                   "use_reentrant=False, or without_kl()")
        elif term is None:
            self._kl.pop(positions, None)
        else:
            self._kl[positions] = term

    def project_positions(self, x: Tensor, y: Tensor, positions: str) -> Tensor:
        """They take the mean: no sample's tokens, they have neither noise nor a part in the KL term."""
        mine, theirs = overlap(self.method.targets, positions)
        return self._add(y, self.latent(x, mine), mine, theirs) if mine and not self.mean_in_weights else y

    def distribution(self, x: Tensor, index: list[int]) -> tuple[Tensor, Tensor]:
        """μ and log σ², each (n, t, p, r), of x (n, t, d) for the targets at `index` (Eq. 5).

        In fp32 σ = exp(½ log σ²) is finite up to log σ² = 177 and σ² in the KL term up to 88; beyond, the
        loss is infinite and the run is recorded as diverged.
        """
        h, d = self._products(x, self.shared.A, index), take(self.d, 1, index)
        mu, log_var = (h * full_precision(d)).unbind(2)
        return mu, log_var

    def latent(self, x: Tensor, index: list[int]) -> Tensor:
        """μ alone, (n, t, p, r), likewise: the counterpart of VeRA's x A ⊙ d."""
        return self._products(x, self.shared.A[:, 0], index) * take(self.d[0], 0, index)

    def _add(self, y: Tensor, z: Tensor, mine: list[int], theirs: list[int]) -> Tensor:
        """y with the update of the latents z (Eq. 7)."""
        B, b = take(self.shared.B, 0, mine), take(self.b, 0, mine)
        return add_products(y, z, B * (self.method.alpha * b).unsqueeze(1), theirs)

    @staticmethod
    def _products(x: Tensor, A: Tensor, index: list[int]) -> Tensor:
        """x A, (n, t, ..., p, r)."""
        A = take(A, -2, index)
        return (x @ A.flatten(1).to(x.dtype)).unflatten(-1, A.shape[1:])

    def _term(self, divergences: Tensor, tokens: Tensor | None) -> Tensor:
        """The KL term of the tokens' divergences (n, t)."""
        if tokens is not None:  # the mean over each text's own tokens, however long the others are
            weights = tokens * (tokens.shape[1] / tokens.sum(1, keepdim=True))
            divergences = divergences * weights
        if self.method.kl == "mean":
            return divergences.mean() / (self.method.rank * len(self.method.targets))
        return 0.5 * divergences.mean()

    def kl_divergence(self) -> Tensor | float:
        """Eq. 9, averaged over samples and tokens, padding apart (the paper leaves that open). RuntimeError
        without a pass."""
        if not self._kl:
            raise RuntimeError("no KL term: run a forward pass first, outside without_kl()")
        return sum(self._kl.values())

    def seed_noise(self, seed: int) -> None:
        """The next draws follow from `seed`."""
        self._noise_seed, self._generator = seed, None

    def _noise(self, like: Tensor, now: "Pass") -> Tensor:
        """ε of the shape of `like` (n, t, p, r), at least in fp32."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        if like.is_meta:
            return torch.empty_like(like, dtype=dtype)
        source = now.source.clone_state() if recomputing() else self._generator
        tokens = now.tokens
        shape = like.shape if tokens is None else (int(tokens.sum()), *like.shape[2:])
        draws = torch.randn(shape, generator=source, device=like.device, dtype=dtype)
        if tokens is None:
            return draws
        noise = torch.zeros_like(like, dtype=dtype)  # padding draws nothing: its length changes no other draw
        noise[tokens] = draws
        return noise

    def fold_projection(self, weight: Tensor, bias: Tensor, positions: str) -> tuple[Tensor, Tensor]:
        mine, theirs = overlap(self.method.targets, positions)
        A, B = self.shared.A[:, 0, mine], self.shared.B[mine]
        delta = torch.einsum("dpr,pr,pre,pe->ped", A, self.d[0, mine], B, self.b[mine])
        weight[theirs] += self.method.alpha * delta.to(weight.dtype)
        return weight, bias
