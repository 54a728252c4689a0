"""The ablations of PVeRA's rank and position (Tables 2 and 3): best validation losses, compared in pairs.

All values train on the same data sets with the same seeds, so differences are taken within a data set and seed. Their
intervals are those of a mean over data sets.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd

from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.report.published import Published
from pvera.report.scores import Scores
from pvera.report.statistics import mean_and_std, t_interval
from pvera.report.tables.against_paper import counterparts
from pvera.report.tables.benchmark import about
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, plain, signed, thousands
from pvera.report.tables.names import dataset_title
from pvera.report.tables.verdicts import Statement, Untestable, judge, verdict_table

LEARNED = 0.95
#: Hyperparameter in which the members differ -> its experiment, which names the table.
EXPERIMENTS = {"rank": "rank", "targets": "position"}


@dataclass(frozen=True)
class Ablation:
    """The best validation losses of one experiment.

    losses: (values, seeds, data sets), the lowest over searched learning rates; NaN where a run is missing or diverged.
    parameters: trained numbers of the adapters, per value.
    """

    hyperparameter: str
    values: tuple
    losses: np.ndarray
    parameters: tuple[int, ...]
    seeds: tuple[int, ...]
    datasets: tuple[str, ...]

    @classmethod
    def of(cls, runs: Sequence[dict], hyperparameter: str) -> "Ablation":
        """Collect the records of one experiment. InputError where the hyperparameter is not in their grid."""
        members = [member for run in runs for member in run["members"]]
        if any(hyperparameter not in member["grid"] for member in members):
            raise InputError(f"these runs are no ablation of {hyperparameter!r}: it is not in their grid")
        sizes = {member["grid"][hyperparameter]: member["adapter_parameters"] for member in members}

        def loss_of(value):
            def loss(run: dict) -> float:
                losses = [m["best_validation_loss"] for m in run["members"] if m["grid"][hyperparameter] == value]
                return min((loss for loss in losses if loss is not None), default=np.nan)

            return Scores.of(runs, loss)

        scores = [loss_of(value) for value in sizes]
        losses = np.stack([one.values[0] for one in scores])
        return cls(hyperparameter, tuple(sizes), losses, tuple(sizes.values()), scores[0].seeds, scores[0].datasets)

    @property
    def complete(self) -> np.ndarray:
        """(seeds, data sets): whether every value has a loss. Means use these pairs alone."""
        return ~np.isnan(self.losses).any(0)

    def by_seed(self) -> np.ndarray:
        """Return means over data sets, (values, seeds)."""
        return mean_and_std(np.where(self.complete, self.losses, np.nan), axis=2)[0]

    def mean(self) -> np.ndarray:
        """Return means over data sets and seeds, (values,)."""
        return mean_and_std(self.by_seed(), axis=1)[0]

    def above(self, reference) -> np.ndarray:
        """Return differences from the value `reference`, (values, data sets), means over seeds; NaN without it."""
        means = mean_and_std(np.where(self.complete, self.losses, np.nan), axis=1)[0]
        return means - (means[self.values.index(reference)] if reference in self.values else np.nan)

    def failed(self) -> np.ndarray:
        """Mark trainings that learned nothing, (values, seeds, data sets): their best loss is above `LEARNED` of log C,
        that of equal scores for all C classes."""
        equal = [np.log(TASKS[name].classes) if name in TASKS else np.inf for name in self.datasets]
        return self.losses > LEARNED * np.array(equal)

    def lowest(self) -> np.ndarray:
        """Count the pairs of data set and seed on which each value has the lowest loss, (values,)."""
        return np.bincount(self.losses[:, self.complete].argmin(0), minlength=len(self.values))


def published(paper: Published, hyperparameter: str) -> pd.DataFrame:
    """Return Table 2 or 3 of the paper: columns loss and parameters, rows values."""
    return getattr(paper, EXPERIMENTS[hyperparameter]).set_index(hyperparameter)


def references(ours: Ablation, theirs: pd.DataFrame) -> tuple:
    """Return the value of `ours` in the place of the paper's best, None where it has none, and the paper's best."""
    best = theirs["loss"].idxmin()
    pairs = counterparts(ours.values, list(theirs.index))
    return next((value for value, published_value in pairs.items() if published_value == best), None), best


def title(hyperparameter: str, value) -> str:
    """Return the name of a value: "r = 256", "QV"."""
    return str(value).upper() if hyperparameter == "targets" else f"r = {value}"


def interval(gaps: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the 95 % t-interval over data sets of differences (values, data sets); NaN where all are zero or too
    few."""
    low, high = np.full((2, len(gaps)), np.nan)
    for i, values in enumerate(gaps):
        values = values[~np.isnan(values)]
        if values.any() and len(values) > 1:
            low[i], high[i] = t_interval(values)
    return low, high


def ablation(runs: Sequence[dict], hyperparameter: str, paper: Published) -> Table:
    """Build Table 2 or 3 here and in the paper, with intervals over data sets of the differences between values."""
    ours, theirs = Ablation.of(runs, hyperparameter), published(paper, hyperparameter)
    pairs = counterparts(ours.values, list(theirs.index))
    base, best = references(ours, theirs)
    gaps = ours.above(base)
    gap = mean_and_std(gaps, axis=1)[0]
    low, high = interval(gaps)
    paired = theirs.reindex([pairs.get(value) for value in ours.values])
    data = pd.DataFrame(
        {
            hyperparameter: ours.values,
            "published_value": paired.index.to_numpy(),
            "loss": ours.mean(),
            "loss_paper": paired["loss"].to_numpy(),
            "std_over_seeds": mean_and_std(ours.by_seed(), axis=1)[1],
            "above_reference": gap,
            "low": low,
            "high": high,
            "above_reference_paper": paired["loss"].to_numpy() - theirs["loss"].min(),
            "lowest": ours.lowest(),
            "failed": ours.failed().sum((1, 2)),
            "parameters": ours.parameters,
            "parameters_paper": paired["parameters"].to_numpy(),
        }
    )
    here, there = (title(hyperparameter, value) for value in (base, best))
    means = ours.mean()
    marks = ["best" if value == np.nanmin(means) else "" for value in means]
    intervals = [
        NOTHING if np.isnan(a) else f"{signed(a, 3)} to {signed(b, 3)}" for a, b in zip(low, high, strict=True)
    ]
    lines = [
        ("Loss, here", [plain(v, 3) for v in means], False),
        ("Loss, paper", [plain(v, 3) for v in data["loss_paper"]], False),
        ("Loss, difference", [signed(v, 3) for v in means - data["loss_paper"]], False),
        (f"Above {here}, here", [signed(v, 3) for v in gap], True),
        (f"Above {there}, paper", [signed(v, 3) for v in data["above_reference_paper"]], False),
        ("Difference of these", [signed(v, 3) for v in gap - data["above_reference_paper"]], False),
        (f"95 % interval above {here}, here", intervals, False),
        ("Standard deviation over seeds, here", [plain(v, 3) for v in data["std_over_seeds"]], True),
        (f"Lowest of {ours.complete.sum()}, here", [str(n) for n in data["lowest"]], False),
        (f"Learned nothing of {ours.complete.size}, here", [str(n) for n in data["failed"]], False),
        ("Trained numbers, here", [thousands(n) for n in data["parameters"]], True),
        ("Trained numbers, paper", [thousands(n) for n in data["parameters_paper"]], False),
    ]
    rows = [
        Row(label, tuple(Cell(t, m if label == "Loss, here" else "") for t, m in zip(texts, marks, strict=True)), rule)
        for label, texts, rule in lines
    ]
    header = [title(hyperparameter, value) for value in ours.values]
    scaled = any(pairs.get(value, value) != value for value in ours.values)
    if scaled:
        header = [f"{one} ({pairs[value]})" for one, value in zip(header, ours.values, strict=True)]
    caption = (
        f"Best validation loss of PVeRA (nats), mean over {_count(ours.datasets, 'data set')} and "
        f"{_count(ours.seeds, 'seed')}. Bold: lowest. Differences are taken within data set and seed; their interval "
        f"is a t-interval over data sets. Learned nothing: trainings whose best loss is above {100 * LEARNED:.0f} % of "
        "that of equal scores for all classes."
    )
    if not ours.complete.all():
        caption += f" Of {ours.complete.size} pairs of data set and seed, {ours.complete.sum()} have every value."
    if scaled:
        caption += " Brackets: the paper's value at the same place of its grid."
    same = runs[0]["backbone"] == "dinov2_b" and set(ours.datasets) == set(paper.ablation_datasets())
    reasons = [] if same else ["on other data and another backbone"]
    if not runs[0]["config"]["protocol"]["softmax_in_loss"]:
        reasons.append("with a cross entropy that takes the softmax twice")
    if reasons:
        caption += (
            f" The paper's losses come from training {' and '.join(reasons)}: compare only differences between values."
        )
    name = EXPERIMENTS[hyperparameter]
    return Table(name, caption, about(runs), (Panel("", tuple(header), tuple(rows)),), data)


def statements(hyperparameter: str, paper: Published, values: Sequence = ()) -> list[Statement]:
    """Return the paper's claims about Table 2 or 3, judged on an `Ablation`; values: those of the runs."""
    theirs = published(paper, hyperparameter)["loss"]
    pairs = {value: here for here, value in counterparts(values, list(theirs.index)).items()}
    best = theirs.idxmin()
    compared = [("has the lowest loss", [best], [value for value in theirs.index if value != best])]
    if hyperparameter == "rank":
        close = [int(value) for value in paper.quote("close_ranks").split(",")]
        compared.append(("lose less than", close, [v for v in theirs.index if v not in (best, *close)]))
    claims = []
    for text, better, worse in compared:
        over = f" {_named(hyperparameter, worse, pairs)}" if text.endswith("than") else ""
        claims.append(
            Statement(
                f"{_named(hyperparameter, better, pairs)} {text}{over}",
                "{name}: {size} nats higher",
                "{name}: {size} nats lower",
                partial(_gaps, better=better, worse=worse, pairs=pairs),
                digits=3,
            )
        )
    return claims


def ablation_verdicts(runs: Sequence[dict], hyperparameter: str, paper: Published) -> Table:
    """Build the verdicts on the paper's claims about Table 2 or 3."""
    ours = Ablation.of(runs, hyperparameter)
    claims = judge(ours, statements(hyperparameter, paper, ours.values))
    name = EXPERIMENTS[hyperparameter]
    return verdict_table(f"{name}_claims", f"The paper's claims about its table of {name}s.", about(runs), claims,
                         ours.seeds)  # fmt: skip


def failures(runs: Sequence[dict], hyperparameter: str) -> str:
    """Say in a sentence which values learned nothing on which data sets."""
    ours = Ablation.of(runs, hyperparameter)
    parts = []
    for value, failed in zip(ours.values, ours.failed(), strict=True):
        if names := [dataset_title(ours.datasets[d]) for d in np.flatnonzero(failed.any(0))]:
            parts.append(f"{title(hyperparameter, value)} in {failed.sum()} of {failed.size} ({', '.join(names)})")
    if not parts:
        return "Every training learned something."
    return f"Trainings that learned nothing: {'; '.join(parts)}. A comparison with these values says little."


def answer(runs: Sequence[dict], hyperparameter: str, paper: Published) -> str:
    """Say in a sentence which value has the lowest loss here and in the paper."""
    ours, theirs = Ablation.of(runs, hyperparameter), published(paper, hyperparameter)
    means, best = ours.mean(), theirs["loss"].idxmin()
    name = partial(title, hyperparameter)
    if np.isnan(means).all():
        return "No data set and seed has every value yet."
    return (
        f"The lowest mean loss here is that of {name(ours.values[np.nanargmin(means)])}, "
        f"{plain(np.nanmin(means), 3)} nats; in the paper it is that of {name(best)}."
    )


def _count(things: Sequence, name: str) -> str:
    return f"{len(things)} {name}{'s' * (len(things) != 1)}"


def _named(hyperparameter: str, values: list, pairs: dict) -> str:
    """Name the paper's values, and ours in their place where they differ."""
    text = " and ".join(title(hyperparameter, value) for value in values)
    ours = [title(hyperparameter, pairs[value]) for value in values if pairs.get(value, value) != value]
    return f"{text} (here {' and '.join(ours)})" if ours else text


def _gaps(ablation: Ablation, better: list, worse: list, pairs: dict) -> dict[str, np.ndarray]:
    """Return how far each value of `better` lies below each of `worse`, (data sets, seeds)."""
    if absent := [value for value in (*better, *worse) if value not in pairs]:
        raise Untestable(f"no counterpart of {title(ablation.hyperparameter, absent[0])} in the grid")
    losses = {value: ablation.losses[ablation.values.index(here)].T for value, here in pairs.items()}
    name = partial(title, ablation.hyperparameter)
    return {f"{name(pairs[w])} against {name(pairs[b])}": losses[w] - losses[b] for b in better for w in worse}
