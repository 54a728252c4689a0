"""Lets a CPU-only torch live beside the CUDA build of torchvision that the package index serves.

There torchvision's operator library does not load, and `import torchvision` (so `import timm`) stops with
"operator torchvision::nms does not exist", because it attaches fake kernels to two operators without asking
whether they exist. Declaring their schemas first is enough: nothing here ever calls them. Where the operators
load, or torchvision is absent or already imported, nothing is declared.
"""

import importlib.machinery
import importlib.util
import sys

import torch

_SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)


def _operators_missing() -> bool:
    """Whether `import torchvision` would find no operators. Only on Linux is a CUDA build the default."""
    if torch.version.cuda is not None or sys.platform != "linux" or "torchvision" in sys.modules:
        return False
    package = importlib.util.find_spec("torchvision")
    if package is None or hasattr(torch.ops.torchvision, "nms"):
        return False
    extension = importlib.machinery.PathFinder.find_spec("_C", package.submodule_search_locations)
    if extension is None:
        return True
    try:
        torch.ops.load_library(extension.origin)  # what torchvision does itself; loading it twice is harmless
    except OSError:
        return True
    return False


_library = None  # the declarations live as long as this object
if _operators_missing():
    _library = torch.library.Library("torchvision", "DEF")
    for _schema in _SCHEMAS:
        _library.define(_schema)
