"""The ablations of PVeRA's rank and position (Tables 2 and 3): best validation losses, compared in pairs.

All values train on the same data sets with the same seeds, so differences are taken within a data set and seed. Their
intervals are those of a mean over data sets.
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from pvera.data.tasks import TASKS
from pvera.report.scores import score_frame
from pvera.report.settings import ResultFiles, Setting
from pvera.report.statistics import over_datasets
from pvera.report.table import Table, interval, texts, thousands
from pvera.report.tables.benchmark import describe_runs
from pvera.report.tables.verdicts import PairedDifferences, Untestable, contrast
from pvera.study import results

LEARNED = 0.95
#: Hyperparameter -> the values of the paper's table.
PAPER = {"rank": [64, 128, 256, 512], "targets": ["q", "k", "v", "qk", "qv", "qkv"]}


#: Hyperparameter -> the experiment that varies it.
EXPERIMENTS = {"rank": "rank", "targets": "position"}


def read(files: ResultFiles, hyperparameter: str) -> dict[Setting, list[dict]]:
    """Read the trainings of all values of a hyperparameter, by setting."""
    parts = {}
    name = EXPERIMENTS[hyperparameter]
    for profile in files.profiles:
        if name in profile.experiments:
            folders = profile.experiments[name].folders(name)
            parts |= files.by_setting(
                profile, results.load_runs(files.root, profile.name, *folders)
            )
    return parts


def value_of(run: dict, hyperparameter: str):
    """Return a hyperparameter of a run's method, which all members share."""
    return run["config"]["members"][0]["method"][hyperparameter]


def losses(runs: Sequence[dict], hyperparameter: str) -> pd.DataFrame:
    """Return the best validation losses of one experiment: rows (category, dataset, seed), columns values.

    The lowest over searched learning rates; NaN where a run is missing or diverged.
    """

    def lowest(run: dict) -> float:
        return pd.Series(
            [member["best_validation_loss"] for member in run["members"]], dtype=float
        ).min()

    by_value: dict[Any, list[dict]] = {}
    for run in runs:
        by_value.setdefault(value_of(run, hyperparameter), []).append(run)
    ordered = sorted(by_value, key=PAPER["targets"].index if hyperparameter == "targets" else None)
    columns = {value: score_frame(by_value[value], lowest).iloc[:, 0] for value in ordered}
    return pd.concat(columns, axis=1, sort=False)


def by_seed(of_values: pd.DataFrame) -> pd.DataFrame:
    """Return means over data sets of the `losses` of the pairs that have every value: rows seeds."""
    return of_values.dropna().groupby(level="seed").mean().reindex(of_values.index.unique("seed"))


def above(of_values: pd.DataFrame, reference) -> pd.DataFrame:
    """Return how far the `losses` of each value lie above those of `reference`, over the pairs that have every value.

    Rows values, columns mean, low and high: the 95 % interval over data sets, NaN for `reference` itself.
    """
    whole = of_values.dropna()
    gaps = over_datasets(whole.sub(whole.get(reference, np.nan), axis=0))
    gaps.loc[gaps["low"] == gaps["high"], ["low", "high"]] = np.nan
    return gaps


def failed(of_values: pd.DataFrame) -> pd.DataFrame:
    """Mark trainings that learned nothing: their best loss is above `LEARNED` of log C, that of equal scores for all C
    classes."""
    classes = [
        TASKS[name].classes if name in TASKS else np.inf
        for name in of_values.index.get_level_values("dataset")
    ]
    return of_values.gt(LEARNED * np.log(classes), axis=0)


def counterparts(ours: Iterable, hyperparameter: str) -> dict:
    """Map the paper's values to ours: equal values, else equal places in grids of one length, else none.

    Small backbones have scaled ranks, so their grids share places instead of values.
    """
    ours, theirs = list(ours), PAPER[hyperparameter]
    if set(ours) <= set(theirs):
        return dict(zip(ours, ours, strict=True))
    return dict(zip(theirs, ours, strict=True)) if len(ours) == len(theirs) else {}


def title(value: int | str) -> str:
    """Return the name of a value: "r = 256", "QV"."""
    return value.upper() if isinstance(value, str) else f"r = {value}"


def ablation(runs: Sequence[dict], hyperparameter: str, theirs: pd.DataFrame) -> Table:
    """Build Table 2 or 3 here and in the paper, with intervals over data sets of the differences between values.

    theirs: the paper's table, columns loss and parameters, rows values.
    """
    ours = losses(runs, hyperparameter)
    values, whole, best = list(ours), ours.dropna(), theirs["loss"].idxmin()
    pairs = counterparts(values, hyperparameter)
    published = {value: printed for printed, value in pairs.items()}
    base = pairs.get(best)
    gaps = above(ours, base)
    paired = theirs.reindex([published.get(value) for value in values])
    sizes = {value_of(run, hyperparameter): run["members"][0]["adapter_parameters"] for run in runs}
    columns = {
        hyperparameter: values,
        "published_value": paired.index,
        "loss": by_seed(ours).mean(),
        "loss_paper": paired["loss"],
        "std_over_seeds": by_seed(ours).std(),
        "above_reference": gaps["mean"],
        "low": gaps["low"],
        "high": gaps["high"],
        "above_reference_paper": paired["loss"] - theirs["loss"].min(),
        "lowest": [(whole.idxmin(axis=1) == value).sum() for value in values],
        "failed": failed(ours).sum(),
        "parameters": [sizes[value] for value in values],
        "parameters_paper": paired["parameters"],
    }
    data = pd.DataFrame({name: np.asarray(column) for name, column in columns.items()})
    here, there = (title(value) for value in (base, best))
    spec = {
        "loss": ("Loss, here", 3, "min"),
        "loss_paper": ("Loss, paper", 3),
        "above_reference": (f"Above {here}, here", "+3"),
        "above_reference_paper": (f"Above {there}, paper", "+3"),
        "low": (
            f"95 % interval above {here}, here",
            lambda row: interval(None, row["low"], row["high"], 3),
        ),
        "std_over_seeds": ("Standard deviation over seeds, here", 3),
        "lowest": (f"Lowest of {len(whole)}, here", 0),
        "failed": (f"Learned nothing of {len(ours)}, here", 0),
        "parameters": ("Trainable parameters, here", lambda row: thousands(row["parameters"])),
        "parameters_paper": (
            "Trainable parameters, paper",
            lambda row: thousands(row["parameters_paper"]),
        ),
    }
    scaled = any(printed != value for printed, value in pairs.items())
    header = [title(value) + (f" ({published[value]})" if scaled else "") for value in values]
    caption = (
        f"Best validation loss of PVeRA (nats), mean over {len(ours)} pairs of data set and seed. Bold: lowest. "
        "Underlined: second lowest. Differences are taken within data set and seed; their intervals speak of "
        f"other data sets. Learned nothing: trainings whose best loss is above {100 * LEARNED:.0f} % of that of equal "
        "scores for all classes."
    )
    if len(whole) < len(ours):
        caption += f" Of {len(ours)} pairs, {len(whole)} have every value and enter the means."
    if scaled:
        caption += " Brackets: the paper's value at the same place of its grid."
    if not runs[0]["config"]["protocol"]["softmax_in_loss"]:
        caption += " The paper's cross entropy takes the softmax twice, so its losses are on another scale."
    panel = texts(data.set_index(pd.Index(header)), spec).T
    return Table(
        EXPERIMENTS[hyperparameter],
        caption,
        {"": panel},
        data=data,
        source=describe_runs(runs),
        in_paper=True,
    )


@contrast
def lower(
    of_values: pd.DataFrame, hyperparameter: str, better: list, worse: list
) -> PairedDifferences:
    """Return how far each value of `better` lies below each other one of `worse`, values of the paper."""
    pairs = counterparts(of_values, hyperparameter)
    names = {value: title(pairs[value]) for value in pairs}
    for value in (*better, *worse):
        if value not in pairs:
            raise Untestable(f"no counterpart of {title(value)} in the grid")
        if (share := failed(of_values).mean()[pairs[value]]) > 0.5:
            raise Untestable(f"{names[value]} learned nothing in {100 * share:.0f} % of trainings")
    return {
        f"{names[second]} − {names[first]}": of_values[pairs[second]] - of_values[pairs[first]]
        for first, second in product(better, worse)
        if first != second
    }
