"""What `adapt` attaches to one backbone: members, and the grid that holds them.

A *member* is a method's adapters, one for each layer of the encoder, and a head. A *grid* is
several members that train side by side over the backbone, such as the points of a hyperparameter
grid: a forward pass computes the frozen layers for all of them. One method alone is a grid of one
member.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from pvera.adapters import Adapter, Method
from pvera.adapters.base import PARALLEL
from pvera.adapters.stochastic import NoiseSource, StochasticAdapter, with_settings
from pvera.encoders import EncoderLayer
from pvera.errors import InputError
from pvera.seeds import derive, fixed_defaults, seeded_linear


class Member(nn.Module):
    """A method's adapter for each layer, and a linear head.

    Args:
        method: The method.
        layers: The encoder's layers.
        num_classes: Size of the head; 0: no head.
        seed: Seed of the frozen matrices, the initial values and the noise.
    """

    @fixed_defaults()
    def __init__(self, method: Method, layers: Sequence[EncoderLayer], num_classes: int, seed: int):
        super().__init__()
        if type(seed) is not int:
            raise InputError(f"seed must be a whole number, or one for each member, not {seed!r}")
        if type(num_classes) is not int or num_classes < 0:
            raise InputError(f"num_classes must be a whole number from 0, not {num_classes!r}")
        self.method = method
        self.seed = seed
        self.num_classes = num_classes
        self.dim = layers[0].dim

        self.shared = method.shared(self.dim, seed)
        adapters = [method.adapter(layer, i, self.shared, seed) for i, layer in enumerate(layers)]
        for layer, adapter in zip(layers, adapters, strict=True):
            if layer.mlp_norm is None and not adapter.hook_points.isdisjoint(PARALLEL):
                raise InputError(
                    f"{method.title} needs a LayerNorm before the MLP, which this encoder does not "
                    "have"
                )
        self.layers = nn.ModuleList(adapters)  # see `adapters`; a name in the keys of saved files
        self.head = (
            seeded_linear(self.dim, num_classes, seed, "head") if num_classes else nn.Identity()
        )

        # The backbone's device and precision, at least fp32.
        frozen = layers[0].qkv_linears[0][0].weight
        self.to(frozen.device, torch.promote_types(frozen.dtype, torch.float32))
        # Of the start: a user may freeze parameters later, and save them nevertheless.
        self._trainable = {name for name, p in self.named_parameters() if p.requires_grad}

    @property
    def adapters(self) -> Sequence[Adapter]:
        """The adapter of each encoder layer."""
        return cast(Sequence[Adapter], self.layers)

    def trainable_tensors(self) -> dict[str, nn.Parameter]:
        """Return the trainable tensors by name, also while they are frozen."""
        return {
            name: parameter
            for name, parameter in self.named_parameters()
            if name in self._trainable or name.startswith("head.")
        }

    def classify(self, features: Tensor) -> Tensor:
        """Return the head's logits (batch, classes) of features (batch, dim)."""
        # A head of your own may have another precision, or no parameters.
        weight = next(self.head.parameters(), features)
        return self.head(features.to(weight.dtype))

    def kl_divergence(self) -> Tensor | float:
        """Return Σ_layers L_KL (Eq. 8, without β) of the last forward pass."""
        return sum(adapter.kl_divergence() for adapter in self.adapters)

    def count(self) -> dict[str, int]:
        """Return the number of trained parameters in "adapter" and "head"."""
        total = sum(parameter.numel() for parameter in self.trainable_tensors().values())
        head = sum(parameter.numel() for parameter in self.head.parameters())
        return {"adapter": total - head, "head": head}

    @property
    def stochastic_adapters(self) -> list[Any]:
        """The adapters that have a distribution, a `StochasticAdapter` each."""
        return [adapter for adapter in self.adapters if adapter.is_stochastic]

    @property
    def is_stochastic(self) -> bool:
        """Whether every layer has a distribution."""
        return all(adapter.is_stochastic for adapter in self.adapters)

    @property
    def mergeable(self) -> bool:
        """Whether every layer can be merged."""
        return all(adapter.mergeable for adapter in self.adapters)

    def require_original_head(self) -> None:
        """Raise InputError if the head of `num_classes` was replaced: nothing could load it."""
        head = self.head
        is_original = (
            type(head) is nn.Linear
            and head.bias is not None
            and head.out_features == self.num_classes
        )
        if self.num_classes and not is_original:
            raise InputError(
                "the head was replaced; for a head of your own adapt with num_classes=0"
            )

    def seed_noise(self, seed: int, on_all_ranks: bool) -> None:
        """Let the next noise of all layers follow from `seed` and the member's own seed.

        Args:
            seed: The seed.
            on_all_ranks: See `NoiseSource`.
        """
        for index, adapter in enumerate(self.stochastic_adapters):
            key = derive(seed, "sample", self.seed, index)
            adapter.source = NoiseSource(key, on_all_ranks)


class Grid(nn.Module):
    """The members of an `AdaptedModel`, and the settings of their passes."""

    #: Each member has adapters and a head of its own.
    members: Sequence[Member]
    #: Index of the member that the frozen weights hold; None if they hold none.
    merged_member: int | None = None
    #: Whether the adapters were removed from the backbone.
    unloaded = False
    #: Whether the last MLP computes the class token alone. On four layers this saves a sixth of all
    #: multiply-adds. Logits are equal up to rounding; the backbone's other tokens get the class
    #: token's MLP output. It has no effect if the features depend on other tokens, or while the
    #: model is merged: that pass is the backbone's own.
    last_mlp_on_class_token = False

    def __init__(self, members: Sequence[Member]):
        super().__init__()
        points = {tuple(frozenset(a.hook_points) for a in member.adapters) for member in members}
        if len(points) > 1:
            raise InputError("the members of a grid must adapt the same places of each layer")
        self.members = cast(Sequence[Member], nn.ModuleList(members))
        self.active = list(range(len(members)))

    @property
    def active(self) -> list[int]:
        """Indices of the members that a forward pass computes; all at first."""
        return self._active

    @active.setter
    def active(self, indices: list[int]) -> None:
        if not set(indices).issubset(range(len(self.members))):
            raise InputError(f"active={indices} names a member that is not there")
        self._active = list(indices)

    @property
    def merged(self) -> bool:
        """Whether the frozen weights hold a member."""
        return self.merged_member is not None

    def one_active_member(self, action: str) -> Member:
        """Return the one active member, for what a single member can do.

        Args:
            action: That, in the message: "only one member can be saved".

        Raises:
            InputError: Several members are active, or none.
        """
        if len(self.active) != 1:
            raise InputError(f"only one member can be {action}: set `active` to it first")
        return self.members[self.active[0]]

    def seed_noise(self, seed: int) -> "Grid":
        """Let the training noise ε (Eq. 6), or the dropout, follow from `seed`.

        Each rank of torch.distributed has noise of its own. The first rank's equals the samples of
        `sampling` with the same number: give the two different ones for independent numbers.
        """
        for member in self.members:
            member.seed_noise(seed, on_all_ranks=False)
        return self

    @contextmanager
    def sampling(self, seed: int) -> Iterator[None]:
        """Sample z = μ + ε ⊙ σ (Eq. 6), or the dropout, in passes inside; also in evaluation.

        A pass samples one z (batch, tokens, targets, r) per layer for each active member.

        Args:
            seed: The samples follow from it, and the training noise stays undisturbed.

        Raises:
            InputError: A method has no distribution.
            RuntimeError: The model is merged or unloaded.
        """
        self.require_backbone()
        self.require_unmerged("holds only the mean and cannot sample")
        members = [self.members[m] for m in self.active]
        for member in members:
            if not member.is_stochastic:
                raise InputError(f"{member.method.title} has no distribution to sample from")

        # source=None makes with_settings restore the source, which `seed_noise` replaces inside.
        with with_settings(self.stochastic_adapters_of(self.active), sampling=True, source=None):
            for member in members:
                member.seed_noise(seed, on_all_ranks=True)
            yield

    @contextmanager
    def without_kl(self, members: Iterable[int] | None = None) -> Iterator[None]:
        """Leave out the KL term (Eq. 9) in passes inside.

        With z = μ, such a pass needs A_μ (w × r) alone, half of A.

        Args:
            members: Indices of the members without it; None: all.
        """
        if members is None:
            members = range(len(self.members))
        with with_settings(self.stochastic_adapters_of(members), with_kl=False):
            yield

    def stochastic_adapters_of(self, members: Iterable[int]) -> list[StochasticAdapter]:
        """Return the adapters with a distribution of the members with these indices."""
        return [adapter for m in members for adapter in self.members[m].stochastic_adapters]

    def require_backbone(self) -> None:
        """Raise RuntimeError if the model was unloaded."""
        if self.unloaded:
            raise RuntimeError("this model was unloaded: adapt the backbone again")

    def require_unmerged(self, what: str) -> None:
        """Raise RuntimeError if a member is merged; `what` tells the consequence."""
        if self.merged:
            raise RuntimeError(f"a merged model {what}: call unmerge_() first")
