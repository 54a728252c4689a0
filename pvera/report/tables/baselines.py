"""PVeRA's draws against baselines of uncertainty: scores, detection of errors, shift; and PVeRA along β.

A *way* is one pass, draws, an ensemble of seeds, or Laplace, with the adapters of one method; tables group ways of
equal numbers of forward passes. Their cells are means over data sets of what `study.baselines` computed.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS
from pvera.report.scores import place
from pvera.report.statistics import over_datasets
from pvera.report.table import NOTHING, Table, interval, number, origin, plain, title
from pvera.report.tables.verdicts import Gaps, Untestable, contrast
from pvera.study import results
from pvera.study.baselines import ALL_SEEDS, COVERAGE, FRAMES, METRICS, read_frames

#: Experiment -> what is added to the titles of its methods.
SOURCES = {"rivals": "", "dropout_rivals": " with dropout"}
ALONG_BETA = "beta_rivals_"  # the experiments' names begin so, and end in β
KEY = ["passes", "method", "source", "way"]
WAYS = ["pass", "laplace", "draws", "ensemble"]


class Comparison(NamedTuple):
    """The first record, and the frames of `study.baselines` of all data sets.

    Rows have data set, category, method and source; those of "out" the distance of the other data set.
    """

    record: dict
    frames: dict[str, pd.DataFrame]


def load(root, profile: str, sources: Iterable[str] = SOURCES) -> Comparison | None:
    """Load the comparisons of some experiments, by default of the benchmark's adapters and those with dropout.

    None where there are none.
    """
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in FRAMES}
    records = []
    for source in sources:
        for record in results.load_runs(root, profile, source, optional=True):
            records.append(record)
            named = {"source": source} | {name: record[name] for name in ("dataset", "category", "method")}
            for name, frame in read_frames(results.path_of(root, record)).items():
                parts[name].append(frame.assign(**named))
    if not records:
        return None
    frames = {name: pd.concat(part, ignore_index=True) for name, part in parts.items()}
    if len(out := frames["out"]):
        category = {name: task.category for name, task in TASKS.items()}
        category |= {record["dataset"]: record["category"] for record in records}
        same = out["other"].map(category) == out["category"]
        frames["out"] = out.assign(distance=np.where(same, "same category", "other category"))
    return Comparison(records[0], frames)


def load_along_beta(root, profile: str) -> Comparison | None:
    """Load the comparisons of PVeRA along β; None where there are none."""
    return load(root, profile, sorted(path.name for path in (Path(root) / profile).glob(f"{ALONG_BETA}*")))


def describe_runs(comparison: Comparison) -> str:
    """Describe the adapters for a caption."""
    scores = comparison.frames["scores"]
    datasets = sorted(scores[["category", "dataset"]].drop_duplicates().to_dict("records"), key=place)
    seeds = [comparison.record | {"seed": seed} for seed in set(scores["seed"]) - {ALL_SEEDS}]
    return f"{origin(seeds, [record['dataset'] for record in datasets])}."


# The cells


class Column(NamedTuple):
    """A column of a table.

    frame, value, where: its values, those of a frame's column in the rows that a query finds. factor, digits: as shown.
    floor: whether the value of calibrated scores stands in brackets, from the column <value>_floor. sign: 1 where
    higher is better.
    """

    title: str
    frame: str
    value: str
    where: str
    factor: float = 1
    digits: int = 3
    floor: bool = False
    sign: int = -1

    def rows(self, comparison: Comparison) -> pd.DataFrame:
        """Return the rows that count."""
        return comparison.frames[self.frame].query(self.where)


def over_tasks(frame: pd.DataFrame, value: str, by: Sequence[str] = KEY) -> pd.Series:
    """Return the mean over data sets of the mean over seeds and what else varies within a data set.

    NaN for a way that one of the data sets lacks: its mean would be over other data sets than those of the others.
    """
    of_tasks = frame.groupby([*by, "dataset"], sort=False)[value].mean().unstack("dataset")
    return of_tasks.mean(axis=1, skipna=False).sort_index()


def means(comparison: Comparison, columns: Mapping[str, Column], by: Sequence[str] = KEY) -> pd.DataFrame:
    """Return the means of columns over data sets and seeds, as shown, and those of their floors."""
    data = {}
    for name, column in columns.items():
        for ending in ("", "_floor")[: 1 + column.floor]:
            values = over_tasks(column.rows(comparison), column.value + ending, by)
            data[name + ending] = column.factor * values
    return pd.DataFrame(data)


def spec(columns: Mapping[str, Column]) -> dict[str, tuple]:
    """Return how `means` are shown."""

    def with_floor(name: str, row: pd.Series) -> str:
        return f"{plain(row[name], 1)} ({plain(row[f'{name}_floor'], 1)})"

    return {
        name: (column.title, partial(with_floor, name) if column.floor else column.digits)
        for name, column in columns.items()
    }


def ordered(keys) -> list[tuple]:
    """Sort keys (`KEY`) by passes, then by method and source, and the mean before Laplace, draws and ensembles."""
    methods, sources = list(METHODS), list(SOURCES)
    return sorted(keys, key=lambda key: (key[0], methods.index(key[1]), sources.index(key[2]), WAYS.index(key[3])))


def by_passes(cells: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return a panel per number of passes, a row per way; cells: a row per key (`KEY`)."""
    panels = {}
    for passes, part in cells.reindex(ordered(cells.index)).groupby(level="passes"):
        draws = ", 1 draw" if passes == 1 else f", {passes} draws"
        ways = {"pass": "", "laplace": ", Laplace", "draws": draws, "ensemble": f", ensemble of {passes} seeds"}
        names = [title(method) + SOURCES[source] + ways[way] for _, method, source, way in part.index]
        panels["1 forward pass" if passes == 1 else f"{passes} forward passes"] = part.set_axis(names)
    return panels


# The tables

TRAINED, SCALED = "not scaled", "scaled"
BY_SCORE, BY_MUTUAL = "by == 'score'", "by == 'mutual'"
NEAR, FAR = "distance == 'same category'", "distance == 'other category'"

SCORES = {
    "accuracy": Column("Accuracy (%)", "scores", "accuracy", TRAINED, 100, 1),
    "nll": Column("NLL", "scores", "nll", TRAINED),
    "brier": Column("Brier", "scores", "brier", TRAINED),
    "ece": Column("ECE (%)", "scores", "ece", TRAINED, 100, floor=True),
    "ace": Column("ACE (%)", "scores", "ace", TRAINED, 100, floor=True),
    "nll_t": Column("NLL, T", "scores", "nll", SCALED),
    "brier_t": Column("Brier, T", "scores", "brier", SCALED),
    "ece_t": Column("ECE, T", "scores", "ece", SCALED, 100, floor=True),
    "ace_t": Column("ACE, T", "scores", "ace", SCALED, 100, floor=True),
    "milliseconds": Column("ms", "scores", "milliseconds", TRAINED, digits=2),
}


def scores_table(comparison: Comparison) -> Table:
    """Build the table of accuracy, proper scores and calibration, before and after temperature scaling."""
    caption = (
        "Scores on the test split, mean over data sets and seeds. NLL in nats. ECE and ACE in points, their floor in "
        "brackets: the mean error of labels that are drawn from the predictions. T: after temperature scaling, fitted "
        "on the validation split, which changes no accuracy. ms: milliseconds per image, measured beside other "
        "processes. Draws: Monte Carlo samples of PVeRA's latents, or of dropout's masks."
    )
    panels = by_passes(means(comparison, SCORES))
    return Table("rivals", caption, panels, spec(SCORES), comparison.frames["scores"], describe_runs(comparison))


DETECTION = {
    "score": Column("AUROC, score", "detection", "auroc", BY_SCORE, sign=1),
    "entropy": Column("entropy", "detection", "auroc", "by == 'entropy'"),
    "mutual": Column("mutual", "detection", "auroc", BY_MUTUAL),
    "spread": Column("spread", "detection", "auroc", "by == 'spread'"),
    "aurc": Column("AURC", "detection", "aurc", BY_SCORE, 1000, 1),
    "augrc": Column("AUGRC", "detection", "augrc", BY_SCORE, 1000, 1),
    "selective_accuracy": Column("Accuracy at 80 % (%)", "detection", "selective_accuracy", BY_SCORE, 100, 1),
    "expected_entropy": Column("Expected entropy", "scores", "expected", TRAINED),
    "mutual_information": Column("Mutual information", "scores", "mutual", TRAINED),
}


def detection_table(comparison: Comparison) -> Table:
    """Build the table of the detection of incorrect predictions, and of the parts of the entropy."""
    caption = (
        "Detection of incorrect predictions within each data set, mean over data sets and seeds. AUROC (0.5: chance) "
        "by 1 − the highest score, by the entropy of the mean prediction, by the mutual information of label and draw "
        "(or member), and by the standard deviation of the highest score over draws. By 1 − the highest score: AURC "
        "and AUGRC, areas under the risk-coverage curve and the generalised one, times 1000, lower is better; accuracy "
        f"on the {100 * COVERAGE:.0f} % of images with the lowest uncertainty. Entropies in nats: the expected entropy "
        "of a draw, and the mutual information, which add up to the entropy of the mean."
    )
    panels, data = by_passes(means(comparison, DETECTION)), comparison.frames["detection"]
    return Table("rivals_detection", caption, panels, spec(DETECTION), data, describe_runs(comparison))


SHIFT = {
    "accuracy": Column("Accuracy, 5 (%)", "shift", "accuracy", "severity == 5", 100, 1),
    "ace_0": Column("ACE, 0 (%)", "shift", "ace", "severity == 0 and not scaled", 100, 1),
    "ace_1": Column("1", "shift", "ace", "severity == 1 and not scaled", 100, 1),
    "ace_3": Column("3", "shift", "ace", "severity == 3 and not scaled", 100, 1),
    "ace_5": Column("5", "shift", "ace", "severity == 5 and not scaled", 100, 1),
    "ace_5_t": Column("5, T", "shift", "ace", "severity == 5 and scaled", 100, 1),
    "near": Column("AUROC, near", "out", "auroc", f"{NEAR} and {BY_SCORE}"),
    "near_fpr": Column("FPR (%), near", "out", "fpr", f"{NEAR} and {BY_SCORE}", 100, 1),
    "near_mutual": Column("AUROC, mutual, near", "out", "auroc", f"{NEAR} and {BY_MUTUAL}"),
    "far": Column("AUROC, far", "out", "auroc", f"{FAR} and {BY_SCORE}"),
    "far_fpr": Column("FPR (%), far", "out", "fpr", f"{FAR} and {BY_SCORE}", 100, 1),
    "far_mutual": Column("AUROC, mutual, far", "out", "auroc", f"{FAR} and {BY_MUTUAL}"),
}


def shift_table(comparison: Comparison) -> Table:
    """Build the table of corrupted images, and of images of other data sets."""
    count = comparison.record["config"]["shifted_images"]
    caption = (
        f"The first {count} test images of each data set with noise, blur, less contrast and JPEG compression in five "
        "severities (0: none), mean over corruptions, data sets and seeds. T: after temperature scaling on clean "
        "validation images. Near, far: as many images of a data set of the same category, and of one of another "
        "category; AUROC of telling them from the data set's own by 1 − the highest score or by mutual information, "
        "and the false-positive rate where 95 % of its own are accepted, lower is better."
    )
    panels = by_passes(means(comparison, SHIFT))
    data = pd.concat([comparison.frames["shift"], comparison.frames["out"]])
    measured = [*METRICS, "auroc", "fpr"]
    kept = list(data.columns.drop([*measured, "corruption", "seed"]))
    data = data.groupby(kept, sort=False, dropna=False)[measured].mean().reset_index()
    return Table("rivals_shift", caption, panels, spec(SHIFT), data, describe_runs(comparison))


_PASS, _DRAWS = "way == 'pass' and not scaled", "way == 'draws' and not scaled"
BETA = {
    "accuracy": Column("Accuracy (%)", "scores", "accuracy", _PASS, digits=1),
    "nll": Column("NLL", "scores", "nll", _PASS),
    "ace": Column("ACE (%)", "scores", "ace", _PASS, digits=1),
    "nll_draws": Column("NLL, draws", "scores", "nll", _DRAWS),
    "ace_draws": Column("ACE, draws (%)", "scores", "ace", _DRAWS, digits=1),
    "auroc": Column("AUROC, score", "detection", "auroc", "way == 'pass' and by == 'score'"),
    "auroc_spread": Column("AUROC, spread", "detection", "auroc", "way == 'draws' and by == 'spread'"),
    "mutual": Column("Mutual information", "scores", "mutual", _DRAWS, digits=4),
}


def beta_table(along: Comparison) -> Table:
    """Build the table of PVeRA's scores along β (`load_along_beta`)."""
    most = along.frames["scores"].query("way == 'draws'")["passes"].max()
    frames = {name: along.frames[name].query(f"way != 'draws' or passes == {most}") for name in ("scores", "detection")}
    data = means(along._replace(frames=frames), BETA, ["source"])
    betas = data.index.str.removeprefix(ALONG_BETA).astype(float)
    data = data.set_axis(betas).rename_axis("beta").sort_index()
    panel = data.rename(number)
    panel[["accuracy", "ace", "ace_draws"]] *= 100
    caption = (
        f"PVeRA along β, mean over data sets and seeds. One pass with the mean, and {most} draws. ACE in "
        "points. AUROC of incorrect predictions (0.5: chance): by 1 − the highest score of one pass, and "
        "by the standard deviation of the highest score over draws. Mutual information of label and draw in nats. The "
        f"published program takes β = {number(1e-6)} more often than any other value, but averages the KL term over "
        "latent dimensions, where Eq. 9 sums it: its weight is a smaller one here."
    )
    return Table("beta_effects", caption, {"": panel}, spec(BETA), data.reset_index(), describe_runs(along))


# Differences

DIFFERENCES = {
    "NLL": SCORES["nll"],
    "ACE (points)": SCORES["ace"],
    "NLL, T": SCORES["nll_t"],
    "ACE, T (points)": SCORES["ace_t"],
    "AUROC of errors": DETECTION["score"],
    "AUGRC × 1000": DETECTION["augrc"],
}
REFERENCE = (1, "pvera", "rivals", "pass")


def compared(comparison: Comparison, name: str) -> pd.DataFrame:
    """Return a score of `DIFFERENCES`: rows ways (`KEY`) and data sets, columns seeds. Ensembles stand under each."""
    column = DIFFERENCES[name]
    table = column.rows(comparison).pivot(index=[*KEY, "dataset"], columns="seed", values=column.value)
    if ALL_SEEDS in table:
        ensembles = table.pop(ALL_SEEDS)
        table = table.apply(lambda of_seed: ensembles.fillna(of_seed))
    return column.factor * table


def differences_table(comparison: Comparison) -> Table:
    """Build the table of differences from one pass of PVeRA, with intervals over data sets."""
    parts = {}
    for name in DIFFERENCES:
        values = compared(comparison, name).stack(future_stack=True).unstack(KEY)
        gaps = values.sub(values.get(REFERENCE, np.nan), axis=0)
        parts[name] = over_datasets(gaps.drop(columns=[REFERENCE], errors="ignore"))
    data = pd.concat(parts, names=["score"]).dropna(how="all").reorder_levels([*KEY, "score"])
    ways = ordered(data.index.droplevel("score").unique())
    data = data.loc[[(*way, name) for way in ways for name in DIFFERENCES if (*way, name) in data.index]].reset_index()
    digits = {name: 3 if column.factor == 1 else 2 for name, column in DIFFERENCES.items()}
    intervals = [interval(row.mean, row.low, row.high, digits[row.score]) for row in data.itertuples(index=False)]
    cells = data.assign(text=intervals).pivot(index=KEY, columns="score", values="text")
    cells = cells.reindex(columns=list(DIFFERENCES)).fillna(NOTHING)
    caption = (
        "Difference from one pass with PVeRA's mean, paired by data set and seed, with its 95 % interval by Student's "
        "t over data sets. Above zero is better for AUROC, below zero for all others. An ensemble of all seeds is "
        "compared with each of them."
    )
    return Table("rivals_differences", caption, by_passes(cells), data=data, source=describe_runs(comparison))


#: Short name -> method, source and way.
SHORT = {
    "mean": ("pvera", "rivals", "pass"),
    "draws": ("pvera", "rivals", "draws"),
    "ensemble": ("vera", "rivals", "ensemble"),
    "dropout": ("vera", "dropout_rivals", "draws"),
}


@contrast
def better(comparison: Comparison, name: str, way: str, other: str) -> Gaps:
    """Return how far one way of `SHORT` is better than another in a score of `DIFFERENCES`.

    Each way has the most passes that it was tried with. `Untestable` without one of them.
    """
    values = compared(comparison, name)

    def with_most_passes(method: str, source: str, kind: str) -> pd.DataFrame:
        keys = [index[:4] for index in values.index if index[1:4] == (method, source, kind)]
        if not keys:
            raise Untestable(f"no runs of {title(method)}{SOURCES[source]}, {kind}")
        return values.loc[max(keys)]

    return {"": DIFFERENCES[name].sign * (with_most_passes(*SHORT[way]) - with_most_passes(*SHORT[other]))}
