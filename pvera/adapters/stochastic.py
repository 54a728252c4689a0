"""Adapters with a distribution: their noise, and the settings of a pass.

Each class below adds to the one above it:

    class              is_stochastic  adds
    Adapter            no             hook points, without noise (base.py)
    StochasticAdapter  yes            a source of noise, which is saved, and the settings of a pass
    AdditiveAdapter    with dropout   `project`: the frozen product, and `add` of an input of which
                                      dropout leaves a part. LoRA implements `add`.
    VeRAAdapter        with dropout   A, B, d and b; dropout of the latent instead, if so asked
    PVeRAAdapter       yes            μ and σ: `project` samples z, and there is no dropout
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, distributed
from torch.nn import functional as F

from pvera.adapters.base import Adapter
from pvera.adapters.passes import recomputing
from pvera.seeds import derive

STATE_SIZE = len(torch.Generator().get_state())  # of a CPU; other devices have smaller ones


class NoiseSource:
    """The random numbers of one adapter.

    Args:
        seed_or_state: A seed, or the saved state of a generator.
        on_all_ranks: All ranks of torch.distributed have the same numbers; otherwise each has its
            own.
    """

    def __init__(self, seed_or_state: int | Tensor, on_all_ranks: bool):
        self.seed_or_state = seed_or_state
        self.on_all_ranks = on_all_ranks
        self._generator: torch.Generator | None = None

    def generator(self, device: torch.device) -> torch.Generator:
        """Return the generator on `device`.

        A saved state continues exactly on the first rank, which saved it, and on the same kind of
        device. Other ranks and other kinds of device start from a seed that is derived from it.
        """
        if self._generator is None or self._generator.device != device:
            self._generator = self._new_generator(device)
        return self._generator

    def _new_generator(self, device: torch.device) -> torch.Generator:
        generator = torch.Generator(device)
        rank = 0
        if distributed.is_available() and distributed.is_initialized() and not self.on_all_ranks:
            rank = distributed.get_rank()

        seed = self.seed_or_state
        if isinstance(seed, Tensor):  # a state
            if rank == 0 and _restore_state(generator, seed):
                return generator
            seed = derive("state", seed.tolist())
        return generator.manual_seed(derive(seed, "rank", rank) if rank else seed)


def _restore_state(generator: torch.Generator, state: Tensor) -> bool:
    """Set a saved state and return True, or False if another kind of device saved it."""
    size = len(generator.get_state())
    # Saved states are padded with zeros. Without this check CUDA may take its 16 bytes of a CPU's.
    if state[size:].any():
        return False
    try:
        generator.set_state(state[:size])
    except RuntimeError:
        return False
    return True


class PassSettings(NamedTuple):
    """The settings of one pass through an adapter."""

    #: Whether noise is added.
    sampling: bool
    #: Whether the KL term is computed.
    with_kl: bool
    #: (n, t) bool, False for padding; None: no token is padding.
    token_mask: Tensor | None
    #: The state from which a repeated pass samples the same noise.
    replay_from: torch.Generator | None


class StochasticAdapter(Adapter):
    """An adapter that samples a latent z, or what dropout leaves of its input."""

    is_stochastic = True  # unless a subclass says otherwise (see the top of this file)
    #: Whether training mode samples.
    samples_in_training = True
    #: Whether to sample; None: the mode decides.
    sampling: bool | None = None
    #: Whether the KL term is computed; a pass with z = μ and without it needs no variance.
    with_kl = True
    #: (n, t) bool, False for padding; None: no token is padding.
    token_mask: Tensor | None = None

    def __init__(self, index: int, seed: int):
        super().__init__()
        self.source = NoiseSource(derive(seed, "noise", index), on_all_ranks=False)

    def _save_to_state_dict(self, destination: dict, prefix: str, keep_vars: bool) -> None:
        """Add the noise's state, which a resumed training continues; equally long everywhere."""
        # Not `get_extra_state`, which always has a key: without dropout there must be none.
        super()._save_to_state_dict(destination, prefix, keep_vars)
        device = next(self.parameters()).device
        if self.is_stochastic and device.type != "meta":
            state = self.source.generator(device).get_state()
            destination[prefix + "_extra_state"] = F.pad(state, (0, STATE_SIZE - len(state)))

    def _load_from_state_dict(self, state_dict: dict, prefix: str, *rest: Any) -> None:
        state = state_dict.pop(prefix + "_extra_state", None)
        if state is not None:
            self.source = NoiseSource(state.cpu(), on_all_ranks=False)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def pass_settings(self, projections: str, device: torch.device) -> PassSettings:
        """Return the settings of the pass, or of the pass that gradient checkpointing repeats."""
        key = (self, projections)
        return self.passes.compute_or_recall(key, lambda: self._new_settings(device))

    def _new_settings(self, device: torch.device) -> PassSettings:
        sampling = self.sampling
        if sampling is None:
            sampling = self.training and self.samples_in_training

        # Meta has no numbers, a compiler repeats noise by itself, and a CUDA graph cannot record
        # the copy of a state.
        capturing = device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        repeatable = not (device.type == "meta" or torch.compiler.is_compiling() or capturing)
        replay_from = None
        if sampling and repeatable:
            replay_from = self.source.generator(device).clone_state()
        return PassSettings(sampling, self.with_kl, self.token_mask, replay_from)

    def sample_noise(
        self, distribution: Callable[..., Tensor], like: Tensor, settings: PassSettings
    ) -> Tensor:
        """Return random numbers; those at padding, which nothing reads, are unspecified.

        Args:
            distribution: torch.randn or torch.rand.
            like: A tensor (n, t, ...) of the result's shape; its precision is at least fp32.
            settings: Those of the pass.
        """
        dtype = torch.promote_types(like.dtype, torch.float32)
        options: dict[str, Any] = {"device": like.device, "dtype": dtype}
        token_mask = settings.token_mask
        if like.is_meta or torch.compiler.is_compiling():
            # A compiled pass samples from the global state, as torch's own dropout.
            return distribution(like.shape, **options)

        options["generator"] = self._noise_generator(like.device, settings)
        if token_mask is None:
            return distribution(like.shape, **options)
        # No numbers for padding: then its length changes no other number.
        noise = torch.zeros_like(like, dtype=dtype)
        noise[token_mask] = distribution((int(token_mask.sum()), *like.shape[2:]), **options)
        return noise

    def _noise_generator(self, device: torch.device, settings: PassSettings) -> torch.Generator:
        """Return the adapter's generator, or in a repeated pass one that repeats its numbers."""
        if not recomputing():
            return self.source.generator(device)
        assert settings.replay_from is not None, "a CUDA graph cannot repeat noise"
        return settings.replay_from.clone_state()


class AdditiveAdapter(StochasticAdapter):
    """An adapter that adds a linear function of its input; training may drop a share of that.

        x ← x ⊙ m / (1 − p),  m ~ Bernoulli(1 − p)        (Srivastava et al., JMLR 2014)

    The frozen product sees all of x. Monte Carlo dropout keeps the noise at inference (Gal and
    Ghahramani, ICML 2016). Without dropout (p = 0) there is no distribution to sample from, unless
    a subclass has one of its own.
    """

    #: add(x, y, projections), of subclasses: y (n, t, q, d) with the function of x (n, t, d) added
    #: at the targets in `projections`.
    add: Callable[[Tensor, Tensor, str], Tensor]

    def __init__(self, index: int, seed: int, dropout: float):
        super().__init__(index, seed)
        self.dropout = dropout
        self.is_stochastic = dropout > 0

    def project(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return `add`, with dropout."""
        return self.add(self.drop(x, projections), y, projections)

    def project_position_embeddings(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return `project` without dropout: position embeddings belong to no sample."""
        return self.add(x, y, projections)

    def drop(self, x: Tensor, projections: str) -> Tensor:
        """Return what dropout leaves of x."""
        if not self.is_stochastic:
            return x
        settings = self.pass_settings(projections, x.device)
        if not settings.sampling:
            return x
        kept = self.sample_noise(torch.rand, x, settings) >= self.dropout
        return x * (kept.to(x.dtype) / (1 - self.dropout))


@contextmanager
def with_settings(adapters: Iterable[StochasticAdapter], **settings: Any) -> Iterator[None]:
    """Give the adapters these attributes of `StochasticAdapter` inside."""
    before = [(adapter, name, getattr(adapter, name)) for adapter in adapters for name in settings]
    try:
        for adapter, name, _ in before:
            setattr(adapter, name, settings[name])
        yield
    finally:
        for adapter, name, value in before:
            setattr(adapter, name, value)
