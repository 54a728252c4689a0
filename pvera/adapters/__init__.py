"""The eight methods of the paper, one per file, and those that a user adds."""

from pvera.adapters.adaptformer import AdaptFormer
from pvera.adapters.base import Adapter, Method
from pvera.adapters.bottleneck import Bottleneck
from pvera.adapters.dora import DoRA
from pvera.adapters.ia3 import IA3
from pvera.adapters.linear import Linear
from pvera.adapters.lora import LoRA
from pvera.adapters.pvera import PVeRA
from pvera.adapters.vera import VeRA
from pvera.errors import InputError

#: Configuration classes by key: the paper's, then others in the order of their registration.
METHODS: dict[str, type[Method]] = {}


def register(cls: type[Method]) -> type[Method]:
    """Make a method known by its key to profiles, saved adapters, tables and figures.

        @pvera.register
        @dataclass(frozen=True)
        class Bias(pvera.Method):
            key: ClassVar[str] = "bias"          # in profiles and result files
            title: ClassVar[str] = "Bias"        # in tables and figures
            scale: float = 1.0                   # hyperparameters, if it has any

            def adapter(self, layer, index, shared, seed):
                return BiasAdapter(layer.dim)    # a pvera.Adapter, see pvera/adapters/base.py

    Import the module before its key is used; scripts and notebooks know it if
    pvera/adapters/__init__.py imports it at its end.

    Args:
        cls: The method's class. `colour` and `marker` are optional (see `Method`).

    Returns:
        `cls`.

    Raises:
        InputError: The key is another method's.
    """
    known = METHODS.setdefault(cls.key, cls)
    if (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
        raise InputError(
            f"{cls.__name__}: the key {cls.key!r} is that of {known.__name__}; choose another"
        )
    METHODS[cls.key] = cls  # also a class that a notebook has defined again
    return cls


#: Keys in the column order of the paper's tables.
PAPER_METHODS = tuple(
    register(cls).key for cls in (Linear, Bottleneck, IA3, AdaptFormer, DoRA, LoRA, VeRA, PVeRA)
)

__all__ = ["METHODS", "PAPER_METHODS", "Adapter", "Method", "register"]
__all__ += ["IA3", "AdaptFormer", "Bottleneck", "DoRA", "Linear", "LoRA", "PVeRA", "VeRA"]
