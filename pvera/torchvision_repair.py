"""Repair of `import torchvision` for a CPU-only torch beside the CUDA build of torchvision from the package index.

There torchvision's operator library does not load. `import torchvision`, and so `import timm`, then stops with
"operator torchvision::nms does not exist", because it attaches fake kernels to two operators that do not exist. To
declare their schemas first is enough: this project never calls them. So `import pvera` comes before `import timm`.
"""

import importlib.machinery
import importlib.util
import sys

import torch
from torch.library import Library

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_library = Library("torchvision", "FRAGMENT")  # the declarations live as long as this object


def declare_missing() -> None:
    """Declare the operators if torchvision is there and its own do not load."""
    if torch.version.cuda is None and sys.platform == "linux" and "torchvision.extension" not in sys.modules:
        package = importlib.util.find_spec("torchvision")
        if package is not None and not hasattr(torch.ops.torchvision, "nms") and not _loads(package):
            for schema in SCHEMAS:
                _library.define(schema)


def _loads(package: importlib.machinery.ModuleSpec) -> bool:
    """Return whether torchvision's operators load. Only on Linux is a CUDA build the default."""
    extension = importlib.machinery.PathFinder.find_spec("_C", package.submodule_search_locations)
    try:
        torch.ops.load_library(extension.origin if extension else "")  # as torchvision does; twice is harmless
    except OSError:  # there is no such library, or it needs CUDA's
        return False
    return True
