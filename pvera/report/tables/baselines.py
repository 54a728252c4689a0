"""PVeRA's draws against baselines of uncertainty: scores, detection of errors, shift; and PVeRA along β.

A *way* is one pass, draws, an ensemble of seeds, or Laplace, with the adapters of one method; tables group ways of
equal numbers of forward passes. Their cells are means over data sets of what `study.baselines` computed.
"""

from collections.abc import Iterable, Sequence
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
SOURCES = {"baselines": "", "dropout_baselines": " with dropout"}
ALONG_BETA = "beta_baselines_"  # the experiments' names begin so, and end in β
KEY = ["passes", "method", "source", "way"]
WAYS = ["pass", "laplace", "draws", "ensemble"]
#: Frame -> what its numbers depend on beside way, data set and seed.
CONDITIONS = {"scores": ["scaled"], "detection": ["by"], "shift": ["severity", "scaled"], "out": ["distance", "by"]}
#: Number -> what it is multiplied by, to be shown.
FACTORS = dict.fromkeys(["accuracy", "ece", "ece_floor", "ace", "ace_floor", "selective_accuracy", "fpr"], 100)
FACTORS |= dict.fromkeys(["aurc", "augrc"], 1000)


class Comparison(NamedTuple):
    """The first record, and the frames of `study.baselines` of all data sets.

    Rows of frames have data set, category, method and source; those of "out" the distance of the other data set.
    measures: all numbers, scaled as `FACTORS` says, rows (`KEY`, dataset, seed). A column's name is that of the number
    and its conditions: "nll" and "nll T" after temperature scaling, "auroc entropy" by what, "ace 5" by severity.
    """

    record: dict
    frames: dict[str, pd.DataFrame]
    measures: pd.DataFrame


def load(root, profile: str, sources: Iterable[str] = SOURCES) -> Comparison | None:
    """Load the comparisons of some experiments, by default of the benchmark's adapters and those with dropout.

    None where there are none.
    """
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in FRAMES}
    records = []
    for source in sources:
        for record in results.load_runs(root, profile, source):
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
    measures = [_measures(frames[name], conditions) for name, conditions in CONDITIONS.items() if len(frames[name])]
    return Comparison(records[0], frames, pd.concat(measures, axis=1))


def _measures(frame: pd.DataFrame, conditions: list[str]) -> pd.DataFrame:
    """Return the numbers of a frame as `Comparison.measures`: a column per number and conditions."""
    frame = frame.replace({"scaled": {False: "", True: "T"}})
    numbers = list(frame.select_dtypes("float"))
    means = frame.groupby([*KEY, "dataset", "seed", *conditions])[numbers].mean()
    table = (means * [FACTORS.get(number, 1) for number in numbers]).unstack(conditions)
    return table.set_axis([" ".join(filter(None, map(str, column))) for column in table], axis=1)


def describe_runs(comparison: Comparison) -> str:
    """Describe the adapters for a caption."""
    scores = comparison.frames["scores"]
    datasets = sorted(scores[["category", "dataset"]].drop_duplicates().to_dict("records"), key=place)
    seeds = [comparison.record | {"seed": seed} for seed in set(scores["seed"]) - {ALL_SEEDS}]
    return f"{origin(seeds, [record['dataset'] for record in datasets])}."


# The cells


def means(measures: pd.DataFrame, by: Sequence[str] = KEY) -> pd.DataFrame:
    """Return the mean of `Comparison.measures` over data sets, after that over seeds.

    NaN for a way that one of the data sets lacks: its mean would be over other data sets than those of the others.
    """
    of_tasks = measures.groupby([*by, "dataset"]).mean().unstack("dataset")
    parts = {name: of_tasks[name].dropna(axis=1, how="all") for name in measures}
    return pd.DataFrame({name: part.mean(axis=1, skipna=False) for name, part in parts.items()})


def with_floor(error: str, floor: str, row: pd.Series) -> str:
    """Return a calibration error with that of calibrated scores in brackets."""
    return f"{plain(row[error], 1)} ({plain(row[floor], 1)})"


def ordered(keys) -> list[tuple]:
    """Sort keys, which begin with `KEY`, by passes, method, source and way: mean, Laplace, draws, ensembles."""
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

SCORES = {
    "accuracy": ("Accuracy (%)", 1),
    "nll": ("NLL", 3),
    "brier": ("Brier", 3),
    "ece": ("ECE (%)", partial(with_floor, "ece", "ece_floor")),
    "ace": ("ACE (%)", partial(with_floor, "ace", "ace_floor")),
    "nll T": ("NLL, T", 3),
    "brier T": ("Brier, T", 3),
    "ece T": ("ECE, T", partial(with_floor, "ece T", "ece_floor T")),
    "ace T": ("ACE, T", partial(with_floor, "ace T", "ace_floor T")),
    "milliseconds": ("ms", 2),
}


DETECTION = {
    "auroc score": ("AUROC, score", 3),
    "auroc entropy": ("entropy", 3),
    "auroc mutual": ("mutual", 3),
    "auroc spread": ("spread", 3),
    "aurc score": ("AURC", 1),
    "augrc score": ("AUGRC", 1),
    "selective_accuracy score": ("Accuracy at 80 % (%)", 1),
    "expected": ("Expected entropy", 3),
    "mutual": ("Mutual information", 3),
}


#: Name of a table -> its columns, its frame of `Comparison.frames`, and its caption.
TABLES = {
    "baselines": (SCORES, "scores", (
        "Scores on the test split, mean over data sets and seeds. NLL in nats. ECE and ACE in points, their floor in "
        "brackets: the mean error of labels that are drawn from the predictions. T: after temperature scaling, fitted "
        "on the validation split, which changes no accuracy. ms: milliseconds per image, measured beside other "
        "processes. Draws: Monte Carlo samples of PVeRA's latents, or of dropout's masks."
    )),
    "baselines_detection": (DETECTION, "detection", (
        "Detection of incorrect predictions within each data set, mean over data sets and seeds. AUROC (0.5: chance) "
        "by 1 − the highest score, by the entropy of the mean prediction, by the mutual information of label and draw "
        "(or member), and by the standard deviation of the highest score over draws. By 1 − the highest score: AURC "
        "and AUGRC, areas under the risk-coverage curve and the generalised one, times 1000, lower is better; accuracy "
        f"on the {100 * COVERAGE:.0f} % of images with the lowest uncertainty. Entropies in nats: the expected entropy "
        "of a draw, and the mutual information, which add up to the entropy of the mean."
    )),
}  # fmt: skip


def table(comparison: Comparison, name: str) -> Table:
    """Build one of `TABLES`: a panel per number of passes, a row per way."""
    spec, frame, caption = TABLES[name]
    panels = by_passes(means(comparison.measures))
    return Table(name, caption, panels, spec, comparison.frames[frame], describe_runs(comparison))


SHIFT = {
    "accuracy 5": ("Accuracy, 5 (%)", 1),
    "ace 0": ("ACE, 0 (%)", 1),
    "ace 1": ("1", 1),
    "ace 3": ("3", 1),
    "ace 5": ("5", 1),
    "ace 5 T": ("5, T", 1),
    "auroc same category score": ("AUROC, near", 3),
    "fpr same category score": ("FPR (%), near", 1),
    "auroc same category mutual": ("AUROC, mutual, near", 3),
    "auroc other category score": ("AUROC, far", 3),
    "fpr other category score": ("FPR (%), far", 1),
    "auroc other category mutual": ("AUROC, mutual, far", 3),
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
    panels = by_passes(means(comparison.measures)[list(SHIFT)].dropna(how="all"))
    data = pd.concat([comparison.frames["shift"], comparison.frames["out"]])
    measured = [*METRICS, "auroc", "fpr"]
    kept = list(data.columns.drop([*measured, "corruption", "seed"]))
    data = data.groupby(kept, sort=False, dropna=False)[measured].mean().reset_index()
    return Table("baselines_shift", caption, panels, SHIFT, data, describe_runs(comparison))


BETA = {
    "accuracy": ("Accuracy (%)", 1),
    "nll": ("NLL", 3),
    "ace": ("ACE (%)", 1),
    "nll_draws": ("NLL, draws", 3),
    "ace_draws": ("ACE, draws (%)", 1),
    "auroc": ("AUROC, score", 3),
    "auroc_spread": ("AUROC, spread", 3),
    "mutual": ("Mutual information", 4),
}


def beta_table(root, profile: str) -> Table | None:
    """Build the table of PVeRA's scores along β; None without these analyses."""
    along = load(root, profile, sorted(path.name for path in (Path(root) / profile).glob(f"{ALONG_BETA}*")))
    if along is None:
        return None
    most = along.measures.xs("draws", level="way").index.unique("passes").max()
    one, drawn = (
        means(along.measures.xs(way, level=["way", "passes"]), ["source"]) for way in (("pass", 1), ("draws", most))
    )
    data = one[["accuracy", "nll", "ace"]].join(drawn[["nll", "ace"]].add_suffix("_draws"))
    data = data.assign(auroc=one["auroc score"], auroc_spread=drawn["auroc spread"], mutual=drawn["mutual"])
    betas = data.index.str.removeprefix(ALONG_BETA).astype(float)
    data = data.set_axis(betas).rename_axis("beta").sort_index()
    panel = data.rename(number)
    data[["accuracy", "ace", "ace_draws"]] /= 100
    caption = (
        f"PVeRA along β, mean over data sets and seeds. One pass with the mean, and {most} draws. ACE in "
        "points. AUROC of incorrect predictions (0.5: chance): by 1 − the highest score of one pass, and "
        "by the standard deviation of the highest score over draws. Mutual information of label and draw in nats. The "
        f"published program takes β = {number(1e-6)} more often than any other value, but averages the KL term over "
        "latent dimensions, where Eq. 9 sums it: its weight is a smaller one here."
    )
    return Table("beta_effects", caption, {"": panel}, BETA, data.reset_index(), describe_runs(along))


# Differences

#: Title -> column of `Comparison.measures`.
DIFFERENCES = {
    "NLL": "nll",
    "ACE (points)": "ace",
    "NLL, T": "nll T",
    "ACE, T (points)": "ace T",
    "AUROC of errors": "auroc score",
    "AUGRC × 1000": "augrc score",
}
REFERENCE = (1, "pvera", "baselines", "pass")


def compared(comparison: Comparison, name: str) -> pd.Series:
    """Return a score of `DIFFERENCES` by way (`KEY`), data set and seed. Ensembles stand under each seed."""
    table = comparison.measures[DIFFERENCES[name]].unstack("seed")
    if ALL_SEEDS in table:
        ensembles = table.pop(ALL_SEEDS)
        table = table.apply(lambda of_seed: ensembles.fillna(of_seed))
    return table.stack(future_stack=True)


def differences_table(comparison: Comparison) -> Table:
    """Build the table of differences from one pass of PVeRA, with intervals over data sets."""
    parts = {}
    for name in DIFFERENCES:
        values = compared(comparison, name).unstack(KEY)
        gaps = values.sub(values.get(REFERENCE, np.nan), axis=0)
        parts[name] = over_datasets(gaps.drop(columns=[REFERENCE], errors="ignore"))
    data = pd.concat(parts, names=["score"]).dropna(how="all").reorder_levels([*KEY, "score"])
    data = data.loc[ordered(data.index)].reset_index()
    digits = [3 if name.startswith(("NLL", "AUROC")) else 2 for name in data["score"]]
    texts = map(interval, data["mean"], data["low"], data["high"], digits)
    cells = data.assign(text=list(texts)).pivot(index=KEY, columns="score", values="text")
    cells = cells.reindex(columns=list(DIFFERENCES)).fillna(NOTHING)
    caption = (
        "Difference from one pass with PVeRA's mean, paired by data set and seed, with its 95 % interval by Student's "
        "t over data sets. Above zero is better for AUROC, below zero for all others. An ensemble of all seeds is "
        "compared with each of them."
    )
    return Table("baselines_differences", caption, by_passes(cells), data=data, source=describe_runs(comparison))


#: Short name -> method, source and way.
SHORT = {
    "mean": ("pvera", "baselines", "pass"),
    "draws": ("pvera", "baselines", "draws"),
    "ensemble": ("vera", "baselines", "ensemble"),
    "dropout": ("vera", "dropout_baselines", "draws"),
}


@contrast
def better(comparison: Comparison, name: str, way: str, other: str) -> Gaps:
    """Return how far one way of `SHORT` is better than another in a score of `DIFFERENCES`.

    Each way has the most passes that it was tried with. `Untestable` without one of them.
    """
    values, of_ways = compared(comparison, name), []
    for method, source, kind in (SHORT[way], SHORT[other]):
        keys = [index[:4] for index in values.index if index[1:4] == (method, source, kind)]
        if not keys:
            raise Untestable(f"no runs of {title(method)}{SOURCES[source]}, {kind}")
        of_ways.append(values.loc[max(keys)])
    gain = of_ways[0] - of_ways[1]
    return {"": gain if name.startswith("AUROC") else -gain}
