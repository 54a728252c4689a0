"""PVeRA's draws against other ways to uncertainty: scores, detection of errors, shift.

A *way* is one pass, draws, an ensemble of seeds, or Laplace, with the adapters of one method; tables group ways of
equal numbers of forward passes. `rivals` of `pvera.study` computed the scores.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS
from pvera.report.statistics import smallest
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, interval, lettered, plain
from pvera.report.tables.names import dataset_title, origin
from pvera.report.tables.verdicts import Untestable
from pvera.study import results
from pvera.study.rivals import ALL_SEEDS, COVERAGE, FRAMES, read_frames

#: Experiment -> what is added to the titles of its methods.
SOURCES = {"rivals": "", "dropout_rivals": " with dropout"}
KEY = ["passes", "method", "source", "way"]
NEAR, FAR = "same category", "other category"


@dataclass(frozen=True)
class Rivals:
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
        return sorted(set(self.scores["dataset"]), key=lambda name: [*TASKS].index(name) if name in TASKS else 99)


def load(root, profile: str) -> Rivals | None:
    """Load the benchmark's rivals and those with dropout; None where there are none."""
    return joined(root, profile, {experiment: {"source": experiment} for experiment in SOURCES})


def joined(root, profile: str, experiments: dict[str, dict]) -> Rivals | None:
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
    return Rivals(records[0], **{name: pd.concat(part, ignore_index=True) for name, part in parts.items()})


def title(method: str, source: str, way: str, passes: int) -> str:
    """Return the name of a way in tables and figures."""
    name = METHODS[method].title + SOURCES[source]
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


def _blocks(keys, cells: Callable[[tuple], Sequence[str]], header: Sequence[str]) -> tuple[Panel, ...]:
    """Return a panel per number of passes, a row per way."""
    panels: dict[int, list[Row]] = {}
    for key in ordered(keys):
        passes, method, source, way = key
        panels.setdefault(passes, []).append(Row(title(method, source, way, passes), tuple(map(Cell, cells(key)))))
    names = {k: f"{k} forward pass{'es' * (k > 1)}" for k in panels}
    return lettered([Panel(names[k], tuple(header), tuple(rows)) for k, rows in panels.items()])


SCORES = (("accuracy", 100, 1), ("nll", 1, 3), ("brier", 1, 3), ("ece", 100, 1), ("ace", 100, 1))


def scores_table(rivals: Rivals) -> Table:
    """Build the table of accuracy, proper scores and calibration, before and after temperature scaling."""
    tables = {
        scaled: {name: over_tasks(part, name) for name in (*(n for n, *_ in SCORES), "ece_floor", "ace_floor")}
        for scaled, part in rivals.scores.groupby("scaled")
    }
    milliseconds = over_tasks(rivals.scores, "milliseconds")

    def cells(key: tuple) -> list[str]:
        texts = []
        for scaled, names in ((False, SCORES), (True, SCORES[1:])):
            for name, factor, digits in names:
                text = plain(factor * tables[scaled][name][key], digits)
                floor = tables[scaled].get(f"{name}_floor")
                texts.append(text if floor is None else f"{text} ({plain(factor * floor[key], digits)})")
        return [*texts, plain(milliseconds[key], 2)]

    header = ("Accuracy (%)", "NLL", "Brier", "ECE (%)", "ACE (%)", "NLL, T", "Brier, T", "ECE, T", "ACE, T", "ms")
    caption = (
        "Mean over data sets and seeds of the scores on the test split. NLL in nats. ECE and ACE in points, their "
        "floor in brackets: the mean error of labels that are drawn from the predictions. T: after temperature "
        "scaling, fitted on the validation split, which changes no accuracy. ms: milliseconds per image, measured "
        "beside other processes. Draws: Monte Carlo samples of PVeRA's latents, or of dropout's masks."
    )
    return Table("rivals", caption, about(rivals), _blocks(milliseconds.index, cells, header), rivals.scores)


def detection_table(rivals: Rivals) -> Table:
    """Build the table of the detection of incorrect predictions, and of the parts of the entropy."""
    by_score = rivals.detection[rivals.detection["by"] == "score"]
    of_score = {name: over_tasks(by_score, name) for name in ("auroc", "aurc", "augrc", "selective_accuracy")}
    others = over_tasks(rivals.detection, "auroc", ["by", *KEY])
    unscaled = rivals.scores[~rivals.scores["scaled"]]
    entropies = [over_tasks(unscaled, name) for name in ("expected", "mutual")]

    def cells(key: tuple) -> list[str]:
        return [
            plain(of_score["auroc"][key], 3),
            *(plain(others.get((by, *key), np.nan), 3) for by in ("entropy", "mutual", "spread")),
            *(plain(1000 * of_score[name][key], 1) for name in ("aurc", "augrc")),
            plain(100 * of_score["selective_accuracy"][key], 1),
            *(plain(part[key], 3) for part in entropies),
        ]  # fmt: skip

    header = ("AUROC, score", "entropy", "mutual", "spread", "AURC", "AUGRC", "Accuracy at 80 % (%)",
              "Expected entropy", "Mutual information")  # fmt: skip
    caption = (
        "Detection of incorrect predictions within each data set, mean over data sets and seeds. AUROC by 1 − the "
        "highest score, by the entropy of the mean prediction, by the mutual information of label and draw (or "
        "member), and by the standard deviation of the highest score over draws; 0.5 is chance. By 1 − the highest "
        "score: AURC and AUGRC, areas under the risk-coverage curve and the generalised one, times 1000, lower is "
        f"better; accuracy on the {100 * COVERAGE:.0f} % of images with the lowest uncertainty. Entropies in nats: the "
        "expected entropy of a draw, and the mutual information, which add up to the entropy of the mean."
    )
    return Table("rivals_detection", caption, about(rivals), _blocks(of_score["auroc"].index, cells, header),
                 rivals.detection)  # fmt: skip


def shift_table(rivals: Rivals) -> Table:
    """Build the table of corrupted images, and of images of other data sets."""
    shift, out = rivals.shift, near_or_far(rivals) if len(rivals.out) else rivals.out
    ace = {scaled: over_tasks(part, "ace", [*KEY, "severity"]) for scaled, part in shift.groupby("scaled")}
    accuracy = over_tasks(shift, "accuracy", [*KEY, "severity"])
    told = {name: over_tasks(out, name, [*KEY, "distance", "by"]) if len(out) else {} for name in ("auroc", "fpr")}

    def cells(key: tuple) -> list[str]:
        texts = [plain(100 * accuracy[(*key, 5)], 1)]
        texts += [plain(100 * ace[False][(*key, severity)], 1) for severity in (0, 1, 3, 5)]
        texts.append(plain(100 * ace[True][(*key, 5)], 1))
        for distance in (NEAR, FAR):
            for by, name in (("score", "auroc"), ("score", "fpr"), ("mutual", "auroc")):
                value = told[name].get((*key, distance, by), np.nan)
                texts.append(plain(value if name == "auroc" else 100 * value, 3 if name == "auroc" else 1))
        return texts

    header = ("Accuracy, 5 (%)", "ACE, 0 (%)", "1", "3", "5", "5, T", *(
        f"{name}, {distance}" for distance in ("near", "far") for name in ("AUROC", "FPR (%)", "AUROC, mutual")
    ))  # fmt: skip
    count = rivals.record["config"]["shifted_images"]
    keys = {key[:4] for key in ace[False].index}
    caption = (
        f"The first {count} test images of each data set with noise, blur, less contrast and JPEG compression in five "
        "severities (0: none), mean over corruptions, data sets and seeds. T: after temperature scaling on clean "
        "validation images. Near, far: as many images of a data set of the same category, and of one of another "
        "category; AUROC of telling them from the data set's own by 1 − the highest score or by mutual information, "
        "and the false-positive rate where 95 % of its own are accepted, lower is better."
    )
    data = shift.merge(out, "outer")
    return Table("rivals_shift", caption, about(rivals), _blocks(keys, cells, header), data)


def near_or_far(rivals: Rivals) -> pd.DataFrame:
    """Return the frame `out` with the column `distance`: whether the other data set is of the same category."""
    category = dict(zip(rivals.scores["dataset"], rivals.scores["category"], strict=True))
    category |= {name: TASKS[name].category for name in rivals.out["other"].unique() if name in TASKS}
    same = rivals.out["other"].map(category) == rivals.out["category"]
    return rivals.out.assign(distance=np.where(same, NEAR, FAR))


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


def compared(rivals: Rivals, column: str) -> Wide:
    """Return the values behind one column of `differences_table`, of each way (data sets x seeds)."""
    frame, value, factor, _ = DIFFERENCES[column]
    parts = {
        "scores": rivals.scores[~rivals.scores["scaled"]],
        "scaled": rivals.scores[rivals.scores["scaled"]],
        "detection": rivals.detection[rivals.detection["by"] == "score"],
    }
    return {key: factor * table for key, table in wide(parts[frame], value).items()}


def differences_table(rivals: Rivals) -> Table:
    """Build the table of differences from one pass of PVeRA, with intervals over data sets."""
    values = {column: compared(rivals, column) for column in DIFFERENCES}
    rows = []

    def cells(key: tuple) -> list[str]:
        texts = []
        for column, (*_, digits) in DIFFERENCES.items():
            gaps = (values[column][key] - values[column][REFERENCE]).to_numpy()
            if np.isnan(gaps).all():
                texts.append(NOTHING)
                continue
            effect = smallest({"": gaps})
            texts.append(interval(effect.mean, effect.low, effect.high, digits))
            rows.append(dict(zip(KEY, key, strict=True)) | {"score": column, "mean": effect.mean, "low": effect.low,
                                                            "high": effect.high})  # fmt: skip
        return texts

    keys = values["NLL"].keys() - {REFERENCE} if REFERENCE in values["NLL"] else ()
    panels = _blocks(keys, cells, tuple(DIFFERENCES))
    caption = (
        "Difference from one pass with PVeRA's mean, paired by data set and seed, with its 95 % interval by Student's "
        "t over data sets. Above zero is better for AUROC, below zero for all others. An ensemble of all seeds is "
        "compared with each of them."
    )
    columns = [*KEY, "score", "mean", "low", "high"]
    return Table("rivals_differences", caption, about(rivals), panels, pd.DataFrame(rows, columns=columns))


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
        raise Untestable(f"no runs of {METHODS[method].title}{SOURCES[source]}, {way}")
    return max(keys)


LOWER, HIGHER = -1, 1


def higher(column: str, better: str, other: str) -> Callable[[Rivals], dict[str, pd.DataFrame]]:
    """Return the contrast of how far the way `better` lies above `other` in a column of `differences_table`; keys of
    `SHORT`."""

    def contrast(rivals: Rivals) -> dict[str, pd.DataFrame]:
        values = compared(rivals, column)
        one, two = (values[_most(values, *SHORT[name])] for name in (better, other))
        return {"": (one - two).rename_axis("seed", axis=1)}

    return contrast


def lower(column: str, better: str, other: str) -> Callable[[Rivals], dict[str, pd.DataFrame]]:
    """Return the contrast of how far the way `better` lies below `other`."""
    return higher(column, other, better)


#: Purpose -> columns of `differences_table`, as trained and, where it was measured, with a temperature; and whether
#: higher is better.
ADVICE = {
    "the predictive distribution": (("NLL", "NLL, T"), LOWER),
    "calibrated confidence": (("ACE (points)", "ACE, T (points)"), LOWER),
    "finding errors": (("AUROC of errors",), HIGHER),
}


def advice(rivals: Rivals) -> Table:
    """Build the table of the best way for each purpose, with one pass and with any number of passes.

    Ways that a data set lacks do not take part.
    """
    rows, data = [], []
    methods = [METHODS[name].title for name in METHODS if name in set(rivals.scores["method"])]
    among = f"{', '.join(methods[:-1])} and {methods[-1]}" if len(methods) > 1 else methods[0]
    for purpose, (columns, sign) in ADVICE.items():
        values = {(column, *key): table for column in columns for key, table in compared(rivals, column).items()}
        trained, digits = columns[0], DIFFERENCES[columns[0]][-1]
        means = {key: average(table) for key, table in values.items()}
        complete = [key for key in values if not np.isnan(means[key])]
        cells = []
        for passes, keys in (("one", [key for key in complete if key[1] == 1]), ("any", complete)):
            best = max(keys, key=lambda key: sign * means[key])
            ties = sum(_alike(values[key], values[best]) for key in keys if key != best)
            name = title(*best[2:], best[1]) + ("" if best[0] == trained else ", with a temperature")
            cells.append(Cell(f"{name} ({plain(means[best], digits)}; {ties} of {len(keys) - 1})"))
            data.append({"purpose": purpose, "score": best[0], "passes": passes, "best": name, "value": means[best],
                         "ties": ties, "others": len(keys) - 1, "among": among})  # fmt: skip
        cells.append(Cell(plain(means.get((trained, *REFERENCE), np.nan), digits)))
        rows.append(Row(f"{purpose[0].upper()}{purpose[1:]}: {trained}", tuple(cells)))
    caption = (
        f"What to use: the best way for each purpose, mean over data sets and seeds, among the ways of {among}, each "
        "as trained and with a temperature; the other methods were not held against them. The best is that of the test "
        "images. In brackets its score, and how many of the others cannot be told apart from it: the 95 % interval of "
        "the difference contains zero. NLL in nats and ACE in points, lower is better; AUROC of finding incorrect "
        "predictions, higher is better."
    )
    header = ("With one pass", "With any number of passes", "One pass of PVeRA")
    return Table("rivals_advice", caption, about(rivals), (Panel("", header, tuple(rows)),), pd.DataFrame(data))


def _alike(one: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Return whether the interval of the mean difference of two tables of `wide` contains zero, or there is none."""
    effect = smallest({"": (one - other).to_numpy()})
    return not (effect.low > 0 or effect.high < 0)


def about(rivals: Rivals) -> str:
    """Describe the adapters for a caption."""
    seeds = sorted(set(rivals.scores["seed"]) - {ALL_SEEDS})
    return f"{origin(rivals.record, seeds)}; data sets: {', '.join(map(dataset_title, rivals.datasets))}."
