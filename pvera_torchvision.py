"""Repair of `import torchvision` for a CPU-only torch beside the CUDA build of torchvision from the package index.

There torchvision's operator library does not load. `import torchvision`, and so `import timm`, then stops with
"operator torchvision::nms does not exist", because it attaches fake kernels to two operators that do not exist. To
declare their schemas first is enough: this project never calls them.

`declare_missing` is an entry point of the group "torch.backends". torch calls it at the end of its own import, so no
order of imports matters. `import pvera` calls it too, for a copy that is not installed. The package itself can be
imported only once torch is complete, so this is a module of its own.
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
    """Declare the operators if torchvision is there and its own do not load.

    Raises nothing: an error here would be one of `import torch`, and torchvision reports its own.
    """
    try:
        if _missing():
            _declare()
    except Exception:
        pass


def _missing() -> bool:
    """Return whether `import torchvision` would find no operators. Only on Linux is a CUDA build the default."""
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
        torch.ops.load_library(extension.origin)  # as torchvision does; to load it twice is harmless
    except OSError:
        return True
    return False


def _declare() -> None:
    global _library
    from torch.library import Library

    _library = Library("torchvision", "DEF")
    for schema in SCHEMAS:
        _library.define(schema)
