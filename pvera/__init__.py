"""PVeRA: probabilistic vector-based random matrix adaptation of vision transformers."""

from pvera.torchvision_repair import declare_missing

declare_missing()  # before timm, which imports torchvision

__version__ = "0.2.0"

import pvera.backbones  # noqa: F401  registers the small backbone in timm
from pvera import adapters
from pvera.adapters import *  # noqa: F403  each method, and what adds one
from pvera.checkpoint import load, save
from pvera.encoders import register_encoder
from pvera.errors import InputError
from pvera.model import AdaptedModel, adapt
from pvera.peft import export_peft, import_peft
from pvera.uncertainty import sample

__all__ = ["AdaptedModel", "InputError", "adapt", "load", "register_encoder", "sample", "save"]
__all__ += ["export_peft", "import_peft"]
__all__ += adapters.__all__
