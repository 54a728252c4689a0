"""PVeRA: probabilistic vector-based random matrix adaptation of vision transformers."""

from . import _torchvision as _torchvision  # before timm, which imports torchvision

__version__ = "0.1.0"
