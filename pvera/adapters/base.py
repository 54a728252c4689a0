"""The interface of all methods, and the products that they share.

A *method* is a frozen dataclass of hyperparameters (`PVeRA(rank=256)`). It builds one *adapter*, an `nn.Module`, per
encoder layer. An adapter implements the sites of the layer that it changes:

    project(x, y, projections)   x (n, t, d) enters a frozen linear layer, y (n, t, p, d) leaves it: the p of queries,
                                 keys and values that `projections` names, for example "qkv". Returns the new y.
    project_position_embeddings  The same for position embeddings x (1, t, d), which DeBERTa projects as well.
    hidden(h)                    h (n, t, 4d) enters the MLP's last layer. Returns the new h.
    after_attention(y)           y (n, t, d) leaves the attention, before its residual connection. Returns the new y.
    after_mlp(y)                 The same for the MLP.
    parallel(x, y)               x (n, t, d) enters the LayerNorm before the MLP, y leaves the layer. Returns the new y,
                                 with a branch parallel to LayerNorm, MLP and layer scale.
    parallel_scaled(x, y)        The same x; y leaves the MLP: a layer scale, where there is one, scales the branch too.

An adapter that can be merged implements `merge_projection` and, if it has `hidden`, `merge_hidden`; another one sets
`mergeable = False`. Letters in shapes: n samples, t tokens, d the width, p projections, r the rank.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pvera.encoders import EncoderLayer
from pvera.errors import InputError

SITES = ("project", "hidden", "after_attention", "after_mlp", "parallel", "parallel_scaled")


@dataclass(frozen=True)
class Method:
    """Base of the configuration classes; `register` adds one to `METHODS`.

    key: name in profiles and result files.   title: name in tables and figures.
    colour, marker: Matplotlib's names, for figures; by default those of no method of the paper.
    Hyperparameters are fields. Those with a rule, such as `rank: int = positive_int(256)`, are checked.
    """

    key: ClassVar[str]
    title: ClassVar[str]
    colour: ClassVar[str] = "#882255"
    marker: ClassVar[str] = "p"

    def __post_init__(self):
        for option in fields(self):
            if "rule" in option.metadata:
                value, (must, holds, form) = getattr(self, option.name), option.metadata["rule"]
                if not holds(value):
                    raise InputError(f"{self.title}: {option.name} must be {must}, not {value!r}")
                object.__setattr__(self, option.name, form(value))

    def shared(self, dim: int, seed: int) -> nn.Module | None:
        """Return the module that all layers of one model share (VeRA's and PVeRA's frozen A and B), or None."""
        return None

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "Adapter":
        """Return the adapter of `layer`, the encoder's layer `index`; `shared` is what `self.shared` returned."""
        raise NotImplementedError


def option(
    default: Any,
    must: str,
    holds: Callable[[Any], bool],
    form: Callable[[Any], Any] = lambda value: value,
) -> Any:
    """Return a dataclass's field with a default and the rule that `Method` checks.

    must: the rule in words.   holds: whether a value keeps it.   form: the one form of equal values.
    """
    return field(default=default, metadata={"rule": (must, holds, form)})


def positive_int(default: int) -> Any:
    return option(default, "a positive integer", lambda value: type(value) is int and value > 0)


def positive(default: float | None) -> Any:
    if default is None:
        return option(
            None, "a positive number or None", lambda value: value is None or is_positive(value)
        )
    return option(default, "a positive number", is_positive)


def share(default: float) -> Any:
    return option(
        default,
        "a number from 0 and below 1",
        lambda value: value == 0 or is_positive(value) and value < 1,
    )


def positions(default: str) -> Any:
    return option(
        default,
        "different letters out of q, k, v",
        lambda value: isinstance(value, str) and 0 < len(value) == len(set(value) & set("qkv")),
        lambda value: "".join(sorted(value, key="qkv".index)),
    )


def one_of(*choices: str) -> Any:
    """Return a field whose default is the first of `choices`."""
    return option(choices[0], f"one of {', '.join(choices)}", lambda value: value in choices)


def is_positive(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value) and value > 0


class Adapter(nn.Module):
    """One method on one encoder layer; see the top of this file for what it implements.

    mergeable: whether the adapter can be merged into the frozen weights.
    is_stochastic: whether there is a distribution to draw from.
    vectors: names of trained tensors that are vectors of each position, and so not decayed by timm's optimizers.
    targets: the positions that the adapter changes, letters of "qkv", where it adapts projections.
    passes: the last passes through the layer (`stochastic.Passes`), which the model sets.
    """

    mergeable = True
    is_stochastic = False
    vectors: tuple[str, ...] = ()
    targets: str
    passes: Any
    # The sites, none of which this class itself has, and the merge.
    project: Callable[[Tensor, Tensor, str], Tensor]
    merge_projection: Callable[[Tensor, Tensor, str], tuple[Tensor, Tensor]]
    merge_hidden: Callable[[Tensor], Tensor]

    @property
    def sites(self) -> set[str]:
        """The sites that the adapter implements."""
        return {site for site in SITES if hasattr(self, site)}

    def matching(self, projections: str) -> tuple[list[int], list[int]]:
        """Return the indices of the common letters in targets and projections: ([0, 1], [0, 2]) of "qv" and "qkv"."""
        common = [p for p in self.targets if p in projections]
        return [self.targets.index(p) for p in common], [projections.index(p) for p in common]

    def project_position_embeddings(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        return self.project(x, y, projections)

    def kl_divergence(self) -> Tensor | float:
        """Return the layer's KL term (Eq. 9) of the last forward pass."""
        return 0.0


def select(tensor: Tensor, dim: int, index: list[int]) -> Tensor:
    """Return `tensor` at `index` along `dim`, without a copy where that is all of it, or one place."""
    if len(index) == tensor.shape[dim]:
        return tensor
    if len(index) == 1:
        return tensor.narrow(dim, index[0], 1)
    return tensor.index_select(dim, torch.tensor(index, dtype=torch.long, device=tensor.device))


def products(x: Tensor, A: Tensor) -> Tensor:
    """Return x A (n, t, ..., r) for x (n, t, d) and A (d, ..., r), in the precision of x."""
    return (x @ A.flatten(1).to(x.dtype)).unflatten(-1, A.shape[1:])


def change_at(y: Tensor, at: list[int], change: Callable[[int, Tensor], Tensor]) -> Tensor:
    """Return y (n, t, q, d) with change(i, its part) at position at[i]; a part is (n, t, d).

    Only the result has y's precision: a scale near one would lose its last digits in half precision.
    """
    parts = list(y.unbind(2))
    for i, j in enumerate(at):
        parts[j] = change(i, parts[j]).to(y.dtype)
    return torch.stack(parts, 2) if len(parts) > 1 else parts[0].unsqueeze(2)


def add_products(y: Tensor, z: Tensor, M: Tensor, at: list[int], scale: float = 1.0) -> Tensor:
    """Return y (n, t, q, d) with scale z[:, :, i] M[i] added at position at[i]; z is (n, t, p, r), M is (p, r, d)."""

    def add(i: int, part: Tensor) -> Tensor:
        rows = part.flatten(0, 1), z[:, :, i].flatten(0, 1).to(y.dtype), M[i].to(y.dtype)
        return torch.addmm(*rows, alpha=scale).view_as(part)

    return change_at(y, at, add)


def full_precision(tensor: Tensor) -> Tensor:
    """Return `tensor` in fp32 or better: in half precision exp and squares overflow or underflow."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def require_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    """Raise InputError where a tensor holds NaN or an infinite number.

    Args:
        tensors: Tensors by name. Those on the meta device hold no numbers, and pass.
        what: How the message begins: the call or the file that the tensors belong to.

    Raises:
        InputError: It names the first such tensor.
    """
    for name, tensor in tensors.items():
        if not tensor.is_meta and not tensor.isfinite().all():
            advice = "if its training diverged, train again with a smaller learning rate"
            raise InputError(f"{what}: {name} holds NaN or infinite numbers; {advice}")


def linear(inputs: int, outputs: int, *key) -> nn.Linear:
    """Return a linear layer with PyTorch's default initialisation, drawn from `key` instead of the global state."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    source, bound = generator(*key), 1 / math.sqrt(inputs)
    nn.init.uniform_(layer.weight, -bound, bound, generator=source)
    nn.init.uniform_(layer.bias, -bound, bound, generator=source)
    return layer


# Random numbers without global state: every draw has a key of its own


def derive(*key: object) -> int:
    """Return a 63-bit seed from any printable key, for example `derive(0, "noise", layer)`."""
    digest = hashlib.sha256("/".join(map(str, key)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1


def generator(*key: object) -> torch.Generator:
    """Return a new generator of the CPU for `key`. The same key gives the same numbers."""
    return torch.Generator().manual_seed(derive(*key))


@contextmanager
def fixed_defaults() -> Iterator[None]:
    """Make tensors inside in fp32 on the CPU: a seed then draws the same numbers in any process."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"):
            yield
    finally:
        torch.set_default_dtype(dtype)
