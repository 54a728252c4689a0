"""The ablations of PVeRA's rank and position (Tables 2 and 3): best validation losses, in pairs.

All values train on the same data sets with the same seeds, so differences are taken
within a data set and seed. Their intervals are those of a mean over data sets.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from pvera.data.tasks import TASKS
from pvera.report.captions import caption_source
from pvera.report.scores import Records, score_frame
from pvera.report.settings import ResultFiles, Setting
from pvera.report.statistics import over_datasets
from pvera.report.table import Column, Table, format_frame, interval, thousands
from pvera.report.tables.verdicts import Untestable
from pvera.study import results

#: Of the loss of equal scores for all classes; a training above it learned nothing.
LEARNED = 0.95
#: Hyperparameter -> the values of the paper's table.
PAPER: dict[str, list[Any]] = {
    "rank": [64, 128, 256, 512],
    "targets": ["q", "k", "v", "qk", "qv", "qkv"],
}
#: Hyperparameter -> the experiment that varies it.
EXPERIMENTS = {"rank": "rank", "targets": "position"}


def read(files: ResultFiles, hyperparameter: str) -> dict[Setting, list[dict]]:
    """Read the trainings of all values of a hyperparameter, by setting."""
    experiment = EXPERIMENTS[hyperparameter]
    by_setting: dict[Setting, list[dict]] = {}
    for profile in files.profiles:
        if experiment in profile.experiments:
            folders = profile.experiments[experiment].folders(experiment)
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


def losses(records: Records, hyperparameter: str) -> pd.DataFrame:
    """Return the best validation losses of one experiment, the lowest over learning rates.

    Returns:
        Rows (category, dataset, seed), columns values; NaN where a run is missing
        or diverged.
    """
    by_value: dict[Any, list[dict]] = {}
    for record in records:
        by_value.setdefault(value_of(record, hyperparameter), []).append(record)
    order = PAPER["targets"].index if hyperparameter == "targets" else None
    # Each value is trained by one method, so its frame has one column.
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
        Rows values, columns mean, low and high, of the pairs that have every value:
        the 95 % interval over data sets, NaN for `reference` itself.
    """
    # Pairs of data set and seed, (pairs, values).
    whole = values.dropna()
    differences = over_datasets(whole.sub(whole.get(reference, np.nan), axis=0))
    is_point = differences["low"] == differences["high"]
    differences.loc[is_point, ["low", "high"]] = np.nan
    return differences


def failed(values: pd.DataFrame) -> pd.DataFrame:
    """Mark the trainings that learned nothing.

    Their best loss is above `LEARNED` of log C, the loss of equal scores for all C
    classes.
    """
    # The number of classes of one's own data is not in the records.
    classes = [
        TASKS[name].classes if name in TASKS else np.inf
        for name in values.index.get_level_values("dataset")
    ]
    return values.gt(LEARNED * np.log(classes), axis=0)


def counterparts(ours: Iterable, hyperparameter: str) -> dict:
    """Map the paper's values to ours: equal values, else by position in grids of one length.

    Small backbones have scaled ranks, so their grids share positions instead of
    values.
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


COLUMNS = {
    "loss": Column("Loss, here", 3, best="min"),
    "loss_paper": Column("Loss, paper", 3),
    "above_reference": Column("Above the paper's best, here", 3, signed=True),
    "above_reference_paper": Column("Above the paper's best, paper", 3, signed=True),
    "low": Column(
        "95 % interval above the paper's best, here",
        lambda row: interval(None, row["low"], row["high"], 3),
    ),
    "std_over_seeds": Column("Standard deviation over seeds, here", 3),
    "lowest": Column("Pairs in which it is lowest, here", 0),
    "failed": Column("Trainings that learned nothing, here", 0),
    "parameters": Column("Trainable parameters, here", lambda row: thousands(row["parameters"])),
    "parameters_paper": Column(
        "Trainable parameters, paper", lambda row: thousands(row["parameters_paper"])
    ),
}


def ablation(records: Records, hyperparameter: str, paper: pd.DataFrame) -> Table:
    """Build Table 2 or 3 here and in the paper, with intervals over data sets of the differences.

    Args:
        records: The trainings of all values.
        hyperparameter: "rank" or "targets".
        paper: The paper's table, columns loss and parameters, rows values.
    """
    ours = losses(records, hyperparameter)
    data = ablation_data(records, ours, hyperparameter, paper)
    names = [value_title(value) for value in ours]
    published = data["published_value"].dropna()
    has_other_values = any(published != data.loc[published.index, hyperparameter])
    if has_other_values:
        names = [
            f"{name} ({printed})"
            for name, printed in zip(names, data["published_value"], strict=True)
        ]
    # A row per value becomes a column per value, as in the paper.
    panel = format_frame(data.set_axis(names), COLUMNS).T

    best = value_title(paper["loss"].idxmin())
    caption = _caption(ours, best)
    if has_other_values:
        caption += " Brackets: the paper's value at the same position of its grid."
    if not records[0]["config"]["protocol"]["softmax_in_loss"]:
        caption += (
            " The official code applies the softmax twice in its cross entropy, so the paper's "
            "losses are on another scale."
        )
    source = caption_source(records)
    name = EXPERIMENTS[hyperparameter]
    return Table(name, caption, panel, data=data, source=source, in_paper=True)


def ablation_data(
    records: Records, ours: pd.DataFrame, hyperparameter: str, paper: pd.DataFrame
) -> pd.DataFrame:
    """Return the numbers of `ablation`, a row per value; ours: the `losses`."""
    pairs = counterparts(ours, hyperparameter)
    published = {value: printed for printed, value in pairs.items()}
    theirs = paper.reindex([published.get(value) for value in ours])
    differences = above(ours, pairs.get(paper["loss"].idxmin()))
    seeds = by_seed(ours)
    lowest = ours.dropna().idxmin(axis=1)
    parameters = {
        value_of(record, hyperparameter): record["members"][0]["adapter_parameters"]
        for record in records
    }
    columns = {
        hyperparameter: list(ours),
        "published_value": theirs.index,
        "loss": seeds.mean(),
        "loss_paper": theirs["loss"],
        "std_over_seeds": seeds.std(),
        "above_reference": differences["mean"],
        "low": differences["low"],
        "high": differences["high"],
        "above_reference_paper": theirs["loss"] - paper["loss"].min(),
        "lowest": [(lowest == value).sum() for value in ours],
        "failed": failed(ours).sum(),
        "parameters": [parameters[value] for value in ours],
        "parameters_paper": theirs["parameters"],
    }
    # Rows are values here or in the paper, so columns are joined by position, not by index.
    return pd.DataFrame({name: np.asarray(column) for name, column in columns.items()})


def _caption(ours: pd.DataFrame, best: str) -> str:
    """Return the caption of `ablation`; best: the title of the paper's best value."""
    count, complete = len(ours), len(ours.dropna())
    caption = (
        f"Best validation loss of PVeRA (nats), mean over {count} pairs of data set and seed. "
        f"Bold: lowest. Underlined: second lowest. The paper's best is {best}; differences to it "
        "are taken within data set and seed, and their 95 % intervals are over data sets. A "
        f"training learned nothing if its best loss is above {100 * LEARNED:.0f} % of that of "
        "equal scores for all classes."
    )
    if complete < count:
        caption += f" Of {count} pairs, {complete} have every value and enter the means."
    return caption


def lower(
    values: pd.DataFrame, hyperparameter: str, value: Any, others: Sequence[Any] = ()
) -> dict[str, pd.Series]:
    """Return how far a value lies below others; all are values of the paper.

    Args:
        values: The `losses`.
        hyperparameter: "rank" or "targets".
        value: The value.
        others: The others, by default all.

    Raises:
        Untestable: The grid has no counterpart of a value, or most of its trainings
            learned nothing.
    """
    others = others or tuple(other for other in PAPER[hyperparameter] if other != value)
    pairs = counterparts(values, hyperparameter)
    shares = failed(values).mean()
    for printed in (value, *others):
        if printed not in pairs:
            raise Untestable(f"no counterpart of {value_title(printed)} in the grid")
        name, share = value_title(pairs[printed]), shares[pairs[printed]]
        if share > 0.5:
            raise Untestable(f"{name} learned nothing in {100 * share:.0f} % of trainings")

    low = pairs[value]
    return {
        f"{value_title(high)} − {value_title(low)}": values[high] - values[low]
        for high in (pairs[other] for other in others)
    }
