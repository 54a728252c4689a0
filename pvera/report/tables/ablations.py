"""The ablations of PVeRA's rank and position (Tables 2 and 3): best validation losses, in pairs.

All values train on the same data sets with the same seeds, so differences are taken within a data
set and seed. Their intervals are those of a mean over data sets.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pvera.data.tasks import TASKS
from pvera.report.captions import caption_source
from pvera.report.scores import score_frame
from pvera.report.settings import ResultFiles, Setting
from pvera.report.statistics import over_datasets
from pvera.report.table import Column, Table, format_frame, interval, thousands
from pvera.report.tables.verdicts import PairedDifferences, Untestable, contrast
from pvera.study import results

#: Of the loss of equal scores for all classes; a training above it learned nothing.
LEARNED = 0.95
#: Hyperparameter -> the values of the paper's table.
PAPER = {"rank": [64, 128, 256, 512], "targets": ["q", "k", "v", "qk", "qv", "qkv"]}
#: Hyperparameter -> the experiment that varies it.
EXPERIMENTS = {"rank": "rank", "targets": "position"}


def read(files: ResultFiles, hyperparameter: str) -> dict[Setting, list[dict]]:
    """Read the trainings of all values of a hyperparameter, by setting."""
    experiment = EXPERIMENTS[hyperparameter]
    by_setting: dict[Setting, list[dict]] = {}
    for profile in files.profiles:
        if experiment in profile.experiments:
            folders = profile.experiments[experiment].variants(experiment)
            records = results.load_runs(files.root, profile.name, *folders)
            by_setting |= files.by_setting(profile, records)
    return by_setting


def value_of(record: dict, hyperparameter: str) -> Any:
    """Return a hyperparameter of a run's method, which all members share."""
    return record["config"]["members"][0]["method"][hyperparameter]


def lowest_loss(record: dict) -> float:
    """Return the best validation loss of all members; NaN where all diverged."""
    losses = [member["best_validation_loss"] for member in record["members"]]
    return pd.Series(losses, dtype=float).min()


def losses(records: Sequence[dict], hyperparameter: str) -> pd.DataFrame:
    """Return the best validation losses of one experiment, the lowest over learning rates.

    Returns:
        Rows (category, dataset, seed), columns values; NaN where a run is missing or diverged.
    """
    by_value: dict[Any, list[dict]] = {}
    for record in records:
        by_value.setdefault(value_of(record, hyperparameter), []).append(record)
    order = PAPER["targets"].index if hyperparameter == "targets" else None
    columns = {
        value: score_frame(by_value[value], lowest_loss).iloc[:, 0]
        for value in sorted(by_value, key=order)
    }
    return pd.concat(columns, axis=1, sort=False)


def by_seed(values: pd.DataFrame) -> pd.DataFrame:
    """Return means of the `losses` over data sets, of the pairs that have every value.

    Returns:
        Rows seeds, columns values.
    """
    means = values.dropna().groupby(level="seed").mean()
    return means.reindex(values.index.unique("seed"))


def above(values: pd.DataFrame, reference: Hashable) -> pd.DataFrame:
    """Return how far the `losses` of each value lie above those of `reference`.

    Returns:
        Rows values, columns mean, low and high, of the pairs that have every value: the 95 %
        interval over data sets, NaN for `reference` itself.
    """
    whole = values.dropna()
    differences = over_datasets(whole.sub(whole.get(reference, np.nan), axis=0))
    is_point = differences["low"] == differences["high"]
    differences.loc[is_point, ["low", "high"]] = np.nan
    return differences


def failed(values: pd.DataFrame) -> pd.DataFrame:
    """Mark the trainings that learned nothing.

    Their best loss is above `LEARNED` of log C, the loss of equal scores for all C classes.
    """
    classes = [
        TASKS[name].classes if name in TASKS else np.inf
        for name in values.index.get_level_values("dataset")
    ]
    return values.gt(LEARNED * np.log(classes), axis=0)


def counterparts(ours: Iterable, hyperparameter: str) -> dict:
    """Map the paper's values to ours: equal values, else by position in grids of one length.

    Small backbones have scaled ranks, so their grids share positions instead of values.
    """
    ours, theirs = list(ours), PAPER[hyperparameter]
    if set(ours) <= set(theirs):
        return dict(zip(ours, ours, strict=True))
    if len(ours) == len(theirs):
        return dict(zip(theirs, ours, strict=True))
    return {}


def value_title(value: Any) -> str:
    """Return the name of a value: "r = 256", "QV"."""
    return value.upper() if isinstance(value, str) else f"r = {value}"


def ablation(records: Sequence[dict], hyperparameter: str, paper: pd.DataFrame) -> Table:
    """Build Table 2 or 3 here and in the paper, with intervals over data sets of the differences.

    Args:
        records: The trainings of all values.
        hyperparameter: "rank" or "targets".
        paper: The paper's table, columns loss and parameters, rows values.
    """
    ours = losses(records, hyperparameter)
    pairs = counterparts(ours, hyperparameter)
    best = paper["loss"].idxmin()
    data = ablation_data(records, hyperparameter, paper)

    published = {value: printed for printed, value in pairs.items()}
    scaled = any(printed != value for printed, value in pairs.items())
    header = [
        f"{value_title(value)} ({published[value]})" if scaled else value_title(value)
        for value in ours
    ]
    columns = _columns(ours, value_title(pairs.get(best)), value_title(best))
    # The paper has a column per value.
    panel = format_frame(data.set_index(pd.Index(header)), columns).T

    caption = _caption(ours, scaled, records[0]["config"]["protocol"]["softmax_in_loss"])
    source = caption_source(records)
    name = EXPERIMENTS[hyperparameter]
    return Table(name, caption, {"": panel}, data=data, source=source, in_paper=True)


def ablation_data(
    records: Sequence[dict], hyperparameter: str, paper: pd.DataFrame
) -> pd.DataFrame:
    """Return the numbers of `ablation`, a row per value."""
    ours = losses(records, hyperparameter)
    values, seeds, lowest = list(ours), by_seed(ours), ours.dropna().idxmin(axis=1)
    pairs = counterparts(ours, hyperparameter)
    published = {value: printed for printed, value in pairs.items()}
    theirs = paper.reindex([published.get(value) for value in values])
    differences = above(ours, pairs.get(paper["loss"].idxmin()))
    parameters = {
        value_of(record, hyperparameter): record["members"][0]["adapter_parameters"]
        for record in records
    }
    columns = {
        hyperparameter: values,
        "published_value": theirs.index,
        "loss": seeds.mean(),
        "loss_paper": theirs["loss"],
        "std_over_seeds": seeds.std(),
        "above_reference": differences["mean"],
        "low": differences["low"],
        "high": differences["high"],
        "above_reference_paper": theirs["loss"] - paper["loss"].min(),
        "lowest": [(lowest == value).sum() for value in values],
        "failed": failed(ours).sum(),
        "parameters": [parameters[value] for value in values],
        "parameters_paper": theirs["parameters"],
    }
    # Their indices differ, values here and in the paper, so they are joined by position.
    return pd.DataFrame({name: np.asarray(column) for name, column in columns.items()})


def _columns(ours: pd.DataFrame, reference: str, paper_reference: str) -> Mapping[str, Column]:
    """Return what is shown of `ablation_data`; references: titles of the best value in the paper."""
    complete_pairs = len(ours.dropna())
    bounds = Column(
        f"95 % interval above {reference}, here",
        lambda row: interval(None, row["low"], row["high"], 3),
    )
    return {
        "loss": Column("Loss, here", 3, best="min"),
        "loss_paper": Column("Loss, paper", 3),
        "above_reference": Column(f"Above {reference}, here", 3, signed=True),
        "above_reference_paper": Column(f"Above {paper_reference}, paper", 3, signed=True),
        "low": bounds,
        "std_over_seeds": Column("Standard deviation over seeds, here", 3),
        "lowest": Column(f"Lowest of {complete_pairs}, here", 0),
        "failed": Column(f"Learned nothing of {len(ours)}, here", 0),
        "parameters": Column(
            "Trainable parameters, here", lambda row: thousands(row["parameters"])
        ),
        "parameters_paper": Column(
            "Trainable parameters, paper", lambda row: thousands(row["parameters_paper"])
        ),
    }


def _caption(ours: pd.DataFrame, scaled: bool, softmax_in_loss: bool) -> str:
    caption = (
        f"Best validation loss of PVeRA (nats), mean over {len(ours)} pairs of data set and seed. "
        "Bold: lowest. Underlined: second lowest. Differences are taken within data set and seed; "
        "their 95 % intervals are over data sets. Learned nothing: trainings whose best loss is "
        f"above {100 * LEARNED:.0f} % of that of equal scores for all classes."
    )
    complete_pairs = len(ours.dropna())
    if complete_pairs < len(ours):
        caption += f" Of {len(ours)} pairs, {complete_pairs} have every value and enter the means."
    if scaled:
        caption += " Brackets: the paper's value at the same position of its grid."
    if not softmax_in_loss:
        caption += (
            " The official code applies the softmax twice in its cross entropy, so the paper's "
            "losses are on another scale."
        )
    return caption


@contrast
def lower(
    values: pd.DataFrame, hyperparameter: str, better: list, worse: list
) -> PairedDifferences:
    """Return how far each value of `better` lies below each other one of `worse`.

    Args:
        values: The `losses`.
        hyperparameter: "rank" or "targets".
        better: Values of the paper.
        worse: Values of the paper.

    Raises:
        Untestable: The grid has no counterpart of a value, or most of its trainings learned
            nothing.
    """
    pairs = counterparts(values, hyperparameter)
    for value in (*better, *worse):
        if value not in pairs:
            raise Untestable(f"no counterpart of {value_title(value)} in the grid")
        share = failed(values).mean()[pairs[value]]
        if share > 0.5:
            name = value_title(pairs[value])
            raise Untestable(f"{name} learned nothing in {100 * share:.0f} % of trainings")

    differences = {}
    for first in better:
        for second in worse:
            if first != second:
                low, high = pairs[first], pairs[second]
                name = f"{value_title(high)} − {value_title(low)}"
                differences[name] = values[high] - values[low]
    return differences
