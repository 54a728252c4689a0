"""The settings of past forward passes, for gradient checkpointing, which computes layers a second time.

`torch.utils.checkpoint` calls a layer again in the backward pass, which must draw the same noise as before. Autograd
numbers operations in order: the number of the one that asks for the second call tells which pass it repeats. Inside
`torch.compile` and `torch.export` nothing is kept: the compiler repeats layers and their draws by itself.
"""

from collections import deque
from collections.abc import Callable
from typing import TypeVar

import torch
from torch._C import _current_autograd_node as current_node
from torch._C._autograd import _get_sequence_nr as sequence_number

T = TypeVar("T")
KEPT = 32  # passes; more than any accumulation of gradients before one backward pass


class Passes:
    """The last passes through one layer, and the settings of each."""

    def __init__(self):
        self._kept: deque[tuple[int, dict]] = deque([(0, {})], maxlen=KEPT)

    def __reduce__(self):
        return Passes, ()  # a copy has had none of these passes

    def begin(self) -> None:
        """Record that a pass enters the layer."""
        if not torch.compiler.is_compiling() and not recomputing():
            self._kept.append((sequence_number(), {}))

    def __call__(self, key: str, now: Callable[[], T]) -> T:
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
        raise RuntimeError(f"gradient checkpointing repeats a pass that lies more than {KEPT} passes back")


def recomputing() -> bool:
    """Return whether a backward pass runs, so that the current forward pass repeats an earlier one."""
    return not torch.compiler.is_compiling() and current_node() is not None
