"""The eight methods of the paper, one per file."""

from .adaptformer import AdaptFormer
from .base import Adapter, Method
from .bottleneck import Bottleneck
from .dora import DoRA
from .ia3 import IA3
from .linear import Linear
from .lora import LoRA
from .pvera import PVeRA
from .vera import VeRA

#: Key to configuration class, in the column order of the paper's tables.
METHODS: dict[str, type[Method]] = {
    m.key: m for m in (Linear, Bottleneck, IA3, AdaptFormer, DoRA, LoRA, VeRA, PVeRA)
}

__all__ = ["METHODS", "Adapter", "Method", *(m.__name__ for m in METHODS.values())]
