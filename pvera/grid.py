"""The members of a grid over one backbone: which are active, and what they sample."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import cast

from torch import nn

from pvera.adapters.stochastic import StochasticAdapter, with_settings
from pvera.errors import InputError
from pvera.member import Member


class Grid(nn.Module):
    """The members of an `AdaptedModel`, and their settings; one method alone is a grid of one."""

    #: Each member has adapters and a head of its own.
    members: Sequence[Member]
    #: Indices of the members that a forward pass computes; all at first.
    active: list[int]
    #: Index of the member that the frozen weights hold; None if they hold none.
    merged_member: int | None = None
    #: Whether the adapters were removed from the backbone.
    unloaded = False
    #: Whether the last MLP computes the class token alone. On four layers this saves a sixth of all
    #: multiply-adds. Logits are equal up to rounding; the backbone's other tokens get the class
    #: token's MLP output. It has no effect if the features depend on other tokens, or while the
    #: model is merged.
    last_mlp_on_class_token = False

    def __init__(self, members: Sequence[Member]):
        super().__init__()
        points = {tuple(frozenset(a.hook_points) for a in member.layers) for member in members}
        if len(points) > 1:
            raise InputError("the members of a grid must adapt the same places of each layer")
        self.members = cast(Sequence[Member], nn.ModuleList(members))
        self.active = list(range(len(members)))

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

        Each rank of torch.distributed has noise of its own.
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
        self._require_unmerged("holds only the mean and cannot sample")
        members = [self.members[m] for m in self.active]
        for member in members:
            if not member.is_stochastic:
                raise InputError(f"{member.method.title} has no distribution to sample from")

        # The source is replaced inside, and restored afterwards.
        with with_settings(self._stochastic_layers(self.active), sampling=True, source=None):
            for member in members:
                member.seed_noise(seed)
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
        with with_settings(self._stochastic_layers(members), with_kl=False):
            yield

    def _stochastic_layers(self, members: Iterable[int]) -> list[StochasticAdapter]:
        return [adapter for m in members for adapter in self.members[m].stochastic_layers]

    def require_backbone(self) -> None:
        """Raise RuntimeError if the model was unloaded."""
        if self.unloaded:
            raise RuntimeError("this model was unloaded: adapt the backbone again")

    def _require_unmerged(self, what: str) -> None:
        if self.merged:
            raise RuntimeError(f"a merged model {what}: call unmerge_() first")
