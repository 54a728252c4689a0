"""Trainings that run until their patience ends, and what a limit on their epochs would have cost."""

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.report.scores import chosen_member
from pvera.report.table import Table
from pvera.report.tables.benchmark import describe_runs
from pvera.study.training import History, TrainingConfig, stop_early

#: The limit on epochs with which trainings are compared; short comparisons often have one like it.
LIMIT = 20


def validation(member: dict, measure: str) -> np.ndarray:
    """Return the curve of a run's member on the validation split, (epochs,); measure: "loss" or "accuracy"."""
    return np.array(member["curve"][f"validation_{measure}"], dtype=float)


def epoch_kept(loss: np.ndarray, config: dict) -> int:
    """Return the epoch that a training config (max_epochs, patience, tolerance) keeps of validation losses (epochs,).

    At least one loss is not NaN.
    """
    history, training = History(), TrainingConfig(patience=config["patience"], tolerance=config["tolerance"])
    for epoch, value in enumerate(loss[: config["max_epochs"]]):
        stop_early(history, epoch, value, training)
        if history.status != "running":
            break
    return history.best_epoch


def durations(runs: list[dict]) -> pd.DataFrame:
    """Describe each run of one backbone that did not diverge, one row per run.

    epochs; patience: whether patience ended them; best: the chosen epoch, from 1; loss, accuracy: on the validation
    split at that epoch; early_loss, early_accuracy: of the member and epoch that the same training with `LIMIT`
    epochs would have chosen; test: test accuracy.
    """
    rows, shorter = [], runs[0]["config"] | {"max_epochs": LIMIT}
    for run in (run for run in runs if run["chosen"]):
        early = []
        for member in run["members"]:
            loss, accuracy = validation(member, "loss"), validation(member, "accuracy")
            if not np.isnan(loss[:LIMIT]).all():
                epoch = epoch_kept(loss, shorter)
                early.append((loss[epoch], accuracy[epoch]))
        (early_loss, early_accuracy), member, chosen = min(early), chosen_member(run), run["chosen"]["epoch"]
        rows.append({
            **{name: run[name] for name in ("method", "dataset", "seed")},
            "epochs": member["epochs"], "patience": member["status"] == "stopped early", "best": chosen + 1,
            "early_loss": early_loss, "loss": validation(member, "loss")[chosen],
            "early_accuracy": early_accuracy, "accuracy": validation(member, "accuracy")[chosen],
            "test": run["test"]["accuracy"],
        })  # fmt: skip
    return pd.DataFrame(rows)


SPEC = {
    "best": ("Chosen epoch", lambda row: f"{row['best']:.0f} ({row['shortest']:.0f} to {row['longest']:.0f})"),
    "change": ("Loss", "+2"),
    "early_accuracy": (f"Val. acc., {LIMIT} epochs", 1, "max"),
    "accuracy": ("Val. acc.", 1, "max"),
    "test": ("Test acc.", 1, "max"),
}


def duration_table(runs: list[dict]) -> Table:
    """Build the table of `durations` for the runs of one backbone: means over seeds, then data sets, per method."""
    data = durations(runs)
    columns = ["early_loss", "loss", "early_accuracy", "accuracy", "test"]
    means = data.groupby(["method", "dataset"])[columns].mean().groupby("method").mean()
    means[columns[2:]] *= 100
    best = data.groupby("method")["best"].agg(best="median", shortest="min", longest="max")
    means = means.join(best).assign(change=means["loss"] - means["early_loss"])
    means = means.loc[[key for key in METHODS if key in means.index]]
    caption = (
        "Trainings that run until their patience ends, and the same trainings stopped at a limit of epochs, where the "
        f"grid's choice is made anew among the values that the run trained. {data['patience'].sum()} of {len(data)} "
        "ended by patience. Chosen epoch: median and range. Loss: validation loss (nats) at the chosen epoch minus "
        "that of the shorter training. Accuracies (%): on the validation split for the shorter training, then on the "
        "validation and the test split at the chosen epoch. Bold: best. Underlined: second best. Means over seeds, "
        "then over data sets."
    )
    return Table("duration", caption, {"": means}, SPEC, data, describe_runs(runs))
