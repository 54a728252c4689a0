"""The state of an adapter with a distribution: its settings, its noise, and its KL term."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pvera.adapters.base import Adapter
from pvera.recompute import recomputing, reentrant
from pvera.seeding import derive


class Pass(NamedTuple):
    """The settings of one pass through an adapter; `source` is the state of its random numbers, None without draws."""

    sampling: bool
    with_kl: bool
    mean_in_weights: bool
    tokens: Tensor | None
    source: torch.Generator | None


class SampledAdapter(Adapter):
    """An adapter that draws a latent z, or what dropout leaves of its input.

    samples: whether there is a distribution to draw from.
    draws_in_training: whether z is drawn in training mode.
    sampling: whether z is drawn; None: where the mode says so.
    with_kl: whether the KL term is computed; without it, a pass with z = μ needs no variance.
    mean_in_weights: whether the frozen weights hold the mean, so that the adapter adds z − μ.
    tokens: (n, t) bool, False for padding; None: no token is padding.
    """

    @property
    def samples(self) -> bool:
        return True

    def __init__(self, index: int, seed: int, draws_in_training: bool = True):
        super().__init__()
        self.draws_in_training = draws_in_training
        self.sampling: bool | None = None
        self.with_kl = True
        self.mean_in_weights = False
        self.tokens: Tensor | None = None
        self._noise_seed = derive(seed, "noise", index)
        self._generator: torch.Generator | None = None
        self._kl: dict[str, Tensor] = {}

    def __getstate__(self) -> dict:
        """Leave out the KL term: a copy has had none of the original's passes."""
        return super().__getstate__() | {"_kl": {}}

    def seed_noise(self, seed: int) -> None:
        """Let the next draws follow from `seed`."""
        self._noise_seed, self._generator = seed, None

    @contextmanager
    def noise_kept(self) -> Iterator[None]:
        """Let the draws go on afterwards as if there were none inside."""
        before = self._noise_seed, self._generator
        try:
            yield
        finally:
            self._noise_seed, self._generator = before

    def settings(self, positions: str, device: torch.device) -> Pass:
        """Return the settings of the current pass; where gradient checkpointing repeats a pass, that pass's."""
        return self.passes(positions, lambda: self._now(device))

    def _now(self, device: torch.device) -> Pass:
        sampling = self.training and self.draws_in_training if self.sampling is None else self.sampling
        source = None
        if sampling and device.type != "meta":  # the meta device has shapes without numbers
            if self._generator is None or self._generator.device != device:
                self._generator = torch.Generator(device).manual_seed(self._noise_seed)
            source = self._generator.clone_state()
        return Pass(sampling, self.with_kl, self.mean_in_weights, self.tokens, source)

    def noise(self, like: Tensor, now: Pass) -> Tensor:
        """Return ε ~ N(0, I) in the shape of `like` (n, t, p, r), in fp32 or better; zero at padding."""
        return self._drawn(torch.randn, like, now)

    def uniform(self, like: Tensor, now: Pass) -> Tensor:
        """Return numbers from uniform(0, 1) in the shape of `like` (n, t, d), in fp32 or better; zero at padding."""
        return self._drawn(torch.rand, like, now)

    def _drawn(self, draw: Callable[..., Tensor], like: Tensor, now: Pass) -> Tensor:
        dtype = torch.promote_types(like.dtype, torch.float32)
        if like.is_meta:
            return torch.empty_like(like, dtype=dtype)
        assert now.source is not None, "the pass draws no noise"
        source = now.source.clone_state() if recomputing() else self._generator
        shape = like.shape if now.tokens is None else (int(now.tokens.sum()), *like.shape[2:])
        draws = draw(shape, generator=source, device=like.device, dtype=dtype)
        if now.tokens is None:
            return draws
        noise = torch.zeros_like(like, dtype=dtype)  # no draw for padding: its length changes no other draw
        noise[now.tokens] = draws
        return noise

    def keep_kl(self, positions: str, divergence: Tensor | None, now: Pass) -> None:
        """Keep the mean of the tokens' divergences (n, t), without padding; None: the pass has no KL term.

        Every text has the same weight, whatever its length. RuntimeError where checkpointing lost the gradient.
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

    def kl_divergence(self) -> Tensor | float:
        """Return the KL term of the last pass, a scalar. RuntimeError without one."""
        if not self._kl:
            raise RuntimeError("no KL term: run a forward pass first, outside without_kl()")
        return sum(self._kl.values())


@contextmanager
def with_settings(adapters: Iterable[SampledAdapter], **settings: Any) -> Iterator[None]:
    """Give the adapters these `settings` (attributes of `SampledAdapter`), and their former ones afterwards."""
    before = [(adapter, name, getattr(adapter, name)) for adapter in adapters for name in settings]
    try:
        for adapter, name, _ in before:
            setattr(adapter, name, settings[name])
        yield
    finally:
        for adapter, name, value in before:
            setattr(adapter, name, value)
