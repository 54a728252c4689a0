"""The ablations of PVeRA's rank and position (Tables 2 and 3): best validation losses, in pairs.

All values train on the same data sets with the same seeds, so differences are taken within a data
set and seed. Their intervals are those of a mean over data sets.
"""

from collections.abc import Hashable, Iterable
from typing import Any

import numpy as np
import pandas as pd

from pvera.report.captions import caption_source
from pvera.report.scores import Records, member_hyperparameters, score_columns
from pvera.report.statistics import mean_intervals
from pvera.report.table import Column, Table, format_frame
from pvera.report.text import bounds, thousands

#: Hyperparameter -> the values of the paper's table.
PAPER_VALUES: dict[str, list[Any]] = {
    "rank": [64, 128, 256, 512],
    "targets": ["q", "k", "v", "qk", "qv", "qkv"],
}
#: Hyperparameter -> the experiment that varies it.
EXPERIMENTS = {"rank": "rank", "targets": "position"}


def value_of(record: dict, hyperparameter: str) -> Any:
    """Return a hyperparameter of a run's method, which all members share."""
    return member_hyperparameters(record, 0)[hyperparameter]


def lowest_loss(record: dict) -> float:
    """Return the best validation loss of all members; NaN where all diverged."""
    losses = [member["best_validation_loss"] for member in record["members"]]
    return pd.Series(losses, dtype=float).min()


def best_losses(records: Records, hyperparameter: str) -> pd.DataFrame:
    """Return the best validation losses of one experiment, the lowest over learning rates.

    Returns:
        Rows (category, dataset, seed), columns values; NaN where a run is missing or diverged.
    """
    by_value: dict[Any, list[dict]] = {}
    for record in records:
        by_value.setdefault(value_of(record, hyperparameter), []).append(record)
    # Ranks from low to high, target projections in the paper's order, then others.
    order = [*PAPER_VALUES["targets"], *by_value].index if hyperparameter == "targets" else None
    return score_columns(
        {value: by_value[value] for value in sorted(by_value, key=order)}, lowest_loss
    )


def differences_to(values: pd.DataFrame, reference: Hashable) -> pd.DataFrame:
    """Return how far the `best_losses` of each value lie above those of `reference`.

    Returns:
        Rows values, columns mean, low and high, of the pairs that have every value: the 95 %
        interval over data sets, NaN for `reference` itself.
    """
    # Pairs of data set and seed, (pairs, values).
    whole = values.dropna()
    differences = mean_intervals(whole.sub(whole.get(reference, np.nan), axis=0))
    # Differences that are all equal, as those to itself, say nothing of other data sets.
    is_point = differences["low"] == differences["high"]
    differences.loc[is_point, ["low", "high"]] = np.nan
    return differences


def counterparts(ours: Iterable, hyperparameter: str) -> dict:
    """Map the paper's values to ours: equal values, else by position in grids of one length.

    Small backbones have scaled ranks, so their grids share positions instead of values.
    """
    ours, theirs = list(ours), PAPER_VALUES[hyperparameter]
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
        lambda row: bounds(row["low"], row["high"], 3),
    ),
    "parameters": Column("Trainable parameters, here", lambda row: thousands(row["parameters"])),
    "parameters_paper": Column(
        "Trainable parameters, paper", lambda row: thousands(row["parameters_paper"])
    ),
}


def ablation_table(records: Records, hyperparameter: str, paper_table: pd.DataFrame) -> Table:
    """Build Table 2 or 3 here and in the paper, with intervals over data sets of the differences.

    Args:
        records: The trainings of all values.
        hyperparameter: "rank" or "targets".
        paper_table: The paper's table, columns loss and parameters, rows values.
    """
    losses = best_losses(records, hyperparameter)
    data = ablation_data(records, losses, hyperparameter, paper_table)
    names = [value_title(value) for value in losses]
    paper_values = data["published_value"].dropna()
    has_other_values = any(paper_values != data.loc[paper_values.index, hyperparameter])
    if has_other_values:
        names = [
            f"{name} ({theirs})"
            for name, theirs in zip(names, data["published_value"], strict=True)
        ]
    # A row per value becomes a column per value, as in the paper.
    panel = format_frame(data.set_axis(names), COLUMNS).T

    best = value_title(paper_table["loss"].idxmin())
    pairs = len(losses.dropna())
    caption = f"Best validation loss of PVeRA (nats), mean over {pairs} pairs of data set and seed."
    notes = _notes(losses, best)
    if has_other_values:
        notes += " Brackets: the paper's value at the same position of its grid."
    if not records[0]["config"]["protocol"]["softmax_in_loss"]:
        notes += (
            " The official code applies the softmax twice in its cross entropy, so the paper's "
            "losses are on another scale."
        )
    source = caption_source(records)
    name = EXPERIMENTS[hyperparameter]
    return Table(name, caption, panel, data=data, source=source, has_latex=True, notes=notes)


def ablation_data(
    records: Records, losses: pd.DataFrame, hyperparameter: str, paper_table: pd.DataFrame
) -> pd.DataFrame:
    """Return the numbers of `ablation_table`, a row per value; losses: the `best_losses`."""
    pairs = counterparts(losses, hyperparameter)
    paper_value = {value: theirs for theirs, value in pairs.items()}
    printed = paper_table.reindex([paper_value.get(value) for value in losses])
    differences = differences_to(losses, pairs.get(paper_table["loss"].idxmin()))
    parameters = {
        value_of(record, hyperparameter): record["members"][0]["adapter_parameters"]
        for record in records
    }
    columns = {
        hyperparameter: list(losses),
        "published_value": printed.index,
        # Of the pairs that have every value, as the differences.
        "loss": mean_intervals(losses.dropna())["mean"],
        "loss_paper": printed["loss"],
        "above_reference": differences["mean"],
        "low": differences["low"],
        "high": differences["high"],
        "above_reference_paper": printed["loss"] - paper_table["loss"].min(),
        "parameters": [parameters[value] for value in losses],
        "parameters_paper": printed["parameters"],
    }
    # Rows are values here or in the paper, so columns are joined by position, not by index.
    return pd.DataFrame({name: np.asarray(column) for name, column in columns.items()})


def _notes(losses: pd.DataFrame, best: str) -> str:
    """Return the notes of `ablation_table`; best: the title of the paper's best value."""
    count, complete = len(losses), len(losses.dropna())
    notes = (
        f"Bold: lowest. Underlined: second lowest. The paper's best is {best}; differences to it "
        "are taken within data set and seed, and their 95 % intervals are over data sets."
    )
    if complete < count:
        notes += f" Of {count} pairs, {complete} have every value and enter the means."
    return notes


def position_losses(records: Records) -> pd.DataFrame:
    """Return the `best_losses` of the target projections, by their titles."""
    return best_losses(records, "targets").rename(columns=value_title)
