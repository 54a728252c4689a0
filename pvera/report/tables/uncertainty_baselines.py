"""PVeRA's draws against other ways to uncertainty: scores, detection of errors, shift.

A *way* is one pass, draws, an ensemble of seeds, or Laplace, with the adapters of one method; tables group ways of
equal numbers of forward passes. `uncertainty_baselines` of `pvera.study` computed the scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS
from pvera.report.statistics import smallest
from pvera.report.table import NOTHING, Table, crossed, interval, plain, title
from pvera.report.tables.names import origin
from pvera.report.tables.verdicts import Untestable
from pvera.study import results
from pvera.study.uncertainty_baselines import ALL_SEEDS, COVERAGE, FRAMES, read_frames

#: Experiment -> what is added to the titles of its methods.
SOURCES = {"rivals": "", "dropout_rivals": " with dropout"}
KEY = ["passes", "method", "source", "way"]
WAYS = ["pass", "laplace", "draws", "ensemble"]
NEAR, FAR = "same category", "other category"


@dataclass(frozen=True)
class Baselines:
    """The frames of `study.uncertainty_baselines` of all data sets; rows have data set, category, method, source.

    record: the first result's.
    """

    record: dict
    scores: pd.DataFrame
    detection: pd.DataFrame
    coverage: pd.DataFrame
    shift: pd.DataFrame
    out: pd.DataFrame


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


def about(baselines: Baselines) -> str:
    """Describe the adapters for a caption."""
    scores = baselines.scores
    datasets = sorted(set(scores["dataset"]), key=[*TASKS, *scores["dataset"]].index)
    return f"{origin(baselines.record, sorted(set(scores['seed']) - {ALL_SEEDS}), datasets)}."


def way_title(method: str, source: str, way: str, passes: int) -> str:
    """Return the name of a way in tables and figures."""
    draws = ", 1 draw" if passes == 1 else f", {passes} draws"
    ways = {"pass": "", "laplace": ", Laplace", "draws": draws, "ensemble": f", ensemble of {passes} seeds"}
    return title(method) + SOURCES[source] + ways[way]


def over_tasks(frame: pd.DataFrame, value: str, by: Sequence[str] = KEY) -> pd.Series:
    """Return the mean over data sets of the mean over seeds and what else varies within a data set.

    NaN for a way that one of the data sets lacks: its mean would be over other data sets than those of the others.
    """
    of_tasks = frame.groupby([*by, "dataset"], sort=False)[value].mean().unstack("dataset")
    return of_tasks.mean(axis=1, skipna=False).sort_index()


def average(table: pd.DataFrame) -> float:
    """Return the mean over data sets of the mean over seeds of one table of `compared`; NaN as in `over_tasks`."""
    return float(table.mean(axis=1).mean(skipna=False))


def ordered(keys) -> list[tuple]:
    """Sort keys (`KEY`) by passes, then by method and source, and the mean before Laplace, draws and ensembles."""
    methods, sources = list(METHODS), list(SOURCES)
    return sorted(keys, key=lambda key: (key[0], methods.index(key[1]), sources.index(key[2]), WAYS.index(key[3])))


def by_passes(cells: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return a panel per number of passes, a row per way; cells: a row per key (`KEY`)."""
    panels = {}
    for passes, part in cells.reindex(ordered(cells.index)).groupby(level="passes"):
        names = [way_title(method, source, way, passes) for _, method, source, way in part.index]
        panels["1 forward pass" if passes == 1 else f"{passes} forward passes"] = part.set_axis(names)
    return panels


# The tables


def _times(name: str, factor: int) -> Callable[[pd.Series], str]:
    """Return the format of a column times a factor, one decimal."""
    return lambda row: plain(factor * row[name], 1)


def _floored(name: str) -> Callable[[pd.Series], str]:
    """Return the format of a calibration error with its floor, in points."""
    return lambda row: f"{plain(100 * row[name], 1)} ({plain(100 * row[f'floor_{name}'], 1)})"


def _unscaled(baselines: Baselines) -> pd.DataFrame:
    return baselines.scores[~baselines.scores["scaled"]]


def _scaled(baselines: Baselines) -> pd.DataFrame:
    return baselines.scores[baselines.scores["scaled"]]


def _by_score(baselines: Baselines) -> pd.DataFrame:
    return baselines.detection[baselines.detection["by"] == "score"]


SCORES = {
    "accuracy": ("Accuracy (%)", _times("accuracy", 100)),
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
        "Scores on the test split, mean over data sets and seeds. NLL in nats. ECE and ACE in points, their floor in "
        "brackets: the mean error of labels that are drawn from the predictions. T: after temperature scaling, fitted "
        "on the validation split, which changes no accuracy. ms: milliseconds per image, measured beside other "
        "processes. Draws: Monte Carlo samples of PVeRA's latents, or of dropout's masks."
    )
    return Table("rivals", caption, by_passes(pd.DataFrame(columns)), SCORES, baselines.scores, about(baselines))


DETECTION = {
    "score": ("AUROC, score", 3),
    "entropy": ("entropy", 3),
    "mutual": ("mutual", 3),
    "spread": ("spread", 3),
    "aurc": ("AURC", _times("aurc", 1000)),
    "augrc": ("AUGRC", _times("augrc", 1000)),
    "selective_accuracy": ("Accuracy at 80 % (%)", _times("selective_accuracy", 100)),
    "expected_entropy": ("Expected entropy", 3),
    "mutual_information": ("Mutual information", 3),
}


def detection_table(baselines: Baselines) -> Table:
    """Build the table of the detection of incorrect predictions, and of the parts of the entropy."""
    columns = dict(over_tasks(baselines.detection, "auroc", [*KEY, "by"]).unstack("by").items())
    for name in ("aurc", "augrc", "selective_accuracy"):
        columns[name] = over_tasks(_by_score(baselines), name)
    for part, name in (("expected_entropy", "expected"), ("mutual_information", "mutual")):
        columns[part] = over_tasks(_unscaled(baselines), name)
    caption = (
        "Detection of incorrect predictions within each data set, mean over data sets and seeds. AUROC (0.5: chance) "
        "by 1 − the highest score, by the entropy of the mean prediction, by the mutual information of label and draw "
        "(or member), and by the standard deviation of the highest score over draws. By 1 − the highest score: AURC "
        "and AUGRC, areas under the risk-coverage curve and the generalised one, times 1000, lower is better; accuracy "
        f"on the {100 * COVERAGE:.0f} % of images with the lowest uncertainty. Entropies in nats: the expected entropy "
        "of a draw, and the mutual information, which add up to the entropy of the mean."
    )
    panels = by_passes(pd.DataFrame(columns))
    return Table("rivals_detection", caption, panels, DETECTION, baselines.detection, about(baselines))


SHIFT = {
    "accuracy": ("Accuracy, 5 (%)", 1),
    "ace_0": ("ACE, 0 (%)", 1),
    "ace_1": ("1", 1),
    "ace_3": ("3", 1),
    "ace_5": ("5", 1),
    "ace_5_t": ("5, T", 1),
    f"auroc, score, {NEAR}": ("AUROC, near", 3),
    f"fpr, score, {NEAR}": ("FPR (%), near", 1),
    f"auroc, mutual, {NEAR}": ("AUROC, mutual, near", 3),
    f"auroc, score, {FAR}": ("AUROC, far", 3),
    f"fpr, score, {FAR}": ("FPR (%), far", 1),
    f"auroc, mutual, {FAR}": ("AUROC, mutual, far", 3),
}


def shift_table(baselines: Baselines) -> Table:
    """Build the table of corrupted images, and of images of other data sets."""
    shift, out = baselines.shift, near_or_far(baselines)
    ace = 100 * over_tasks(shift, "ace", [*KEY, "scaled", "severity"]).unstack(["scaled", "severity"])
    accuracy = 100 * over_tasks(shift, "accuracy", [*KEY, "severity"]).unstack("severity")
    columns = {f"ace_{severity}": ace[False, severity] for severity in (0, 1, 3, 5)}
    columns |= {"ace_5_t": ace[True, 5], "accuracy": accuracy[5]}
    for name, factor in (("auroc", 1), ("fpr", 100)):
        told = factor * over_tasks(out, name, [*KEY, "by", "distance"]).unstack(["by", "distance"])
        columns |= {f"{name}, {by}, {distance}": told[by, distance] for by, distance in told}
    count = baselines.record["config"]["shifted_images"]
    caption = (
        f"The first {count} test images of each data set with noise, blur, less contrast and JPEG compression in five "
        "severities (0: none), mean over corruptions, data sets and seeds. T: after temperature scaling on clean "
        "validation images. Near, far: as many images of a data set of the same category, and of one of another "
        "category; AUROC of telling them from the data set's own by 1 − the highest score or by mutual information, "
        "and the false-positive rate where 95 % of its own are accepted, lower is better."
    )
    panels = by_passes(pd.DataFrame(columns))
    return Table("rivals_shift", caption, panels, SHIFT, shift.merge(out, "outer"), about(baselines))


def near_or_far(baselines: Baselines) -> pd.DataFrame:
    """Return the frame `out` with the column `distance`: whether the other data set is of the same category."""
    known = dict(zip(baselines.scores["dataset"], baselines.scores["category"], strict=True))
    category = {name: task.category for name, task in TASKS.items()} | known
    same = baselines.out["other"].map(category) == baselines.out["category"]
    return baselines.out.assign(distance=np.where(same, NEAR, FAR))


# Differences


class Score(NamedTuple):
    """A score by which ways are compared: frame and column, factor and digits as shown, 1 where higher is better."""

    frame: Callable[[Baselines], pd.DataFrame]
    column: str
    factor: float
    digits: int
    sign: int


COMPARED = {
    "NLL": Score(_unscaled, "nll", 1, 3, -1),
    "ACE (points)": Score(_unscaled, "ace", 100, 2, -1),
    "NLL, T": Score(_scaled, "nll", 1, 3, -1),
    "ACE, T (points)": Score(_scaled, "ace", 100, 2, -1),
    "AUROC of errors": Score(_by_score, "auroc", 1, 3, 1),
    "AUGRC × 1000": Score(_by_score, "augrc", 1000, 2, -1),
}
REFERENCE = (1, "pvera", "rivals", "pass")


def compared(baselines: Baselines, name: str) -> dict[tuple, pd.DataFrame]:
    """Return a score of `COMPARED` per way (`KEY`): data sets x seeds. An ensemble of all seeds stands under each."""
    score = COMPARED[name]
    frame = score.frame(baselines)
    seeds = sorted(set(frame["seed"]) - {ALL_SEEDS})
    tables = {}
    for key, part in frame.groupby(KEY, sort=False):
        table = part.pivot(index="dataset", columns="seed", values=score.column)
        if ALL_SEEDS in table:
            table = table.reindex(columns=pd.Index([ALL_SEEDS] * len(seeds))).set_axis(seeds, axis=1)
        tables[key] = score.factor * table.reindex(sorted(set(frame["dataset"])), columns=seeds)
    return tables


def differences_table(baselines: Baselines) -> Table:
    """Build the table of differences from one pass of PVeRA, with intervals over data sets."""
    scores = {name: compared(baselines, name) for name in COMPARED}
    rows = []
    for way in ordered(scores["NLL"].keys() - {REFERENCE}) if REFERENCE in scores["NLL"] else ():
        for name, values in scores.items():
            gaps = (values[way] - values[REFERENCE]).to_numpy()
            if not np.isnan(gaps).all():
                effect = smallest({"": gaps})
                rows.append((*way, name, effect.mean, effect.low, effect.high))
    data = pd.DataFrame(rows, columns=[*KEY, "score", "mean", "low", "high"])
    shown = [interval(row.mean, row.low, row.high, COMPARED[row.score].digits) for row in data.itertuples(index=False)]
    cells = data.assign(shown=shown).pivot(index=KEY, columns="score", values="shown")
    cells = cells.reindex(columns=list(COMPARED)).fillna(NOTHING)
    caption = (
        "Difference from one pass with PVeRA's mean, paired by data set and seed, with its 95 % interval by Student's "
        "t over data sets. Above zero is better for AUROC, below zero for all others. An ensemble of all seeds is "
        "compared with each of them."
    )
    return Table("rivals_differences", caption, by_passes(cells), data=data, about=about(baselines))


#: Short name -> method, source and way.
SHORT = {
    "mean": ("pvera", "rivals", "pass"),
    "draws": ("pvera", "rivals", "draws"),
    "ensemble": ("vera", "rivals", "ensemble"),
    "dropout": ("vera", "dropout_rivals", "draws"),
}


def better(name: str, way: str, other: str) -> Callable[[Baselines], dict[str, pd.DataFrame]]:
    """Return the contrast of how far one way of `SHORT` is better than another in a score of `COMPARED`.

    Each way has the most passes that it was tried with. `Untestable` without one of them.
    """

    def contrast(baselines: Baselines) -> dict[str, pd.DataFrame]:
        values, tried = compared(baselines, name), []
        for short in (way, other):
            keys = [key for key in values if key[1:] == SHORT[short]]
            if not keys:
                method, source, kind = SHORT[short]
                raise Untestable(f"no runs of {title(method)}{SOURCES[source]}, {kind}")
            tried.append(values[max(keys)])
        return {"": (COMPARED[name].sign * (tried[0] - tried[1])).rename_axis("seed", axis=1)}

    return contrast


#: Purpose -> scores of `COMPARED`, as trained and, where it was measured, with a temperature.
ADVICE = {
    "the predictive distribution": ("NLL", "NLL, T"),
    "calibrated confidence": ("ACE (points)", "ACE, T (points)"),
    "finding errors": ("AUROC of errors",),
}


def _tried(row: pd.Series) -> str:
    return f"{row['best']} ({plain(row['value'], COMPARED[row['score']].digits)}; {row['ties']} of {row['others']})"


def advice(baselines: Baselines) -> Table:
    """Build the table of the best way for each purpose, with one pass and with any number of passes.

    Ways that a data set lacks do not take part.
    """
    present = set(baselines.scores["method"])
    *methods, last = [title(name) for name in METHODS if name in present]
    among = f"{', '.join(methods)} and {last}" if methods else last
    rows = []
    for purpose, names in ADVICE.items():
        sign, trained = COMPARED[names[0]].sign, names[0]
        values = {(name, *way): table for name in names for way, table in compared(baselines, name).items()}
        means = {key: average(table) for key, table in values.items()}
        complete = [key for key in values if not np.isnan(means[key])]
        for passes, keys in (("one", [key for key in complete if key[1] == 1]), ("any", complete)):
            best = max(keys, key=lambda key: sign * means[key])
            effects = [smallest({"": (values[key] - values[best]).to_numpy()}) for key in keys if key != best]
            ties = sum(not (effect.low > 0 or effect.high < 0) for effect in effects)
            name, number, *way = best
            called = way_title(*way, number) + ("" if name == trained else ", with a temperature")
            rows.append({"purpose": purpose, "score": name, "passes": passes, "best": called, "value": means[best],
                         "ties": ties, "others": len(effects), "among": among})  # fmt: skip
    data = pd.DataFrame(rows)
    cells = crossed(data, "purpose", "passes", _tried).set_axis(["With one pass", "With any number of passes"], axis=1)
    panel = cells.rename({purpose: f"{purpose.capitalize()}: {names[0]}" for purpose, names in ADVICE.items()})
    caption = (
        f"What to use: the best way for each purpose, mean over data sets and seeds, among the ways of {among}, each "
        "as trained and with a temperature. The best is that of the test images. In brackets its score, and how many "
        "of the others cannot be told apart from it: the 95 % interval of the difference contains zero. NLL in nats "
        "and ACE in points, lower is better; AUROC of finding incorrect predictions, higher is better."
    )
    return Table("rivals_advice", caption, {"": panel}, data=data, about=about(baselines))
