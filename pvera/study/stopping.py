"""When the members of a grid end, and which one is chosen (Section 4.2).

Early stopping on the validation loss with patience and relative tolerance: of each member by itself
(`EarlyStopping`), or of all together, as in the official code (`JointStop`).
"""

from dataclasses import dataclass, field
from math import inf, isfinite

from torch import Tensor

from pvera.model import AdaptedModel
from pvera.study.profiles import Schedule
from pvera.study.protocol import Protocol

#: Numbers of an epoch: "train_loss", "kl", "validation_loss" and "validation_accuracy", each a list
#: over the active members; None for the KL term of a member whose β is zero.
EpochNumbers = dict[str, list]

#: What becomes of a member.
RUNNING, STOPPED, LIMIT, DIVERGED = "running", "stopped early", "epoch limit", "diverged"


@dataclass
class History:
    """The training of one member."""

    #: One number per epoch, by name of `EpochNumbers`.
    curve: dict[str, list[float | None]] = field(default_factory=dict)
    #: Validation loss and epoch of the last improvement by more than the tolerance.
    best_loss: float = inf
    best_epoch: int = -1
    #: The trained tensors at `best_epoch`.
    best_state: dict[str, Tensor] = field(default_factory=dict)
    #: With `JointStop`: the last epoch in which this member led its grid.
    led: int = -1
    status: str = RUNNING

    @property
    def epochs(self) -> int:
        """The number of epochs that were computed."""
        return len(self.curve["validation_loss"])


class EarlyStopping:
    """Patience on the validation loss, of each member by itself (Section 4.2)."""

    def __init__(self, members: int, schedule: Schedule):
        self.histories = [History() for _ in range(members)]
        self.patience = schedule.patience
        self.tolerance = schedule.tolerance

    def update(self, epoch: int, model: AdaptedModel, numbers: EpochNumbers) -> None:
        """Add an epoch to the histories of the active members, and keep the best tensors."""
        for index, m in enumerate(model.active):
            history = self.histories[m]
            for name, values in numbers.items():
                history.curve.setdefault(name, []).append(values[index])

            loss = numbers["validation_loss"][index]
            member_numbers = [values[index] for values in numbers.values()]
            if not all(isfinite(number) for number in member_numbers if number is not None):
                history.status = DIVERGED
            elif self.improves(loss, history.best_loss):
                history.best_loss = loss
                history.best_epoch = epoch
                tensors = model.members[m].trainable_tensors().items()
                history.best_state = {name: tensor.detach().clone() for name, tensor in tensors}
            elif epoch - history.best_epoch >= self.patience:
                history.status = STOPPED

    def improves(self, loss: float, best: float) -> bool:
        """Return whether a loss lies below the best by more than the relative tolerance."""
        return loss < best * (1 - self.tolerance)

    def running(self) -> list[int]:
        """Return the members that train on."""
        return [m for m, history in enumerate(self.histories) if history.status == RUNNING]

    def mark_limit(self) -> None:
        """Note which members the largest number of epochs has ended."""
        for m in self.running():
            self.histories[m].status = LIMIT


class JointStop(EarlyStopping):
    """Members end together, once patience has run out for all of them.

    Until then each may improve. A member leads its grid in an epoch that takes the grid's lowest
    loss down by more than the tolerance.
    """

    lowest = inf

    def update(self, epoch: int, model: AdaptedModel, numbers: EpochNumbers) -> None:
        """Add an epoch, note the leader, and let members go on while one has patience left."""
        super().update(epoch, model, numbers)
        leader = min(self.histories, key=lambda history: history.best_loss)
        if self.improves(leader.best_loss, self.lowest):
            self.lowest = leader.best_loss
            leader.led = epoch
        # Above, each member's own patience may have stopped it. That counts once it has for all.
        if self.running():
            for history in self.histories:
                if history.status == STOPPED:
                    history.status = RUNNING


def choose(histories: list[History], protocol: Protocol) -> int | None:
    """Choose the member with the lowest best validation loss.

    With `joint_stop` it is the one that led last: in the official code the lowest loss of a grid,
    and what is kept, change only when the loss improves by more than the tolerance.

    Returns:
        Its index; None where all diverged before their first epoch ended.
    """
    indices = range(len(histories))
    if protocol.joint_stop:
        best = max(indices, key=lambda m: histories[m].led)
    else:
        best = min(indices, key=lambda m: histories[m].best_loss)
    return best if histories[best].best_state else None
