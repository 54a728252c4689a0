"""Repair of `import torchvision` for a CPU-only torch with a torchvision built for CUDA.

There torchvision's operator library does not load. `import torchvision`, and so `import timm`, then
stops with "operator torchvision::nms does not exist", because it attaches fake kernels to two
operators that do not exist. To declare their schemas is enough: this project never calls them. So
`import pvera` comes before `import timm`.
"""

import importlib
from contextlib import suppress

from torch.library import Library

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_library = Library("torchvision", "FRAGMENT")  # the declarations live as long as this object


def declare_missing() -> None:
    """Declare the operators if torchvision is there and its own do not load."""
    try:
        with suppress(ModuleNotFoundError):
            importlib.import_module("torchvision")
    except RuntimeError:
        for schema in SCHEMAS:
            _library.define(schema)
