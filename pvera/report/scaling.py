"""The scaling of the paper's experiment: timed steps, counted multiply-adds, and the runs that its profile lists.

The work of a run is its multiply-adds. A training step counts twice its forward pass: the frozen weights have no
gradient, so the backward pass has one product where the forward pass has one; those of trained weights are left out.
Validation and test count once. Linear probing computes the backbone's features once.
"""

import heapq
import re
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import pandas as pd

from pvera import cost
from pvera.adapters import METHODS, Method
from pvera.cost import GIGA, Shape
from pvera.data import tasks, vtab
from pvera.errors import InputError
from pvera.report.tables.layout import plain
from pvera.report.tables.names import backbone_title, dataset_title, machine_title
from pvera.study import cost_records, markdown, speed
from pvera.study.cluster import Site
from pvera.study.experiments import EXPERIMENTS, named
from pvera.study.profiles import Profile
from pvera.study.runs import Run

PROFILE = "paper"
EPOCHS = 100  # of every training, assumed; experiments/benchmark_throughput.py assumes the same
CARDS = (1, 4, 16)
PETA = 10**15


def steps(root: Path) -> str:
    """Return the seconds of PVeRA's training step, and the ratio to its bound, along each axis that was timed."""
    columns, order = {}, {}
    for record in speed.load_records(root / "results/performance"):
        swept = pd.DataFrame(record["rows"]).query("part == 'sweep'")
        for (backbone, precision), rows in swept.groupby(["backbone", "precision"]):
            name = f"{backbone_title(backbone)}, {precision}, {machine_title(record)}"
            columns[name] = {row.what: f"{plain(row.value, 2)} s ({plain(row.ratio, 2)})" for row in rows.itertuples()}
            order |= dict.fromkeys(columns[name])
    lines = []
    for what in order:
        axis, value = what.rsplit(" ", 1)
        lines.append([speed.SWEPT[axis], value, *(column.get(what, "–") for column in columns.values())])
    return markdown.table(["Axis", "Value", *columns], lines, "lr" + "c" * len(columns))


def passes(root: Path) -> str:
    """Return the counted multiply-adds of one image and one training step, per backbone of the paper."""
    costs, lines = cost_records.load_costs(root / "results", cost_records.SIZES), []
    size = plan(root).training.batch_size
    for backbone, of_backbone in costs[costs["method"].isin(["vera", "pvera"])].groupby("backbone", sort=False):
        by_method = of_backbone.drop_duplicates("method").set_index("method")
        frozen = by_method["backbone_multiply_adds"].iloc[0]
        shares = [plain(100 * (by_method["training"][name] / frozen - 1), 1) for name in ("vera", "pvera")]
        step = 2 * size * by_method["training"]["pvera"] / (1000 * GIGA)
        lines.append([backbone_title(backbone), plain(frozen / GIGA, 1), *shares, plain(step, 2)])
    header = ["Backbone", "GMACs of an image, frozen", "VeRA adds (%)", "PVeRA adds, training (%)",
              f"TMACs of PVeRA's step, {size} images"]  # fmt: skip
    return markdown.table(header, lines, "lrrrr")


def runs(root: Path) -> str:
    """Return the work of the paper's trainings by backbone and experiment, and what the data sets differ by."""
    data = trainings(root)
    total, lines = data["work"].sum(), []
    for (backbone, experiment), part in data.groupby(["backbone", "experiment"], sort=False):
        sums = part[["members", "steps", "work"]].sum()
        lines.append([backbone_title(backbone), f"`{experiment}`", f"{len(part):,}", f"{sums.members:,.0f}",
                      f"{sums.steps:,.0f}", f"{sums.work / PETA:,.0f}", plain(100 * sums.work / total, 1)])  # fmt: skip
    sums = data[["members", "steps", "work"]].sum()
    lines.append(["all", "", f"{len(data):,}", f"{sums.members:,.0f}", f"{sums.steps:,.0f}", f"{total / PETA:,.0f}",
                  plain(100.0, 1)])  # fmt: skip
    header = ["Backbone", "Experiment", "Runs", "Members", "Steps", "PMACs", "Share (%)"]
    of_data = data[data["experiment"] == "benchmark"].groupby("dataset")["work"].sum() / PETA
    least, most = of_data.idxmin(), of_data.idxmax()
    return (
        f"{markdown.table(header, lines, 'llrrrrr')}\n\nA further data set costs the benchmark between "
        f"{of_data[least]:,.0f} PMACs ({dataset_title(least)}, "
        f"{tasks.task(least).test_images:,} test images) and {of_data[most]:,.0f} ({dataset_title(most)}, "
        f"{tasks.task(most).test_images:,})."
    )


def cards(root: Path) -> str:
    """Return how the paper's trainings spread over cards, as single runs and as the jobs of experiments/slurm.yaml."""
    data, size = trainings(root), Site.read(root / "experiments/slurm.yaml").runs_per_job
    work, largest = data["work"], data.loc[data["work"].idxmax()]
    total, hours = work.sum(), measured_hours(root)
    jobs = [work.iloc[start : start + size].sum() for start in range(0, len(work), size)]
    singly = sorted(work, reverse=True)
    lines = []
    for count in CARDS:
        spans = longest(singly, count), longest(jobs, count)
        gains = [f"{plain(total / span, 2)} times" for span in spans]
        shown = [plain(column * spans[1] / total, 1) for column in hours.values()]
        lines.append([str(count), f"{spans[1] / PETA:,.0f}", *gains, *shown])
    header = ["Cards", "PMACs of the busiest", "Gain, one run per job", f"Gain, {size} runs per job",
              *(f"Hours, {name}" for name in hours)]  # fmt: skip
    said = (
        f"The largest run is {METHODS[largest.method].title} on {dataset_title(largest.dataset)} with "
        f"{backbone_title(largest.backbone)} (`{largest.experiment}`): {largest.work / PETA:,.1f} PMACs, one in "
        f"{total / largest.work:,.0f} of the whole. As no run is split, that many cards are the most that can help; in "
        f"jobs of {size} runs, {total / max(jobs):,.0f}."
    )
    if not hours:
        said += " No GPU was at hand, so hours are not known: see the formula."
    return f"{markdown.table(header, lines, 'rrrr' + 'r' * len(hours))}\n\n{said}"


def searches(root: Path) -> str:
    """Return, per profile, the runs that search a hyperparameter and those that wait for them."""
    lines = []
    for path in sorted((root / "experiments/profiles").glob("*.yaml")):
        described = Profile.read(path)
        for profile in (described, described.of_language()) if described.language else (described,):
            listed = [run for name in profile.experiments for run in profile.runs(name, "results")]
            awaited = {path for run in listed for path in run.awaited}
            searching = [run for run in listed if run.path in awaited]
            waiting = [run for run in listed if run.waits and run.path not in awaited]
            name = f"`{profile.name}`" + ", text" * profile.text
            lines.append([name, str(len(searching)), str(sum(len(run.candidates) for run in searching)),
                          str(len(waiting)), str(len(listed) - len(searching) - len(waiting))])  # fmt: skip
    header = ["Profile", "Runs of searches", "Their members", "Runs that wait for them", "Runs that do not"]
    return markdown.table(header, lines, "lrrrr")


def plan(root: Path) -> Profile:
    """Return the paper's profile."""
    return Profile.read(root / f"experiments/profiles/{PROFILE}.yaml")


def trainings(root: Path) -> pd.DataFrame:
    """Return a row per training of the paper's profile, in the order of submission: what it is, and its `work`."""
    profile, rows = plan(root), []
    shapes = {}
    for backbone in profile.backbones:
        record = cost_records.read_record(cost_records.record_path(root / "results", PROFILE, backbone))
        shapes[backbone] = Shape(**record["shape"])
    per_epoch = -(-vtab.TRAINING["train800"] // profile.training.batch_size)
    for name in profile.experiments:
        for run in profile.runs(name, "results"):
            rows.append(
                {
                    "experiment": named(run.experiment).name,
                    "backbone": run.backbone,
                    "dataset": run.dataset,
                    "method": run.method,
                    "members": len(run.candidates),
                    "steps": 0 if run.method == "linear" else EPOCHS * per_epoch,
                    "work": work(run, shapes[run.backbone]),
                }
            )
    return pd.DataFrame(rows)


def work(run: Run, shape: Shape) -> float:
    """Return the multiply-adds of a training with `EPOCHS` epochs, and of the test of the chosen member."""
    train, validation = vtab.TRAINING["train800"], vtab.TRAINING["val200"]
    test, frozen = tasks.task(run.dataset).test_images, cost.backbone_multiply_adds(shape)
    if run.method == "linear":
        return float((train + validation + test) * frozen)
    members = [(_pass(c.method, shape, True), _pass(c.method, shape, False)) for c in run.candidates]
    trained = sum(2 * train * sampled + validation * mean for sampled, mean in members)
    tested = Fraction(sum(mean for _, mean in members), len(members))  # the mean over what may be chosen
    return float(EPOCHS * trained + test * tested)


def _pass(method: Method, shape: Shape, sampled: bool) -> int:
    """Return the multiply-adds of one image through backbone and adapters. InputError without a closed form."""
    added = cost.adapter_multiply_adds(method, shape, sampled)
    if added is None:
        raise InputError(f"{method.title} has no closed form of its multiply-adds")
    return cost.backbone_multiply_adds(shape) + added


def longest(works: Sequence[float], count: int) -> float:
    """Return the work of the busiest card when each of `works`, in turn, goes to the card that is free first."""
    busy = [0.0] * count
    for one in works:
        heapq.heapreplace(busy, busy[0] + one)
    return max(busy)


def measured_hours(root: Path) -> dict[str, float]:
    """Return the hours of all trainings on one card, by card, that experiments/benchmark_throughput.py measured."""
    hours = {}
    for path in sorted((root / "results/performance").glob("throughput_*.csv")):
        table = pd.read_csv(path)
        if set(table["experiment"]) <= set(EXPERIMENTS):
            hours[re.sub("^throughput_", "", path.stem).replace("_", " ")] = float(table["hours"].sum())
    return hours
