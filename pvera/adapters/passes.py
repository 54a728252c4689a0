"""Settings of the last passes through a layer, for gradient checkpointing, which repeats passes.

`torch.utils.checkpoint` calls a layer again in the backward pass, when the model may have other
settings: active members, padding, sampling, noise. Autograd numbers its operations in order, so the
number of the operation that asks for the second call tells which pass it repeats. Nothing is kept
inside `torch.compile` and `torch.export`: the compiler repeats layers by itself.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch._C import _current_autograd_node as current_node
from torch._C._autograd import _get_sequence_nr as sequence_number

KEPT = 32  # passes; more than any accumulation of gradients before one backward pass


def recomputing() -> bool:
    """Return whether a backward pass runs, so that the current forward pass repeats another."""
    return not torch.compiler.is_compiling() and current_node() is not None


class PassHistory:
    """The last passes through one layer, with the settings of each."""

    def __init__(self):
        #: Autograd's number at the start of a pass, and the pass's settings by key.
        self._kept: deque[tuple[int, dict]] = deque([(0, {})], maxlen=KEPT)

    def __reduce__(self):
        return PassHistory, ()  # a copy has had none of these passes

    def begin(self, *_) -> None:
        """Start a pass; a hook of the layer."""
        if not torch.compiler.is_compiling() and not recomputing():
            self._kept.append((sequence_number(), {}))

    def compute_or_recall(self, key: object, compute: Callable[[], Any]) -> Any:
        """Return `compute()` and keep it; in a repeated pass, return what the first one kept.

        Raises:
            RuntimeError: The first pass lies more than `KEPT` passes back.
        """
        if torch.compiler.is_compiling():
            return compute()
        if not recomputing():
            value = compute()
            self._kept[-1][1][key] = value
            return value

        asking = current_node()._sequence_nr()
        for number, settings in reversed(self._kept):
            # A re-entrant checkpoint has its number before its layers run; other operations after.
            if number <= asking + 1 and key in settings:
                return settings[key]
        raise RuntimeError(
            f"gradient checkpointing repeats a pass that lies more than {KEPT} passes back"
        )
