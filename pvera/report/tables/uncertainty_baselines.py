"""PVeRA's draws against other ways to uncertainty: scores, detection of errors, shift.

A *way* is one pass, draws, an ensemble of seeds, or Laplace, with the adapters of one method; tables group ways of
equal numbers of forward passes. `rivals` of `pvera.study` computed the scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS
from pvera.report.statistics import smallest
from pvera.report.table import NOTHING, Table, interval, plain, title
from pvera.report.tables.names import origin
from pvera.report.tables.verdicts import Untestable
from pvera.study import results
from pvera.study.rivals import ALL_SEEDS, COVERAGE, FRAMES, read_frames

#: Experiment -> what is added to the titles of its methods.
SOURCES = {"rivals": "", "dropout_rivals": " with dropout"}
KEY = ["passes", "method", "source", "way"]
NEAR, FAR = "same category", "other category"


@dataclass(frozen=True)
class Baselines:
    """The frames of `study.rivals` of all data sets, each row with its data set, category, method and source.

    record: the first result's.
    """

    record: dict
    scores: pd.DataFrame
    detection: pd.DataFrame
    coverage: pd.DataFrame
    shift: pd.DataFrame
    out: pd.DataFrame

    @property
    def datasets(self) -> list[str]:
        """The data sets, in the paper's order."""
        return sorted(set(self.scores["dataset"]), key=[*TASKS, *self.scores["dataset"]].index)


def load(root, profile: str) -> Baselines | None:
    """Load the comparisons of the benchmark and those with dropout; None where there are none."""
    return joined(root, profile, {experiment: {"source": experiment} for experiment in SOURCES})


def joined(root, profile: str, experiments: dict[str, dict]) -> Baselines | None:
    """Load the frames of several experiments, each with further columns; None where there are no results."""
    parts: dict[str, list[pd.DataFrame]] = {name: [] for name in FRAMES}
    records = []
    for experiment, columns in experiments.items():
        for record in results.load_runs(root, profile, experiment, optional=True):
            records.append(record)
            place = columns | {name: record[name] for name in ("dataset", "category", "method")}
            frames = read_frames(results.run_path(root, *(record[key] for key in results.IDENTITY)))
            for name, frame in frames.items():
                parts[name].append(frame.assign(**place))
    if not records:
        return None
    return Baselines(records[0], **{name: pd.concat(part, ignore_index=True) for name, part in parts.items()})


def way_title(method: str, source: str, way: str, passes: int) -> str:
    """Return the name of a way in tables and figures."""
    name = title(method) + SOURCES[source]
    ways = {
        "pass": "",
        "draws": f", {passes} draw{'s' * (passes > 1)}",
        "ensemble": f", ensemble of {passes} seeds",
        "laplace": ", Laplace",
    }
    return name + ways[way]


def over_tasks(frame: pd.DataFrame, value: str, by: Sequence[str] = KEY) -> pd.Series:
    """Return the mean over data sets of the mean over seeds and what else varies within a data set.

    NaN for a way that one of the data sets lacks: its mean would be over other data sets than those of the others.
    """
    of_tasks = frame.groupby([*by, "dataset"], sort=False)[value].mean().unstack("dataset")
    return of_tasks.mean(axis=1, skipna=False).sort_index()


def average(table: pd.DataFrame) -> float:
    """Return the mean over data sets of the mean over seeds of one table of `wide`; NaN as in `over_tasks`."""
    return float(table.mean(axis=1).mean(skipna=False))


def ordered(keys) -> list[tuple]:
    """Sort keys (`KEY`) by passes, then by method, and the mean before draws, ensembles and Laplace."""
    methods, ways = list(METHODS), ["pass", "laplace", "draws", "ensemble"]
    return sorted(
        keys, key=lambda key: (key[0], methods.index(key[1]), list(SOURCES).index(key[2]), ways.index(key[3]))
    )


def by_passes(cells: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return a panel per number of passes, a row per way; cells: a row per key (`KEY`)."""
    panels = {}
    for passes, part in cells.reindex(ordered(cells.index)).groupby(level="passes"):
        names = [way_title(method, source, way, passes) for _, method, source, way in part.index]
        panels[f"{passes} forward pass{'es' * (passes > 1)}"] = part.set_axis(names)
    return panels


def _floored(name: str) -> Callable[[pd.Series], str]:
    """Return the format of a calibration error with its floor, in points."""
    return lambda row: f"{plain(100 * row[name], 1)} ({plain(100 * row[f'floor_{name}'], 1)})"


SCORES = {
    "accuracy": ("Accuracy (%)", lambda row: plain(100 * row["accuracy"], 1)),
    "nll": ("NLL", 3),
    "brier": ("Brier", 3),
    "ece": ("ECE (%)", _floored("ece")),
    "ace": ("ACE (%)", _floored("ace")),
    "nll_t": ("NLL, T", 3),
    "brier_t": ("Brier, T", 3),
    "ece_t": ("ECE, T", _floored("ece_t")),
    "ace_t": ("ACE, T", _floored("ace_t")),
    "milliseconds": ("ms", 2),
}


def scores_table(baselines: Baselines) -> Table:
    """Build the table of accuracy, proper scores and calibration, before and after temperature scaling."""
    scores = baselines.scores.rename(columns={"ece_floor": "floor_ece", "ace_floor": "floor_ace"})
    columns = {"milliseconds": over_tasks(scores, "milliseconds")}
    for scaled, part in scores.groupby("scaled"):
        for name in ("accuracy", "nll", "brier", "ece", "ace", "floor_ece", "floor_ace"):
            columns[f"{name}_t" if scaled else name] = over_tasks(part, name)
    caption = (
        "Mean over data sets and seeds of the scores on the test split. NLL in nats. ECE and ACE in points, their "
        "floor in brackets: the mean error of labels that are drawn from the predictions. T: after temperature "
        "scaling, fitted on the validation split, which changes no accuracy. ms: milliseconds per image, measured "
        "beside other processes. Draws: Monte Carlo samples of PVeRA's latents, or of dropout's masks."
    )
    return Table("rivals", caption, by_passes(pd.DataFrame(columns)), SCORES, baselines.scores, about(baselines))


DETECTION = {
    "score": ("AUROC, score", 3),
    "entropy": ("entropy", 3),
    "mutual": ("mutual", 3),
    "spread": ("spread", 3),
    "aurc": ("AURC", lambda row: plain(1000 * row["aurc"], 1)),
    "augrc": ("AUGRC", lambda row: plain(1000 * row["augrc"], 1)),
    "selective_accuracy": ("Accuracy at 80 % (%)", lambda row: plain(100 * row["selective_accuracy"], 1)),
    "expected_entropy": ("Expected entropy", 3),
    "mutual_information": ("Mutual information", 3),
}


def detection_table(baselines: Baselines) -> Table:
    """Build the table of the detection of incorrect predictions, and of the parts of the entropy."""
    by_score = baselines.detection[baselines.detection["by"] == "score"]
    unscaled = baselines.scores[~baselines.scores["scaled"]]
    cells = over_tasks(baselines.detection, "auroc", [*KEY, "by"]).unstack("by")
    cells = cells.reindex(columns=["score", "entropy", "mutual", "spread"]).assign(
        **{name: over_tasks(by_score, name) for name in ("aurc", "augrc", "selective_accuracy")},
        expected_entropy=over_tasks(unscaled, "expected"),
        mutual_information=over_tasks(unscaled, "mutual"),
    )
    caption = (
        "Detection of incorrect predictions within each data set, mean over data sets and seeds. AUROC by 1 − the "
        "highest score, by the entropy of the mean prediction, by the mutual information of label and draw (or "
        "member), and by the standard deviation of the highest score over draws; 0.5 is chance. By 1 − the highest "
        "score: AURC and AUGRC, areas under the risk-coverage curve and the generalised one, times 1000, lower is "
        f"better; accuracy on the {100 * COVERAGE:.0f} % of images with the lowest uncertainty. Entropies in nats: the "
        "expected entropy of a draw, and the mutual information, which add up to the entropy of the mean."
    )
    return Table("rivals_detection", caption, by_passes(cells), DETECTION, baselines.detection, about(baselines))


SHIFT = {
    "accuracy": ("Accuracy, 5 (%)", 1),
    "ace_0": ("ACE, 0 (%)", 1),
    "ace_1": ("1", 1),
    "ace_3": ("3", 1),
    "ace_5": ("5", 1),
    "ace_5_t": ("5, T", 1),
} | {
    f"{name}, {by}, {distance}": (f"{of}, {short}", digits)
    for distance, short in ((NEAR, "near"), (FAR, "far"))
    for by, name, of, digits in (
        ("score", "auroc", "AUROC", 3), ("score", "fpr", "FPR (%)", 1), ("mutual", "auroc", "AUROC, mutual", 3)
    )
}  # fmt: skip


def shift_table(baselines: Baselines) -> Table:
    """Build the table of corrupted images, and of images of other data sets."""
    shift, out = baselines.shift, near_or_far(baselines) if len(baselines.out) else baselines.out
    ace = over_tasks(shift, "ace", [*KEY, "scaled", "severity"]).unstack(["scaled", "severity"])
    accuracy = over_tasks(shift, "accuracy", [*KEY, "severity"]).unstack("severity")
    columns = {f"ace_{severity}": 100 * ace[False, severity] for severity in (0, 1, 3, 5)}
    cells = pd.DataFrame(columns | {"ace_5_t": 100 * ace[True, 5], "accuracy": 100 * accuracy[5]})
    for name, factor in (("auroc", 1), ("fpr", 100)) if len(out) else ():
        told = factor * over_tasks(out, name, [*KEY, "distance", "by"]).unstack(["distance", "by"])
        cells = cells.join(told.set_axis([f"{name}, {by}, {distance}" for distance, by in told], axis=1))
    cells = cells.reindex(columns=list(SHIFT))
    count = baselines.record["config"]["shifted_images"]
    caption = (
        f"The first {count} test images of each data set with noise, blur, less contrast and JPEG compression in five "
        "severities (0: none), mean over corruptions, data sets and seeds. T: after temperature scaling on clean "
        "validation images. Near, far: as many images of a data set of the same category, and of one of another "
        "category; AUROC of telling them from the data set's own by 1 − the highest score or by mutual information, "
        "and the false-positive rate where 95 % of its own are accepted, lower is better."
    )
    return Table("rivals_shift", caption, by_passes(cells), SHIFT, shift.merge(out, "outer"), about(baselines))


def near_or_far(baselines: Baselines) -> pd.DataFrame:
    """Return the frame `out` with the column `distance`: whether the other data set is of the same category."""
    category = dict(zip(baselines.scores["dataset"], baselines.scores["category"], strict=True))
    category |= {name: TASKS[name].category for name in baselines.out["other"].unique() if name in TASKS}
    same = baselines.out["other"].map(category) == baselines.out["category"]
    return baselines.out.assign(distance=np.where(same, NEAR, FAR))


# Differences from one pass of PVeRA

Wide = dict[tuple, pd.DataFrame]


def wide(frame: pd.DataFrame, value: str) -> Wide:
    """Return (data sets x seeds) per way; the value of an ensemble of all seeds stands under each."""
    seeds = sorted(set(frame["seed"]) - {ALL_SEEDS})
    datasets = sorted(set(frame["dataset"]))
    tables = {}
    for key, part in frame.groupby(KEY, sort=False):
        table = part.pivot(index="dataset", columns="seed", values=value).reindex(datasets)
        if ALL_SEEDS in table:
            table = pd.concat([table[ALL_SEEDS]] * len(seeds), axis=1, keys=seeds)
        tables[key] = table.reindex(columns=seeds)
    return tables


REFERENCE = (1, "pvera", "rivals", "pass")
#: Column -> title, factor, digits; frame and value.
DIFFERENCES = {
    "NLL": ("scores", "nll", 1, 3),
    "ACE (points)": ("scores", "ace", 100, 2),
    "NLL, T": ("scaled", "nll", 1, 3),
    "ACE, T (points)": ("scaled", "ace", 100, 2),
    "AUROC of errors": ("detection", "auroc", 1, 3),
    "AUGRC × 1000": ("detection", "augrc", 1000, 2),
}


def compared(baselines: Baselines, column: str) -> Wide:
    """Return the values behind one column of `differences_table`, of each way (data sets x seeds)."""
    frame, value, factor, _ = DIFFERENCES[column]
    parts = {
        "scores": baselines.scores[~baselines.scores["scaled"]],
        "scaled": baselines.scores[baselines.scores["scaled"]],
        "detection": baselines.detection[baselines.detection["by"] == "score"],
    }
    return {key: factor * table for key, table in wide(parts[frame], value).items()}


def differences_table(baselines: Baselines) -> Table:
    """Build the table of differences from one pass of PVeRA, with intervals over data sets."""
    values = {column: compared(baselines, column) for column in DIFFERENCES}
    ways = ordered(values["NLL"].keys() - {REFERENCE}) if REFERENCE in values["NLL"] else []
    rows = []
    for key, (column, tables) in product(ways, values.items()):
        gaps = (tables[key] - tables[REFERENCE]).to_numpy()
        if not np.isnan(gaps).all():
            effect = smallest({"": gaps})
            text = interval(effect.mean, effect.low, effect.high, DIFFERENCES[column][-1])
            rows.append((*key, column, effect.mean, effect.low, effect.high, text))
    data = pd.DataFrame(rows, columns=[*KEY, "score", "mean", "low", "high", "text"])
    cells = data.pivot(index=KEY, columns="score", values="text").reindex(columns=list(DIFFERENCES)).fillna(NOTHING)
    caption = (
        "Difference from one pass with PVeRA's mean, paired by data set and seed, with its 95 % interval by Student's "
        "t over data sets. Above zero is better for AUROC, below zero for all others. An ensemble of all seeds is "
        "compared with each of them."
    )
    data = data.drop(columns="text")
    return Table("rivals_differences", caption, by_passes(cells), data=data, about=about(baselines))


# Claims


#: Short name -> method, source and way.
SHORT = {
    "mean": ("pvera", "rivals", "pass"),
    "draws": ("pvera", "rivals", "draws"),
    "ensemble": ("vera", "rivals", "ensemble"),
    "dropout": ("vera", "dropout_rivals", "draws"),
}


def _most(values: Wide, method: str, source: str, way: str) -> tuple:
    """Return the key of a way with the most passes. Raises `Untestable` without it."""
    keys = [key for key in values if key[1:] == (method, source, way)]
    if not keys:
        raise Untestable(f"no runs of {title(method)}{SOURCES[source]}, {way}")
    return max(keys)


LOWER, HIGHER = -1, 1


def higher(column: str, better: str, other: str) -> Callable[[Baselines], dict[str, pd.DataFrame]]:
    """Return the contrast of how far the way `better` lies above `other` in a column of `differences_table`; keys of
    `SHORT`."""

    def contrast(baselines: Baselines) -> dict[str, pd.DataFrame]:
        values = compared(baselines, column)
        one, two = (values[_most(values, *SHORT[name])] for name in (better, other))
        return {"": (one - two).rename_axis("seed", axis=1)}

    return contrast


def lower(column: str, better: str, other: str) -> Callable[[Baselines], dict[str, pd.DataFrame]]:
    """Return the contrast of how far the way `better` lies below `other`."""
    return higher(column, other, better)


#: Purpose -> columns of `differences_table`, as trained and, where it was measured, with a temperature; and whether
#: higher is better.
ADVICE = {
    "the predictive distribution": (("NLL", "NLL, T"), LOWER),
    "calibrated confidence": (("ACE (points)", "ACE, T (points)"), LOWER),
    "finding errors": (("AUROC of errors",), HIGHER),
}


def advice(baselines: Baselines) -> Table:
    """Build the table of the best way for each purpose, with one pass and with any number of passes.

    Ways that a data set lacks do not take part.
    """
    rows, data = {}, []
    methods = [title(name) for name in METHODS if name in set(baselines.scores["method"])]
    among = f"{', '.join(methods[:-1])} and {methods[-1]}" if len(methods) > 1 else methods[0]
    for purpose, (columns, sign) in ADVICE.items():
        values = {(column, *key): table for column in columns for key, table in compared(baselines, column).items()}
        trained, digits = columns[0], DIFFERENCES[columns[0]][-1]
        means = {key: average(table) for key, table in values.items()}
        complete = [key for key in values if not np.isnan(means[key])]
        cells = rows.setdefault(f"{purpose[0].upper()}{purpose[1:]}: {trained}", [])
        for passes, keys in (("one", [key for key in complete if key[1] == 1]), ("any", complete)):
            best = max(keys, key=lambda key: sign * means[key])
            ties = sum(_alike(values[key], values[best]) for key in keys if key != best)
            column, number, *way = best
            name = way_title(*way, number) + ("" if column == trained else ", with a temperature")
            cells.append(f"{name} ({plain(means[best], digits)}; {ties} of {len(keys) - 1})")
            data.append({"purpose": purpose, "score": column, "passes": passes, "best": name, "value": means[best],
                         "ties": ties, "others": len(keys) - 1, "among": among})  # fmt: skip
        cells.append(plain(means.get((trained, *REFERENCE), np.nan), digits))
    caption = (
        f"What to use: the best way for each purpose, mean over data sets and seeds, among the ways of {among}, each "
        "as trained and with a temperature; the other methods were not held against them. The best is that of the test "
        "images. In brackets its score, and how many of the others cannot be told apart from it: the 95 % interval of "
        "the difference contains zero. NLL in nats and ACE in points, lower is better; AUROC of finding incorrect "
        "predictions, higher is better."
    )
    header = ["With one pass", "With any number of passes", "One pass of PVeRA"]
    panel = pd.DataFrame.from_dict(rows, "index", columns=header)
    return Table("rivals_advice", caption, {"": panel}, data=pd.DataFrame(data), about=about(baselines))


def _alike(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Return whether the interval of the mean difference of two tables of `wide` contains zero, or there is none."""
    effect = smallest({"": (one - other).to_numpy()})
    return not (effect.low > 0 or effect.high < 0)


def about(baselines: Baselines) -> str:
    """Describe the adapters for a caption."""
    seeds = sorted(set(baselines.scores["seed"]) - {ALL_SEEDS})
    return f"{origin(baselines.record, seeds)}; data sets: {', '.join(map(title, baselines.datasets))}."
