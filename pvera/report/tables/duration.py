"""How long trainings last that their patience ends, and what ending them earlier costs each method."""

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.report.scores import Scores, chosen_member
from pvera.report.statistics import mean_and_std
from pvera.report.tables.benchmark import about, marks
from pvera.report.tables.layout import Cell, Panel, Row, Table, dataset_title, lettered, percent, signed
from pvera.study import results
from pvera.study.training import History, TrainingConfig, stop_early

#: Parts of the table -> their experiment.
PARTS = {"Images": "benchmark", "Texts": "language"}


def load(root, profile: str = "long", shorter: str = "mini") -> dict[str, tuple[list[dict], dict]]:
    """The runs of `profile` below `root`, and the configuration that ends those of `shorter`; by part."""
    parts = {}
    for title, experiment in PARTS.items():
        runs, others = (results.load_runs(root, name, experiment, optional=True) for name in (profile, shorter))
        if runs and others:
            parts[title] = runs, others[0]["config"]
    return parts


def validation(run: dict, measure: str) -> np.ndarray:
    """ "loss" or "accuracy" of the chosen member of the grid on the validation split, (epochs,)."""
    return np.array(chosen_member(run)["curve"][f"validation_{measure}"], dtype=float)


def kept(loss: np.ndarray, config: dict) -> int:
    """Which epoch of these validation losses (epochs,), not all of them NaN, a training would have kept that ends as
    `config` says (max_epochs, patience, tolerance)."""
    history, training = History(), TrainingConfig(patience=config["patience"], tolerance=config["tolerance"])
    for epoch, value in enumerate(loss[: config["max_epochs"]]):
        stop_early(history, epoch, value, training)
        if history.status != "running":
            break
    return history.best_epoch


def durations(runs: list[dict], shorter: dict) -> pd.DataFrame:
    """One row per run of one backbone that did not diverge: its epochs; whether patience ended them; the chosen epoch,
    counted from 1; loss and accuracy on the validation split, where it is and where the configuration `shorter`
    would have chosen (early_loss, early_accuracy); the test accuracy."""
    rows = []
    for run in (run for run in runs if run["chosen"]):
        member, chosen = chosen_member(run), run["chosen"]["epoch"]
        loss, accuracy = (validation(run, measure) for measure in ("loss", "accuracy"))
        early = kept(loss, shorter)
        rows.append({
            "method": run["method"], "dataset": run["dataset"], "seed": run["seed"], "epochs": member["epochs"],
            "patience": member["status"] == "stopped early", "best": chosen + 1, "early_loss": loss[early],
            "loss": loss[chosen], "early_accuracy": accuracy[early], "accuracy": accuracy[chosen],
            "test": run["test"]["accuracy"],
        })  # fmt: skip
    return pd.DataFrame(rows)


def of_methods(data: pd.DataFrame) -> pd.DataFrame:
    """Of `durations`: a row per method in the paper's order, means over seeds, then over data sets; best, shortest and
    longest: median and range of the chosen epoch."""
    columns = ["early_loss", "loss", "early_accuracy", "accuracy", "test"]
    means = data.groupby(["method", "dataset"])[columns].mean().groupby("method").mean()
    best = data.groupby("method")["best"]
    means = means.assign(best=best.median(), shortest=best.min(), longest=best.max())
    return means.reindex([key for key in METHODS if key in means.index])


def table(parts: dict[str, tuple[list[dict], dict]]) -> Table:
    """Of `of_methods`: a panel for each of the `parts`, as `load` gives them."""
    panels, frames = [], []
    for title, (runs, shorter) in parts.items():
        data = durations(runs, shorter)
        means = of_methods(data)
        marked = {name: marks(100 * means[name]) for name in ("early_accuracy", "accuracy", "test")}
        rows = []
        for i, (key, own) in enumerate(means.iterrows()):
            cells = [
                Cell(f"{own['best']:.0f} ({own['shortest']:.0f} to {own['longest']:.0f})"),
                Cell(signed(own["loss"] - own["early_loss"], 2)),
            ]
            cells += [Cell(percent(100 * own[name]), marked[name][i]) for name in marked]
            rows.append(Row(METHODS[key].title, tuple(cells)))
        early = f"Val. acc., {shorter['max_epochs']} epochs, patience {shorter['patience']}"
        header = ("Chosen epoch", "Loss", early, "Val. acc.", "Test acc.")
        names = ", ".join(dict.fromkeys(map(dataset_title, data["dataset"])))
        ended = f"{data['patience'].sum()} of {len(data)} ended by patience"
        panels.append(Panel(f"{title} ({names}), {ended}", header, tuple(rows)))
        frames.append(data.assign(part=title))
    caption = (
        "Trainings that go on until their patience ends. Chosen epoch: median and range. Loss: how far the chosen "
        "epoch's validation loss (nats) lies below that of the epoch which the same training would have chosen within "
        "the limits of the shorter profile. Then the validation accuracy (%) at that epoch, and the validation and "
        "test "
        "accuracy (%) at the chosen one. Means over seeds, then over data sets."
    )
    described = " ".join(about(runs) for runs, _ in parts.values())
    return Table("duration", caption, described, lettered(panels), pd.concat(frames, ignore_index=True))


def curves(runs: list[dict]) -> dict[str, dict[str, np.ndarray]]:
    """Data set -> method -> lowest validation loss up to each epoch, (epochs of the longest run,), mean over the seeds.
    A training that has ended keeps its best."""
    scores = Scores.of(runs)
    found: dict[str, dict[str, np.ndarray]] = {name: {} for name in scores.datasets}
    for dataset in scores.datasets:
        for method in scores.methods:
            own = [
                np.fmin.accumulate(validation(run, "loss"))
                for run in runs
                if run["chosen"] and (run["dataset"], run["method"]) == (dataset, method)
            ]
            if own:
                longest = max(map(len, own))
                padded = [np.pad(loss, (0, longest - len(loss)), mode="edge") for loss in own]
                found[dataset][method] = mean_and_std(np.stack(padded), axis=0)[0]
    return found
