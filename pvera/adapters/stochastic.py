"""The state of an adapter with a distribution: its settings, its noise, and its KL term."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed
from torch.nn import functional as F

from pvera.adapters.base import Adapter
from pvera.recompute import recomputing
from pvera.seeding import derive

STATE_SIZE = len(torch.Generator().get_state())  # of a CPU; other devices have smaller ones


class Source:
    """The random numbers of one adapter.

    start: a seed, or the state of a generator that saved it.
    on_all_ranks: whether all ranks of torch.distributed draw alike; otherwise each has draws of its own.
    """

    def __init__(self, start: int | Tensor, on_all_ranks: bool = False):
        self.start, self.on_all_ranks = start, on_all_ranks
        self._generator: torch.Generator | None = None

    def generator(self, device: torch.device) -> torch.Generator:
        """Return the generator on `device`, which the first call starts or lets go on.

        It goes on exactly with a state of this kind of device. Other ranks than the first, which saved that state, and
        other kinds of device start anew from it.
        """
        if self._generator is not None and self._generator.device == device:
            return self._generator
        self._generator = generator = torch.Generator(device)
        start, rank = self.start, 0
        if distributed.is_available() and distributed.is_initialized() and not self.on_all_ranks:
            rank = distributed.get_rank()
        if isinstance(start, Tensor):
            with suppress(RuntimeError):
                generator.set_state(start[: generator.get_state().numel()])
                if rank == 0:
                    return generator
            start = derive("state", start.tolist())
        return generator.manual_seed(derive(start, "rank", rank) if rank else start)


class Pass(NamedTuple):
    """The settings of one pass through an adapter; `state` is that of its random numbers, None without draws."""

    sampling: bool
    with_kl: bool
    tokens: Tensor | None
    state: torch.Generator | None


class StochasticAdapter(Adapter):
    """An adapter that draws a latent z, or what dropout leaves of its input.

    is_stochastic: whether there is a distribution to draw from.
    draws_in_training: whether z is drawn in training mode.
    sampling: whether z is drawn; None: where the mode says so.
    with_kl: whether the KL term is computed; without it, a pass with z = μ needs no variance.
    tokens: (n, t) bool, False for padding; None: no token is padding.
    source: what the draws come from.
    """

    @property
    def is_stochastic(self) -> bool:
        return True

    def __init__(self, index: int, seed: int, draws_in_training: bool = True):
        super().__init__()
        self.draws_in_training = draws_in_training
        self.sampling: bool | None = None
        self.with_kl = True
        self.tokens: Tensor | None = None
        self.source = Source(derive(seed, "noise", index))
        self._kl: dict[str, Tensor | None] = {}

    def __getstate__(self) -> dict:
        """Leave out the KL term: a copy has had none of the original's passes."""
        return super().__getstate__() | {"_kl": {}}

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        """Add the state of the noise, so that a resumed training draws on; (5056) bytes on every kind of device."""
        super()._save_to_state_dict(destination, prefix, keep_vars)
        device = next(self.parameters()).device
        if self.is_stochastic and device.type != "meta":
            state = self.source.generator(device).get_state()
            destination[prefix + "_extra_state"] = F.pad(state, (0, STATE_SIZE - len(state)))

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *rest: Any) -> None:
        state = state_dict.pop(prefix + "_extra_state", None)
        if state is not None:
            self.source = Source(state.cpu())
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def settings(self, projections: str, device: torch.device) -> Pass:
        """Return the settings of the current pass; where gradient checkpointing repeats a pass, that pass's."""
        return self.passes(projections, lambda: self._now(device))

    def _now(self, device: torch.device) -> Pass:
        sampling = self.training and self.draws_in_training if self.sampling is None else self.sampling
        state = None
        if sampling and device.type != "meta" and not torch.compiler.is_compiling():  # meta: shapes without numbers
            state = self.source.generator(device).clone_state()
        return Pass(sampling, self.with_kl, self.tokens, state)

    def draw(self, distribution: Callable[..., Tensor], like: Tensor, now: Pass) -> Tensor:
        """Return numbers from torch.randn or torch.rand in the shape of `like` (n, t, ...), in fp32 or better; zero at
        padding."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        if like.is_meta:
            return torch.empty_like(like, dtype=dtype)
        if torch.compiler.is_compiling():  # a compiled pass draws from the global state, as torch's own dropout
            draws = distribution(like.shape, device=like.device, dtype=dtype)
            return draws if now.tokens is None else draws * now.tokens.view(*now.tokens.shape, *[1] * (like.ndim - 2))
        assert now.state is not None, "the pass draws no noise"
        source = now.state.clone_state() if recomputing() else self.source.generator(like.device)
        shape = like.shape if now.tokens is None else (int(now.tokens.sum()), *like.shape[2:])
        draws = distribution(shape, generator=source, device=like.device, dtype=dtype)
        if now.tokens is None:
            return draws
        noise = torch.zeros_like(like, dtype=dtype)  # no draw for padding: its length changes no other draw
        noise[now.tokens] = draws
        return noise

    def keep_kl(self, projections: str, divergence: Tensor | None, now: Pass) -> None:
        """Keep the mean of the tokens' divergences (n, t), without padding; None: the pass has no KL term.

        Every text has the same weight, whatever its length.
        """
        if divergence is not None and now.tokens is not None:
            divergence = divergence * now.tokens * (now.tokens.shape[1] / now.tokens.sum(1, keepdim=True))
        mean = None if divergence is None else divergence.mean()
        if not recomputing():  # the repeated pass saves the same tensors, and its mean is kept already
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


class DropoutAdapter(StochasticAdapter):
    """An adapter that adds a linear function of its input, of which training drops a share `dropout`.

        x ← x ⊙ m / (1 − p),  m ~ Bernoulli(1 − p)        (Srivastava et al., JMLR 2014)

    The frozen product sees all of x. Monte Carlo dropout keeps the noise at inference (Gal and Ghahramani, ICML 2016).
    Subclasses implement `add`. Without dropout there is no distribution to sample from.
    """

    def __init__(self, index: int, seed: int, dropout: float):
        super().__init__(index, seed)
        self.dropout = dropout

    @property
    def is_stochastic(self) -> bool:
        return self.dropout > 0

    def add(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return y (n, t, q, d) with the adapter's function of x (n, t, d) added at its targets in `projections`."""
        raise NotImplementedError

    def project(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        return self.add(self.drop(x, projections), y, projections)

    def project_position_embeddings(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return `project` without dropout: position embeddings belong to no sample."""
        return self.add(x, y, projections)

    def drop(self, x: Tensor, projections: str) -> Tensor:
        """Return what dropout leaves of x."""
        if not self.is_stochastic or not (now := self.settings(projections, x.device)).sampling:
            return x
        kept = (self.draw(torch.rand, x, now) >= self.dropout).to(x.dtype) / (1 - self.dropout)
        return x * kept

    def kl_divergence(self) -> float:
        """Return zero: dropout has no KL term."""
        return 0.0


@contextmanager
def with_settings(adapters: Iterable[StochasticAdapter], **settings: Any) -> Iterator[None]:
    """Give the adapters these `settings` (attributes of `StochasticAdapter`), and their former ones afterwards."""
    before = [(adapter, name, getattr(adapter, name)) for adapter in adapters for name in settings]
    try:
        for adapter, name, _ in before:
            setattr(adapter, name, settings[name])
        yield
    finally:
        for adapter, name, value in before:
            setattr(adapter, name, value)
