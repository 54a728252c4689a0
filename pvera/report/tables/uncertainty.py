"""Monte Carlo uncertainty and intervals of PVeRA (Section 4.3, Appendix C), for correct and incorrect predictions.

The tables pool all test images of all adapters, as the paper does, and then show each data set alone: hard data sets
have both more errors and a wider spread, so pooling mixes the two.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from scipy.stats import t

from pvera.data.tasks import TASKS
from pvera.report.published import Published
from pvera.report.readings import Uncertainty
from pvera.report.statistics import RankSum, auroc, rank_sum
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, lettered, p_value, plain, signed
from pvera.report.tables.names import dataset_title, origin
from pvera.report.tables.verdicts import Untestable
from pvera.study.results import KINDS

ALL = "All data sets"
DRAWS = (4, 16)  # those of the paper's figure

Runs = Sequence[Uncertainty]


def groups(runs: Runs) -> dict[str, list[Uncertainty]]:
    """Group the runs: all, then each data set by category and in the paper's order."""
    parts: dict[str, list[Uncertainty]] = {}
    for run in sorted(runs, key=_place):
        parts.setdefault(dataset_title(run.record["dataset"]), []).append(run)
    return {ALL: list(runs)} | parts


def _place(run: Uncertainty) -> tuple:
    name = run.record["dataset"]
    return (
        KINDS.index(run.record["category"]),
        list(TASKS).index(name) if name in TASKS else len(TASKS),
        name,
    )


def pooled(runs: Runs, values: Callable[[Uncertainty], np.ndarray]) -> np.ndarray:
    """Concatenate the values of all runs."""
    return np.concatenate([values(run) for run in runs])


def seeds(runs: Runs) -> list[int]:
    """List the seeds of the runs."""
    return sorted({run.record["seed"] for run in runs})


def shown_draws(runs: Runs) -> list[int]:
    """Return the paper's numbers of draws that the runs have; else the fewest and the most."""
    known = list(runs[0].estimates)
    return [k for k in DRAWS if k in known] or sorted({min(known), max(known)})


def compare(greater: np.ndarray, smaller: np.ndarray) -> RankSum:
    """Return `rank_sum`; NaN where a sample is empty."""
    return rank_sum(greater, smaller) if len(greater) and len(smaller) else RankSum(np.nan, np.nan)


# Spread of the scores


def spread_of(runs: Runs, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the standard deviations of Algorithm 1 with k draws, of correct and of incorrect images."""
    return tuple(pooled(runs, lambda run: getattr(run.estimates[k], name)) for name in ("sd_correct", "sd_incorrect"))


def width_of(runs: Runs, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the interval widths of k draws, of correct and of incorrect predictions."""
    return tuple(
        pooled(runs, lambda run: run.estimates[k].width[run.estimates[k].right == right]) for right in (True, False)
    )


def spread(runs: Runs) -> Table:
    """Build the table behind the paper's violins."""
    names = ("Incorrect (%)", "Correct", "Incorrect", "p", "Cliff's delta", "By seed")
    panels, data = _compared(runs, shown_draws(runs), spread_of, names)
    caption = (
        "Mean standard deviation of the highest softmax score over the draws, for correct and incorrect images. An "
        "image is correct where more than half of its draws are. p: one-sided rank-sum test that incorrect images have "
        "the higher value. Cliff's delta: share of pairs in which the incorrect image has the higher value, minus the "
        "share in which the correct one has it; 0 is no effect."
    )
    return Table("uncertainty", caption, about(runs), lettered(panels), data)


def _compared(
    runs: Runs, draws: Sequence[int], of: Callable, header: Sequence[str]
) -> tuple[list[Panel], pd.DataFrame]:
    """Compare the values `of` correct and incorrect images: a panel per number of draws, a row per group."""
    panels, data = [], []
    for k in draws:
        rows = []
        for group, members in groups(runs).items():
            right, wrong = of(members, k)
            test = compare(wrong, right)
            by_seed = _by_seed(members, lambda some: compare(*of(some, k)[::-1]).cliffs_delta)
            share = 100 * len(wrong) / (len(right) + len(wrong))
            means = [_mean(values) for values in (right, wrong)]
            cells = (
                plain(share, 1),
                *(plain(mean, 4) for mean in means),
                p_value(test.p_value, 4),
                signed(test.cliffs_delta, 2),
                ", ".join(signed(value, 2) for value in by_seed),
            )
            rows.append(Row(group, tuple(map(Cell, cells)), rule=len(rows) == 1))
            data.append(
                {
                    "draws": k,
                    "group": group,
                    "wrong_percent": share,
                    "right": means[0],
                    "wrong": means[1],
                    "p_value": test.p_value,
                    "cliffs_delta": test.cliffs_delta,
                }
            )
        panels.append(Panel(f"{k} draws", tuple(header), tuple(rows)))
    return panels, pd.DataFrame(data)


def _mean(values: np.ndarray) -> float:
    """Return the mean; NaN without values, and no warning."""
    return float(values.mean()) if len(values) else np.nan


def _by_seed(runs: Runs, of: Callable[[Runs], float]) -> list[float]:
    return [of([run for run in runs if run.record["seed"] == seed]) for seed in seeds(runs)]


# Detecting incorrect predictions

SD, SCORE, SINGLE = "Spread of the draws", "1 − mean score", "1 − score of one pass"


def detection(runs: Runs) -> pd.DataFrame:
    """Compute the AUROC for detecting incorrect predictions, one row per adapter, number of draws and way.

    Each way is held against its own predictions: the class that most of its draws predict, or that of one pass with the
    mean (`SINGLE`, whose number of draws is 0).
    """
    rows = []
    for run in runs:
        values = {(SINGLE, 0): (1 - run.single_pass, ~run.single_right)}
        for k, estimates in run.estimates.items():
            values |= {(SD, k): (estimates.sd, ~estimates.right), (SCORE, k): (1 - estimates.centre, ~estimates.right)}
        for (way, k), (uncertainty, wrong) in values.items():
            place = {name: run.record[name] for name in ("dataset", "seed")}
            rows.append(place | {"way": way, "draws": k, "auroc": auroc(uncertainty, wrong)})
    return pd.DataFrame(rows)


def detection_table(runs: Runs) -> Table:
    """Build the table of `detection`, averaged over seeds, then over data sets."""
    data = detection(runs)
    columns = [(SD, k) for k in runs[0].estimates] + [(SCORE, max(runs[0].estimates)), (SINGLE, 0)]
    header = [f"{way}, {k} draws" if k else way for way, k in columns]
    rows = []
    for group, members in groups(runs).items():
        part = data[data["dataset"].isin({run.record["dataset"] for run in members})]
        values = part.groupby(["way", "draws", "dataset"])["auroc"].mean().groupby(["way", "draws"]).mean()
        label = f"Mean over {len(groups(runs)) - 1} data sets" if group == ALL else group
        rows.append(Row(label, tuple(Cell(plain(values[column], 3)) for column in columns), rule=len(rows) == 1))
    caption = (
        "AUROC for detecting incorrect predictions (0.5: chance), within each data set, mean over seeds. The "
        "prediction is the class that most draws predict, or that of one pass. Mean score: of the predicted class, "
        "over all draws. One pass: its highest score, with the mean and without draws."
    )
    return Table("uncertainty_auroc", caption, about(runs), (Panel("", tuple(header), tuple(rows)),), data)


def within(of: Callable, k: int) -> Callable[[Runs], dict[str, pd.DataFrame]]:
    """Return the contrast Cliff's delta of incorrect against correct images with k draws, within each adapter."""

    def contrast(runs: Runs) -> dict[str, pd.DataFrame]:
        return {"": _of_each(_with_draws(runs, k), lambda run: compare(*of([run], k)[::-1]).cliffs_delta)}

    return contrast


def gain(k: int) -> Callable[[Runs], dict[str, pd.DataFrame]]:
    """Return the contrast of how far the AUROC of k draws lies above that of one pass."""

    def contrast(runs: Runs) -> dict[str, pd.DataFrame]:
        found = detection(_with_draws(runs, k)).pivot(
            index=["dataset", "seed"], columns=["way", "draws"], values="auroc"
        )
        return {"": (found[SD, k] - found[SINGLE, 0]).unstack("seed")}

    return contrast


def _with_draws(runs: Runs, k: int) -> Runs:
    if k not in runs[0].estimates:
        raise Untestable(f"no results with {k} draws")
    return runs


def _of_each(runs: Runs, value: Callable[[Uncertainty], float]) -> pd.DataFrame:
    """Return a value per adapter as (data sets, seeds), NaN where there is no adapter."""
    every = [{"dataset": r.record["dataset"], "seed": r.record["seed"], "value": value(r)} for r in runs]
    return pd.DataFrame(every).pivot(index="dataset", columns="seed", values="value")


# Intervals


def widths(runs: Runs, paper: Published) -> Table:
    """Build the table of interval widths: against the paper's, and per data set."""
    names = ("Incorrect (%)", "Correct", "Incorrect", "p", "Cliff's delta", "By seed")
    panels, data = _compared(runs, shown_draws(runs), width_of, names)
    published = [float(paper.quote(f"width_{name}")) for name in ("correct", "incorrect")]
    rows = [Row("Paper", (Cell(plain(published[0], 3)), Cell(plain(published[1], 3)), Cell(_ratio(*published))))]
    for row in data[data["group"] == ALL].itertuples():
        ours = (row.right, row.wrong)
        rows.append(Row(f"Here, {row.draws} draws", (*(Cell(plain(v, 3)) for v in ours), Cell(_ratio(*ours))), True))
        gaps = (signed(ours[0] - published[0], 3), signed(ours[1] - published[1], 3), NOTHING)
        rows.append(Row("Difference", tuple(map(Cell, gaps))))
    paper_panel = Panel("Against the paper", ("Correct", "Incorrect", "Ratio"), tuple(rows))
    caption = (
        "Mean width of the 95 % t-interval of the softmax score of the most predicted class, for correct and incorrect "
        "predictions. Ratio: incorrect to correct. p: one-sided rank-sum test that incorrect predictions have the "
        "wider interval. Cliff's delta: 0 is no effect. The paper's widths are those of ViT-B/14 on its 19 data sets, "
        "with a number of draws that it does not state, so the differences do not test them."
    )
    data = data.assign(published_right=published[0], published_wrong=published[1])
    return Table("intervals", caption, about(runs), lettered([paper_panel, *panels]), data)


def _ratio(right: float, wrong: float) -> str:
    return plain(wrong / right if right else np.nan, 2)  # all draws equal: the intervals are points


def by_draws(runs: Runs) -> pd.DataFrame:
    """Describe the intervals, one row per number of draws.

    right, wrong: mean widths of correct and incorrect predictions. auroc: of the width for detecting incorrect ones,
    mean over adapters. factor: width of a t-interval in standard deviations of a draw. covered, intervals: how many of
    the intervals contain the mean of many further draws.
    """
    rows = []
    for k in runs[0].estimates:
        right, wrong = width_of(runs, k)
        covered = pooled(runs, lambda run: run.covered[k])
        rows.append(
            {
                "draws": k,
                "right": _mean(right),
                "wrong": _mean(wrong),
                "auroc": pd.Series(_by_run(runs, k)).mean(),
                "factor": 2 * t.ppf(0.975, k - 1) / np.sqrt(k),
                "covered": int(covered.sum()),
                "intervals": len(covered),
            }
        )
    return pd.DataFrame(rows)


def _by_run(runs: Runs, k: int) -> list[float]:
    return [auroc(run.estimates[k].width, ~run.estimates[k].right) for run in runs]


def by_draws_table(runs: Runs) -> Table:
    """Build the table of `by_draws`."""
    data = by_draws(runs)
    rows = [
        Row(
            f"{row.draws} draws",
            tuple(
                map(
                    Cell,
                    (
                        plain(row.right, 3),
                        plain(row.wrong, 3),
                        plain(row.factor, 2),
                        plain(row.auroc, 3),
                        plain(100 * row.covered / row.intervals, 1),
                    ),
                )
            ),
        )
        for row in data.itertuples()
    ]
    settings = runs[0].record["config"]
    caption = (
        "Intervals by number of draws k. Width: mean, for correct and incorrect predictions. Width / SD: in standard "
        "deviations of a draw, 2 t / √k, so intervals narrow with k. AUROC: of the width for detecting incorrect "
        f"predictions, mean over adapters. Coverage: share of {data['intervals'].iloc[0]} intervals that contain the "
        f"mean of {settings['truth_draws']} further draws (nominal: 95 %)."
    )
    header = ("Width, correct", "Width, incorrect", "Width / SD", "AUROC", "Coverage (%)")
    return Table("intervals_draws", caption, about(runs), (Panel("", header, tuple(rows)),), data)


def about(runs: Runs) -> str:
    """Describe the adapters for a caption."""
    record = runs[0].record
    sets, images = {run.record["dataset"] for run in runs}, sum(len(run.most.labels) for run in runs)
    return (
        f"{origin(record, seeds(runs))}: {len(runs)} adapters on {len(sets)} data sets, {images} images "
        "in all (each image counts once per seed, so the values are not independent)."
    )
