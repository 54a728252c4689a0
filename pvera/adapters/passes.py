"""Settings of the last passes through a layer, for gradient checkpointing, which repeats passes.

`torch.utils.checkpoint` calls a layer again in the backward pass, when the model may have other
settings: active members, padding, sampling, noise. Autograd numbers its operations in order, so the
number of the operation that asks for the second call tells which pass it repeats, the last that
began before it. If passes of one layer begin at the numbers 54 and 182:

    asked by                                      number   repeats the pass that began at
    an operation of the first pass                117      54
    one of the second                             245      182
    a re-entrant checkpoint, which is numbered
    just before the pass inside it                181      182: hence number + 1

Nothing is kept inside `torch.compile` and `torch.export`: the compiler repeats layers by itself.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

import torch

# Private names; the tests of gradient checkpointing in tests/library/test_tools.py fail without.
from torch._C import _current_autograd_node as current_node
from torch._C._autograd import _get_sequence_nr as sequence_number

KEPT = 32  # passes; more than any accumulation of gradients before one backward pass


def recomputing() -> bool:
    """Return whether a backward pass runs, so that the current forward pass repeats another."""
    return not torch.compiler.is_compiling() and current_node() is not None


class PassHistory:
    """The last passes through one layer, with the settings of each."""

    def __init__(self):
        #: Autograd's number at the start of a pass, and the pass's settings by key. The first entry
        #: serves an adapter that is called by itself, outside its layer.
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
            # + 1: a re-entrant checkpoint gets its number before the layers in it run.
            if number <= asking + 1 and key in settings:
                return settings[key]
        raise RuntimeError(
            f"gradient checkpointing repeats a pass that lies more than {KEPT} passes back"
        )
