"""An adapter with a distribution: its settings, its noise, and passes that gradient checkpointing repeats.

`torch.utils.checkpoint` calls a layer again in the backward pass, which must draw the same noise as before. Autograd
numbers operations in order: the number of the one that asks for the second call tells which pass it repeats. Inside
`torch.compile` and `torch.export` nothing is kept: the compiler repeats layers and their draws by itself.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed
from torch._C import _current_autograd_node as current_node
from torch._C._autograd import _get_sequence_nr as sequence_number
from torch.nn import functional as F

from pvera.adapters.base import Adapter, derive

KEPT = 32  # passes; more than any accumulation of gradients before one backward pass
STATE_SIZE = len(torch.Generator().get_state())  # of a CPU; other devices have smaller ones


def recomputing() -> bool:
    """Return whether a backward pass runs, so that the current forward pass repeats an earlier one."""
    return not torch.compiler.is_compiling() and current_node() is not None


class Passes:
    """The last passes through one layer, and the settings of each."""

    def __init__(self):
        self._kept: deque[tuple[int, dict]] = deque([(0, {})], maxlen=KEPT)

    def __reduce__(self):
        return Passes, ()  # a copy has had none of these passes

    def begin(self, *_) -> None:
        """Record that a pass enters the layer, as a hook of it."""
        if not torch.compiler.is_compiling() and not recomputing():
            self._kept.append((sequence_number(), {}))

    def __call__(self, key: object, now: Callable[[], Any]) -> Any:
        """Return `now()` and keep it under `key`; during a backward pass, return the repeated pass's value.

        RuntimeError where that pass lies more than `KEPT` passes back.
        """
        if torch.compiler.is_compiling():
            return now()
        if not recomputing():
            value = self._kept[-1][1][key] = now()
            return value
        asking = current_node()._sequence_nr()
        for number, kept in reversed(self._kept):
            # A re-entrant checkpoint takes its number before its layers run, any other operation afterwards.
            if number <= asking + 1 and key in kept:
                return kept[key]
        raise RuntimeError(
            f"gradient checkpointing repeats a pass that lies more than {KEPT} passes back"
        )


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

    draws_in_training: whether z is drawn in training mode.
    sampling: whether z is drawn; None: where the mode says so.
    with_kl: whether the KL term is computed; without it, a pass with z = μ needs no variance.
    tokens: (n, t) bool, False for padding; None: no token is padding.
    source: what the draws come from.
    """

    is_stochastic = True
    draws_in_training = True
    sampling: bool | None = None
    with_kl = True
    tokens: Tensor | None = None

    def __init__(self, index: int, seed: int):
        super().__init__()
        self.source = Source(derive(seed, "noise", index))

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

        def now() -> Pass:
            sampling = (
                self.training and self.draws_in_training if self.sampling is None else self.sampling
            )
            # Meta has no numbers, a compiler repeats draws by itself, and a CUDA graph cannot record the copy.
            capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
            kept = sampling and not (
                device.type == "meta" or torch.compiler.is_compiling() or capturing
            )
            state = self.source.generator(device).clone_state() if kept else None
            return Pass(sampling, self.with_kl, self.tokens, state)

        return self.passes((self, projections), now)

    def draw(self, distribution: Callable[..., Tensor], like: Tensor, now: Pass) -> Tensor:
        """Return numbers from torch.randn or torch.rand in the shape of `like` (n, t, ...), in fp32 or better; zero at
        padding."""
        dtype = torch.promote_types(like.dtype, torch.float32)
        if like.is_meta:
            return torch.empty_like(like, dtype=dtype)
        if (
            torch.compiler.is_compiling()
        ):  # a compiled pass draws from the global state, as torch's own dropout
            draws = distribution(like.shape, device=like.device, dtype=dtype)
            return (
                draws
                if now.tokens is None
                else draws * now.tokens.view(*now.tokens.shape, *[1] * (like.ndim - 2))
            )
        if recomputing():
            assert now.state is not None, "checkpointing inside a CUDA graph cannot repeat draws"
            source = now.state.clone_state()
        else:
            source = self.source.generator(like.device)
        shape = like.shape if now.tokens is None else (int(now.tokens.sum()), *like.shape[2:])
        draws = distribution(shape, generator=source, device=like.device, dtype=dtype)
        if now.tokens is None:
            return draws
        noise = torch.zeros_like(
            like, dtype=dtype
        )  # no draw for padding: its length changes no other draw
        noise[now.tokens] = draws
        return noise


class DropoutAdapter(StochasticAdapter):
    """An adapter that adds a linear function of its input, of which training drops a share `dropout`.

        x ← x ⊙ m / (1 − p),  m ~ Bernoulli(1 − p)        (Srivastava et al., JMLR 2014)

    The frozen product sees all of x. Monte Carlo dropout keeps the noise at inference (Gal and Ghahramani, ICML 2016).
    Subclasses implement add(x, y, projections): y (n, t, q, d) with the function of x (n, t, d) added at the targets in
    `projections`. Without dropout there is no distribution to sample from.
    """

    add: Callable[[Tensor, Tensor, str], Tensor]

    def __init__(self, index: int, seed: int, dropout: float):
        super().__init__(index, seed)
        self.dropout, self.is_stochastic = dropout, dropout > 0

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
