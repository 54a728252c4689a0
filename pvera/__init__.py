"""PVeRA: probabilistic vector-based random matrix adaptation of vision transformers."""

from pvera.torchvision_repair import declare_missing

declare_missing()  # before timm, which imports torchvision

__version__ = "0.2.0"

import pvera.backbones  # noqa: F401  registers the small backbone in timm
from pvera.adapters import (
    IA3,
    METHODS,
    PAPER_METHODS,
    Adapter,
    AdaptFormer,
    Bottleneck,
    DoRA,
    Linear,
    LoRA,
    Method,
    PVeRA,
    VeRA,
    register,
)
from pvera.checkpoint import load, save
from pvera.encoders import register_encoder
from pvera.errors import InputError
from pvera.model import AdaptedModel, adapt
from pvera.peft import export_peft, import_peft
from pvera.uncertainty import sample

__all__ = ["METHODS", "AdaptedModel", "InputError", "adapt", "load", "register_encoder", "sample", "save"]
__all__ += ["export_peft", "import_peft"]
__all__ += ["PAPER_METHODS", "Adapter", "Method", "register"]
__all__ += ["IA3", "AdaptFormer", "Bottleneck", "DoRA", "Linear", "LoRA", "PVeRA", "VeRA"]
