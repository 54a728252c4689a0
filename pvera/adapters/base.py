"""What all methods share.

A *method* is a frozen dataclass of hyperparameters (`PVeRA(rank=256)`). It builds one *adapter*, an
`nn.Module`, per encoder layer. An adapter implements the sites of the layer that it changes; shapes are
(batch, tokens, ...):

    project(x, y, positions)  x (n, t, d) enters the frozen query/key/value projections, y (n, t, p, d) left
                              them; `positions` names the p of them, for example "qkv". Returns the new y.
    project_positions(...)    the same for position embeddings x (1, t, d), which DeBERTa's projections read.
    hidden(h)                 h (n, t, 4d), what enters the MLP's last layer. Returns the new h.
    after_attention(y)        y (n, t, d), the attention's output before its residual. Returns the new y.
    after_mlp(y)              likewise for the MLP.
    inside_mlp(x)             x (n, t, d), the input of the LayerNorm before the MLP. Returns what is added
                              to the MLP's output, before a layer scale.
    beside_mlp(x)             the same x. Returns what is added to the layer's output, past its layer scale.

A method that can be merged implements `fold_projection` and, if it has `hidden`, `fold_hidden`.
"""

import math
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor, nn

from pvera.errors import InputError
from pvera.recompute import Passes

SITES = ("project", "hidden", "after_attention", "after_mlp", "inside_mlp", "beside_mlp")
POSITIONS = "qkv"


@dataclass(frozen=True)
class Method:
    """Base of the configuration classes, which `register` makes known.

    key: in profiles and result files.   title: in tables and figures.
    colour, marker: in figures, as Matplotlib names them; without them `plots.style` chooses.
    """

    key: ClassVar[str]
    title: ClassVar[str]
    colour: ClassVar[str | None] = None
    marker: ClassVar[str | None] = None

    def __post_init__(self):
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in ("rank", "ratio") and (not isinstance(value, int) or value < 1):
                raise InputError(f"{self.title}: {field.name} must be a positive integer, not {value!r}")
            if field.name == "alpha" and not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
                raise InputError(f"{self.title}: alpha must be a positive number, not {value!r}")
            if field.name == "targets":
                object.__setattr__(self, "targets", _targets(self.title, value))
            choices = field.metadata.get("choices")
            if choices and value not in choices:
                raise InputError(f"{self.title}: {field.name} must be one of {', '.join(choices)}, not {value!r}")

    def shared(self, dim: int, seed: int) -> nn.Module | None:
        """What all layers of one model have in common (VeRA's and PVeRA's frozen A and B)."""
        return None

    def adapter(self, layer, index: int, shared: nn.Module | None, seed: int) -> "Adapter":
        """The adapter of encoder layer `index`; `layer` is a `wiring.EncoderLayer`."""
        raise NotImplementedError

    def multiply_adds(self, shape, sampled: bool = False) -> int | None:
        """Return what one layer's adapter, unmerged, adds to the multiply-adds of one image, by its closed form.

        shape: `cost.Shape`; sampled: where a variance is computed too. None: it has no closed form, and costs are
        counted alone.
        """
        return None


class Adapter(nn.Module):
    """One method on one encoder layer.

    passes: the last passes through the layer; settings that change between passes are read through it.
    """

    foldable = True

    def __init__(self):
        super().__init__()
        self.passes = Passes()

    def project_positions(self, x: Tensor, y: Tensor, positions: str) -> Tensor:
        return self.project(x, y, positions)

    def kl_divergence(self) -> Tensor | float:
        """Contribution to the KL term (Eq. 9) of the last forward pass."""
        return 0.0


def _targets(title: str, value: str) -> str:
    unknown = [p for p in value if p not in POSITIONS] if isinstance(value, str) else [value]
    if unknown or not value or len(set(value)) != len(value):
        raise InputError(f"{title}: targets must be different letters out of q, k, v, not {value!r}")
    return "".join(sorted(value, key=POSITIONS.index))


def overlap(targets: str, positions: str) -> tuple[list[int], list[int]]:
    """Where the letters common to both stand in `targets`, and where in `positions`."""
    common = [p for p in targets if p in positions]
    return [targets.index(p) for p in common], [positions.index(p) for p in common]


def take(tensor: Tensor, dim: int, index: list[int]) -> Tensor:
    """`tensor` at `index` along `dim`; no copy in the usual case that this is all of it."""
    if len(index) == tensor.shape[dim]:
        return tensor
    return tensor.index_select(dim, torch.tensor(index, dtype=torch.long, device=tensor.device))


def products(x: Tensor, A: Tensor) -> Tensor:
    """Return x A, (n, t, ..., r), of x (n, t, d) and A (d, ..., r), in the precision of x."""
    return (x @ A.flatten(1).to(x.dtype)).unflatten(-1, A.shape[1:])


def add_products(y: Tensor, z: Tensor, M: Tensor, at: list[int]) -> Tensor:
    """Return y (n, t, q, d) with z[:, :, i] M[i] added at position at[i], of z (n, t, p, r) and M (p, r, d)."""
    parts = list(y.unbind(2))
    for i, j in enumerate(at):
        rows = parts[j].flatten(0, 1), z[:, :, i].flatten(0, 1).to(y.dtype), M[i].to(y.dtype)
        parts[j] = torch.addmm(*rows).view_as(parts[j])
    return torch.stack(parts, 2)


def scale_at(y: Tensor, scale: Tensor, at: list[int], shift: Tensor | None = None) -> Tensor:
    """Return y (n, t, q, d) with position at[i] multiplied by scale[i], plus shift[i]; both (p, d).

    A scale near one would lose its last digits in half precision, so only the result has y's precision.
    """
    parts = list(y.unbind(2))
    for i, j in enumerate(at):
        parts[j] = (parts[j] * scale[i] if shift is None else torch.addcmul(shift[i], parts[j], scale[i])).to(y.dtype)
    return torch.stack(parts, 2)


def full_precision(tensor: Tensor) -> Tensor:
    """At least fp32: exp and squares of half-precision numbers overflow or lose the small ones."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
