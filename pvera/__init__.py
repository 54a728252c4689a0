"""PVeRA: probabilistic vector-based random matrix adaptation of vision transformers."""

from . import _torchvision as _torchvision  # before timm, which imports torchvision

__version__ = "0.1.0"

from .adapters import (  # noqa: E402
    METHODS,
    PAPER_METHODS,
    IA3,
    AdaptFormer,
    Adapter,
    Bottleneck,
    DoRA,
    Linear,
    LoRA,
    Method,
    PVeRA,
    VeRA,
    register,
)
from .checkpoint import load, save  # noqa: E402
from .errors import InputError  # noqa: E402
from .model import AdaptedModel, adapt  # noqa: E402
from .uncertainty import sample  # noqa: E402

__all__ = ["adapt", "sample", "save", "load", "AdaptedModel", "InputError", "METHODS"]
__all__ += ["PAPER_METHODS", "Adapter", "Method", "register"]
__all__ += ["Linear", "Bottleneck", "IA3", "AdaptFormer", "DoRA", "LoRA", "VeRA", "PVeRA"]
