"""What an adapter with a distribution keeps between passes: its noise, its settings, and its KL term."""

from typing import NamedTuple

import torch
from torch import Tensor

from pvera.adapters.base import Adapter
from pvera.recompute import recomputing, reentrant
from pvera.seeding import derive


class Pass(NamedTuple):
    """The settings of one pass through an adapter, and where its random numbers begin (None: it draws none)."""

    sampling: bool
    with_kl: bool
    mean_in_weights: bool
    tokens: Tensor | None
    source: torch.Generator | None


class SampledAdapter(Adapter):
    """An adapter that draws a latent.

    sampling: None samples in training and takes the mean in evaluation.
    with_kl: False spares a pass with the mean the variance, which only the KL term needs.
    mean_in_weights: True where the frozen weights hold the mean, and the adapter adds what is drawn around it.
    tokens: (n, t) bool, False for padding; None: no token is padding.
    """

    def __init__(self, index: int, seed: int):
        super().__init__()
        self.sampling: bool | None = None
        self.with_kl = True
        self.mean_in_weights = False
        self.tokens: Tensor | None = None
        self._noise_seed = derive(seed, "noise", index)
        self._generator: torch.Generator | None = None
        self._kl: dict[str, Tensor] = {}

    def __getstate__(self) -> dict:
        """Leave out the KL term: a copy has not had the passes of the original."""
        return super().__getstate__() | {"_kl": {}}

    def seed_noise(self, seed: int) -> None:
        """Let the next draws follow from `seed`."""
        self._noise_seed, self._generator = seed, None

    def settings(self, positions: str, device: torch.device) -> Pass:
        """Return the settings of the pass that begins, or of the one that gradient checkpointing repeats."""
        return self.passes(positions, lambda: self._now(device))

    def _now(self, device: torch.device) -> Pass:
        sampling = self.training if self.sampling is None else self.sampling
        source = None
        if sampling and device.type != "meta":  # which has shapes without numbers
            if self._generator is None or self._generator.device != device:
                self._generator = torch.Generator(device).manual_seed(self._noise_seed)
            source = self._generator.clone_state()
        return Pass(sampling, self.with_kl, self.mean_in_weights, self.tokens, source)

    def noise(self, like: Tensor, now: Pass) -> Tensor:
        """Return ε ~ N(0, I) of the shape of `like` (n, t, p, r), at least in fp32."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        if like.is_meta:
            return torch.empty_like(like, dtype=dtype)
        source = now.source.clone_state() if recomputing() else self._generator
        shape = like.shape if now.tokens is None else (int(now.tokens.sum()), *like.shape[2:])
        draws = torch.randn(shape, generator=source, device=like.device, dtype=dtype)
        if now.tokens is None:
            return draws
        noise = torch.zeros_like(like, dtype=dtype)  # padding draws nothing: its length changes no other draw
        noise[now.tokens] = draws
        return noise

    def keep_kl(self, positions: str, divergence: Tensor | None, now: Pass) -> None:
        """Keep the mean over tokens of their divergences (n, t), padding apart; None where there is no KL term.

        A text counts as much as any other, however long it is. RuntimeError where checkpointing lost the gradient.
        """
        if divergence is not None and now.tokens is not None:
            divergence = divergence * now.tokens * (now.tokens.shape[1] / now.tokens.sum(1, keepdim=True))
        mean = None if divergence is None else divergence.mean()
        if recomputing():
            if mean is not None and reentrant():
                raise RuntimeError(
                    "re-entrant gradient checkpointing loses the KL term's gradient: use "
                    "use_reentrant=False, or without_kl()"
                )
        elif mean is None:
            self._kl.pop(positions, None)
        else:
            self._kl[positions] = mean

    def kl_divergence(self) -> Tensor:
        """Return the KL term of the last pass, a scalar. RuntimeError without one."""
        if not self._kl:
            raise RuntimeError("no KL term: run a forward pass first, outside without_kl()")
        return sum(self._kl.values())
