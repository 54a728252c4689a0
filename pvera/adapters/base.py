"""The interface of all methods, and the products that they share.

A *method* is a frozen dataclass of hyperparameters (`PVeRA(rank=256)`). It builds one *adapter*, an
`nn.Module`, per encoder layer. An adapter implements the *hook points* of the layer that it
changes:

    project(x, y, projections)   x (n, t, d) enters a frozen linear layer, y (n, t, q, d) leaves it:
                                 the q of queries, keys and values that `projections` names, such as
                                 "qkv". Returns the new y.
    hidden(h)                    h (n, t, 4d) enters the MLP's last layer. Returns the new h.
    after_attention(y)           y (n, t, d) leaves the attention, before its residual connection.
                                 Returns the new y.
    after_mlp(y)                 The same for the MLP.
    parallel(x, y)               x (n, t, d) enters the LayerNorm before the MLP, y leaves the
                                 layer. Returns the new y, with a branch parallel to LayerNorm, MLP
                                 and layer scale.
    parallel_scaled(x, y)        The same x; y leaves the MLP: a layer scale scales the branch too.

DeBERTa projects position embeddings x (1, t, d) as well: `project_position_embeddings` is `project`
for them, unless an adapter overrides it. Two hook points can be merged into frozen weights:

    merge_projection(weight, bias, projections)
                                 weight (q, d_out, d_in) and bias (q, d_out) are copies of those of
                                 a frozen linear layer. Returns both, with `project` merged.
    merge_hidden(weight)         weight (d, 4d) of the MLP's last layer. Returns a new one, with
                                 `hidden` merged.

Letters in shapes: n samples, t tokens, d the width (w in VeRA and PVeRA, whose d is a vector), q
projections of one linear layer, p targets among them, r the rank.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from pvera.adapters.passes import PassHistory
from pvera.encoders import EncoderLayer
from pvera.errors import InputError

HOOK_POINTS = (
    "project",
    "hidden",
    "after_attention",
    "after_mlp",
    "parallel",
    "parallel_scaled",
)
#: Hook points of a branch that starts at the LayerNorm before the MLP.
PARALLEL = ("parallel", "parallel_scaled")
#: What merges a hook point into the frozen weights.
MERGES = {"project": "merge_projection", "hidden": "merge_hidden"}


# Methods


@dataclass(frozen=True)
class Method:
    """Base of the configuration classes; `register` adds one to `METHODS`.

    Hyperparameters are fields. Those with a rule (hyperparameters.py), such as
    `rank: int = positive_int(256)`, are checked.
    """

    #: Name in profiles and result files.
    key: ClassVar[str]
    #: Name in tables and figures.
    title: ClassVar[str]
    #: Matplotlib's colour; by default that of no method of the paper.
    colour: ClassVar[str] = "#882255"
    #: Matplotlib's marker; by default that of no method of the paper.
    marker: ClassVar[str] = "p"

    def __post_init__(self):
        for hyperparameter in fields(self):
            if "rule" not in hyperparameter.metadata:
                continue
            name = hyperparameter.name
            value = getattr(self, name)
            must, is_valid = hyperparameter.metadata["rule"]
            if not is_valid(value):
                raise InputError(f"{self.title}: {name} must be {must}, not {value!r}")

    def shared(self, dim: int, seed: int) -> nn.Module | None:
        """Return the module that all layers of one model share, such as PVeRA's A and B, or None.

        Args:
            dim: Width d of the layers.
            seed: Seed of its numbers.
        """
        return None

    def adapter(self, layer: EncoderLayer, index: int, shared: Any, seed: int) -> "Adapter":
        """Return the adapter of one layer.

        Args:
            layer: The encoder's layer.
            index: Its number.
            shared: What `self.shared` returned.
            seed: Seed of the initial values and the noise.
        """
        raise NotImplementedError


# Adapters


class Adapter(nn.Module):
    """One method on one encoder layer; the top of this file says what it implements."""

    #: Whether there is a distribution to sample from.
    is_stochastic = False
    #: Names of trained tensors that hold vectors: timm's optimizers do not decay them.
    vectors: tuple[str, ...] = ()
    #: The target projections, letters of "qkv", of an adapter that has `project`.
    targets: str
    #: The last passes through the layer, which the model sets.
    passes: PassHistory
    #: A hook point of subclasses, typed because it is called by name below; others are found by
    #: HOOK_POINTS.
    project: Callable[[Tensor, Tensor, str], Tensor]

    @property
    def hook_points(self) -> set[str]:
        """The hook points that the adapter implements."""
        return {point for point in HOOK_POINTS if hasattr(self, point)}

    @property
    def mergeable(self) -> bool:
        """Whether the frozen weights can hold all that the adapter does."""
        return all(point in MERGES and hasattr(self, MERGES[point]) for point in self.hook_points)

    def matching(self, projections: str) -> tuple[list[int], list[int]]:
        """Return where the common letters stand in the targets, and in `projections`.

        For targets "qv" and projections "qkv", they are [0, 1] and [0, 2].
        """
        common = [letter for letter in self.targets if letter in projections]
        target_indices = [self.targets.index(letter) for letter in common]
        output_indices = [projections.index(letter) for letter in common]
        return target_indices, output_indices

    def project_position_embeddings(self, x: Tensor, y: Tensor, projections: str) -> Tensor:
        """Return `project` of position embeddings, which no part of the batch owns."""
        return self.project(x, y, projections)

    def kl_divergence(self) -> Tensor | float:
        """Return the layer's KL term (Eq. 9) of the last forward pass."""
        return 0.0


# Products


def select(tensor: Tensor, dim: int, index: list[int]) -> Tensor:
    """Return `tensor` at `index` along `dim`, without a copy for one index or all of them."""
    if index == list(range(tensor.shape[dim])):
        return tensor
    if len(index) == 1:
        return tensor.narrow(dim, index[0], 1)
    return tensor.index_select(dim, torch.tensor(index, dtype=torch.long, device=tensor.device))


def matmul(x: Tensor, A: Tensor) -> Tensor:
    """Return x A (n, t, ..., r) for x (n, t, d) and A (d, ..., r), in the precision of x."""
    # One product for all projections is faster than one for each.
    return (x @ A.flatten(1).to(x.dtype)).unflatten(-1, A.shape[1:])


def change_at(
    y: Tensor, output_indices: list[int], change: Callable[[int, Tensor], Tensor]
) -> Tensor:
    """Change some of the projections in y.

    Args:
        y: (n, t, q, d), the q projections of one linear layer.
        output_indices: Indices of the changed ones.
        change: change(i, y_i) returns the new value (n, t, d) of projection output_indices[i]. It
            may have a higher precision: a scale near one would lose its last digits in half
            precision.

    Returns:
        The new y, in its precision.
    """
    outputs = list(y.unbind(2))  # q of (n, t, d)
    for i, j in enumerate(output_indices):
        outputs[j] = change(i, outputs[j]).to(y.dtype)
    return torch.stack(outputs, 2) if len(outputs) > 1 else outputs[0].unsqueeze(2)


def add_matmul(
    y: Tensor, z: Tensor, M: Tensor, output_indices: list[int], scale: float = 1.0
) -> Tensor:
    """Return y (n, t, q, d) with scale · z M added.

    Args:
        y: (n, t, q, d), the q projections of one linear layer.
        z: (n, t, p, r), of the p targets among them.
        M: (p, r, d).
        output_indices: Their indices in y.
        scale: A factor.
    """

    def add(i: int, y_i: Tensor) -> Tensor:
        rows = y_i.flatten(0, 1)  # (n · t, d)
        latent = z[:, :, i].flatten(0, 1).to(y.dtype)  # (n · t, r)
        return torch.addmm(rows, latent, M[i].to(y.dtype), alpha=scale).view_as(y_i)

    return change_at(y, output_indices, add)


def full_precision(tensor: Tensor) -> Tensor:
    """Return `tensor` in fp32 or better: in half precision exp and squares overflow."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def require_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    """Raise InputError if a tensor holds NaN or an infinite number.

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
