"""Linear probing (Section 4.1): the backbone stays as it is, and only the head is trained."""

from dataclasses import dataclass
from typing import Any, ClassVar

from pvera.adapters.base import Adapter, Method
from pvera.encoders import EncoderLayer


@dataclass(frozen=True)
class Linear(Method):
    """Linear probing, which has no hyperparameter; the paper searches the learning rate."""

    key: ClassVar[str] = "linear"
    title: ClassVar[str] = "Linear"
    colour: ClassVar[str] = "#8C8C8C"
    marker: ClassVar[str] = "s"

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> Adapter:
        """Return an adapter that changes nothing."""
        return Adapter()
