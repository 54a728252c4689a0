"""Lets a CPU-only torch live beside the CUDA build of torchvision that the package index serves.

There torchvision's operator library does not load, and `import torchvision` (so `import timm`) stops with
"operator torchvision::nms does not exist", because it attaches fake kernels to two operators without asking
whether they exist. Declaring their schemas first is enough: nothing here ever calls them.

An entry point of the group "torch.backends", which torch calls at the end of its own import, so no order of
imports matters; `import pvera` calls it as well, for where the package is not installed. A module of its own:
importing the package needs a torch that is complete.
"""

import importlib.machinery
import importlib.util
import sys

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_library = None  # the declarations live as long as this object


def declare_missing() -> None:
    """Declare the operators if torchvision is there and its own do not load. Whatever fails in here is left to
    torchvision to say: an error would be one of `import torch`."""
    try:
        if _missing():
            _declare()
    except Exception:
        pass


def _missing() -> bool:
    """Whether `import torchvision` would find no operators. Only on Linux is a CUDA build the default."""
    import torch

    if torch.version.cuda is not None or sys.platform != "linux" or "torchvision.extension" in sys.modules:
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


def _declare() -> None:
    global _library
    from torch.library import Library

    _library = Library("torchvision", "DEF")
    for schema in SCHEMAS:
        _library.define(schema)
