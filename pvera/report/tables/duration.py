"""Trainings that run until their patience ends, and what a limit on their epochs would have cost."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS
from pvera.report.scores import Scores, chosen_member
from pvera.report.statistics import mean_and_std
from pvera.report.tables.benchmark import about, marks
from pvera.report.tables.layout import Cell, Panel, Row, Table, lettered, percent, signed
from pvera.report.tables.names import dataset_title
from pvera.study import results
from pvera.study.training import History, TrainingConfig, stop_early

GLUE = {name for name, task in TASKS.items() if task.suite == "glue"}
#: Parts of the table -> their experiment, and whether they consist of GLUE's tasks, which stand apart.
PARTS = {"Images": ("benchmark", False), "Texts": ("language", False), "GLUE": ("language", True)}
#: The limit on epochs with which trainings are compared; short comparisons often have one like it.
LIMIT = 20


def load(root, profile: str) -> dict[str, tuple[list[dict], dict]]:
    """Load, by part, the runs that may train beyond `LIMIT`, and their training config with that limit."""
    parts = {}
    for title, (experiment, of_glue) in PARTS.items():
        loaded = results.load_runs(root, profile, experiment, optional=True)
        runs = [run for run in loaded if (run["dataset"] in GLUE) == of_glue]
        if runs and runs[0]["config"]["max_epochs"] > LIMIT:
            parts[title] = runs, runs[0]["config"] | {"max_epochs": LIMIT}
    return parts


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


def stopped(run: dict, shorter: dict) -> tuple[float, float]:
    """Return validation loss and accuracy of the member and epoch that a run would have chosen with `shorter`."""
    kept = []
    for member in run["members"]:
        loss = validation(member, "loss")
        if not np.isnan(loss[: shorter["max_epochs"]]).all():
            epoch = epoch_kept(loss, shorter)
            kept.append((loss[epoch], validation(member, "accuracy")[epoch]))
    return min(kept)


def durations(runs: list[dict], shorter: dict) -> pd.DataFrame:
    """Describe each run of one backbone that did not diverge, one row per run.

    epochs; patience: whether patience ended them; best: the chosen epoch, from 1; loss, accuracy: on the validation
    split at that epoch; early_loss, early_accuracy: of the member and epoch that the config `shorter` would have
    chosen; test: test accuracy.
    """
    rows = []
    for run in (run for run in runs if run["chosen"]):
        member, chosen = chosen_member(run), run["chosen"]["epoch"]
        loss, accuracy = (validation(member, measure) for measure in ("loss", "accuracy"))
        early_loss, early_accuracy = stopped(run, shorter)
        rows.append({
            "method": run["method"], "dataset": run["dataset"], "seed": run["seed"], "epochs": member["epochs"],
            "patience": member["status"] == "stopped early", "best": chosen + 1, "early_loss": early_loss,
            "loss": loss[chosen], "early_accuracy": early_accuracy, "accuracy": accuracy[chosen],
            "test": run["test"]["accuracy"],
        })  # fmt: skip
    return pd.DataFrame(rows)


def of_methods(data: pd.DataFrame) -> pd.DataFrame:
    """Average `durations` over seeds, then data sets: one row per method in the paper's order.

    best, shortest, longest: median and range of the chosen epoch.
    """
    columns = ["early_loss", "loss", "early_accuracy", "accuracy", "test"]
    means = data.groupby(["method", "dataset"])[columns].mean().groupby("method").mean()
    best = data.groupby("method")["best"]
    means = means.assign(best=best.median(), shortest=best.min(), longest=best.max())
    return means.reindex([key for key in METHODS if key in means.index])


def duration_table(parts: dict[str, tuple[list[dict], dict]]) -> Table:
    """Build the table of `of_methods`, a panel for each part of `load`."""
    panels, frames = [], []
    for title, (runs, shorter) in parts.items():
        data = durations(runs, shorter)
        means = of_methods(data)
        marked = {name: marks(100 * means[name]) for name in ("early_accuracy", "accuracy", "test")}
        rows = []
        for i, (key, mean) in enumerate(means.iterrows()):
            cells = [
                Cell(f"{mean['best']:.0f} ({mean['shortest']:.0f} to {mean['longest']:.0f})"),
                Cell(signed(mean["loss"] - mean["early_loss"], 2)),
            ]
            cells += [Cell(percent(100 * mean[name]), marked[name][i]) for name in marked]
            rows.append(Row(METHODS[key].title, tuple(cells)))
        early = f"Val. acc., {shorter['max_epochs']} epochs"
        header = ("Chosen epoch", "Loss", early, "Val. acc.", "Test acc.")
        names = ", ".join(dict.fromkeys(map(dataset_title, data["dataset"])))
        ended = f"{data['patience'].sum()} of {len(data)} ended by patience"
        panels.append(Panel(f"{title} ({names}), {ended}", header, tuple(rows)))
        frames.append(data.assign(part=title))
    caption = (
        "Trainings that run until their patience ends, and the same trainings stopped at a limit of epochs, where the "
        "grid's choice is made anew among the values that the run trained. Chosen epoch: median and range. Loss: "
        "validation loss (nats) at the chosen epoch minus that of the shorter training. Accuracies (%): on the "
        "validation split for the shorter training, then on the validation and the test split at the chosen epoch. "
        "Bold: best. Underlined: second best. Means over seeds, then over data sets."
    )
    described = " ".join(about(runs) for runs, _ in parts.values())
    return Table("duration", caption, described, lettered(panels), pd.concat(frames, ignore_index=True))


def answer(parts: dict[str, tuple[list[dict], dict]]) -> str:
    """Say in one sentence per part of `load` where PVeRA stands with the limit and without it."""
    sentences = []
    for title, (runs, shorter) in parts.items():
        means = of_methods(durations(runs, shorter))
        if "pvera" in means.index:
            early, late = (
                int(means[name].rank(ascending=False, method="min")["pvera"]) for name in ("early_accuracy", "accuracy")
            )
            sentences.append(
                f"{title}: by validation accuracy PVeRA is place {late} of {len(means)}; stopped after "
                f"{shorter['max_epochs']} epochs it would be place {early}."
            )
    return " ".join(["**Answer.**", *sentences])


@dataclass(frozen=True)
class Curve:
    """The lowest validation loss up to each epoch, (epochs of the longest run,): mean, lowest and highest over seeds.

    chosen: median over seeds of the chosen epoch, from 1. A training that has ended keeps its best.
    """

    mean: np.ndarray
    low: np.ndarray
    high: np.ndarray
    chosen: float


def curves(runs: list[dict]) -> dict[str, dict[str, Curve]]:
    """Return data set -> method -> `Curve` of the runs that did not diverge."""
    scores = Scores.of(runs)
    curves_of: dict[str, dict[str, Curve]] = {name: {} for name in scores.datasets}
    for dataset in scores.datasets:
        for method in scores.methods:
            trained = [run for run in runs if run["chosen"] and (run["dataset"], run["method"]) == (dataset, method)]
            losses = [np.fmin.accumulate(validation(chosen_member(run), "loss")) for run in trained]
            if losses:
                longest = max(map(len, losses))
                padded = np.stack([np.pad(loss, (0, longest - len(loss)), mode="edge") for loss in losses])
                chosen = float(np.median([run["chosen"]["epoch"] + 1 for run in trained]))
                mean = mean_and_std(padded, axis=0)[0]
                curves_of[dataset][method] = Curve(mean, np.nanmin(padded, 0), np.nanmax(padded, 0), chosen)
    return curves_of
