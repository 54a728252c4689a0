"""A described profile and its runs."""

from pathlib import Path

from pvera.errors import InputError
from pvera.study.description import Description
from pvera.study.experiments import EXPERIMENTS, trainings
from pvera.study.runs import Run
from pvera.study.validation import choose, validated


@validated
class Profile(Description):
    """A described profile, with the runs that it lists per experiment."""

    @property
    def experiments(self) -> tuple[str, ...]:
        """The experiments that train, in the order in which they must."""
        return trainings(self.text)

    def runs(self, experiment: str, results_root: str | Path) -> list[Run]:
        """List the runs of one of `experiments.EXPERIMENTS`, from the profile alone (`plan`)."""
        choose("experiment", experiment, EXPERIMENTS)
        entry = EXPERIMENTS[experiment]
        if entry.text != self.text:
            kinds = {True: "texts", False: "images"}
            raise InputError(f"{experiment} reads {kinds[entry.text]}, this profile describes {kinds[self.text]}")
        return entry.runs(self, results_root)
