"""What the JSON file of a training or an analysis holds."""

from typing import Any

from pydantic import ConfigDict, Field

from pvera.study.checked import StrictModel

SCHEMA = 3

#: The keys that name a record, in the order of the folders of its path.
IDENTITY = ("profile", "experiment", "backbone", "dataset", "method", "seed")


class MemberRecord(StrictModel):
    """One member of a training's grid. Numbers that were not finite are None."""

    #: The hyperparameters in which it differs from the other members.
    grid: dict[str, Any]
    #: "stopped early", "epoch limit" or "diverged".
    status: str
    best_validation_loss: float | None
    #: Epoch of that loss, counted from 0; -1 if the first epoch already diverged.
    best_epoch: int
    epochs: int
    adapter_parameters: int
    head_parameters: int
    #: One number per epoch, by name of `stopping.EpochNumbers`.
    curve: dict[str, list[float | None]]


class Choice(StrictModel):
    """The member that is tested."""

    #: Index of the tested member.
    member: int
    #: Its best epoch, counted from 0.
    epoch: int
    #: The member's point of the grid: the values that it was trained with, by hyperparameter.
    grid: dict[str, Any]


class Record(StrictModel):
    """The record of a job. That of an analysis has no members, choice and test.

    Keys that it does not know, as older records have, are kept.
    """

    model_config = ConfigDict(extra="allow")

    schema_version: int = Field(alias="schema")
    profile: str
    #: Folder of the experiment.
    experiment: str
    backbone: str
    dataset: str
    method: str
    seed: int
    #: One of `tasks.ALL_CATEGORIES`.
    category: str | None
    #: Name of the training's protocol.
    protocol: str | None
    #: `vtab.copy_name` of the data; None where it cannot be told.
    data_copy: str | None = None
    #: In what accepted data differ from VTAB-1k, as `vtab.find_differences` says.
    data_differs: list[str] | None = None
    #: Only for the user's own pictures: their split, the names of their classes, and a hash of all.
    own_data: dict[str, Any] | None = None
    #: Everything that influences the numbers, and nothing else.
    config: dict[str, Any]
    members: list[MemberRecord] | None = None
    #: None where every member diverged.
    chosen: Choice | None = None
    #: `metrics.evaluate` of the chosen member on the test set.
    test: dict[str, float | int | None] | None = None
    #: Versions, device, threads, and the hash of the file of weights.
    environment: dict[str, Any] = {}
    #: `results.config_hash` of `config`.
    config_hash: str
    #: Seconds that the job took, "wall_seconds"; older records have its memory too.
    cost: dict[str, Any] = {}
    #: SHA-256 of each file that was written with the record, by suffix.
    files: dict[str, str]

    @property
    def diverged(self) -> bool:
        """Whether it is a training that ended without a usable member."""
        return self.members is not None and self.chosen is None
