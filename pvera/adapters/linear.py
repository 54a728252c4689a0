"""Linear probing: the backbone stays as it is, only the head is trained (Section 4.1)."""

from dataclasses import dataclass
from typing import ClassVar

from pvera.adapters.base import Adapter, Method


@dataclass(frozen=True)
class Linear(Method):
    """Linear probing has no hyperparameter; the learning rate is what the paper searches."""

    key: ClassVar[str] = "linear"
    title: ClassVar[str] = "Linear"
    colour: ClassVar[str] = "#8C8C8C"
    marker: ClassVar[str] = "s"

    def adapter(self, layer, index, shared, seed) -> Adapter:
        return Adapter()

    def multiply_adds(self, shape, sampled=False) -> int:
        return 0
