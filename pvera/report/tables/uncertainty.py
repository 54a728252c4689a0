"""Monte Carlo uncertainty and intervals of PVeRA (Section 4.3, appendix C): what the draws say about right
and wrong.

All test images of all adapters are pooled, as in the paper, and each data set stands alone beside that:
pooling mixes data sets, of which the hard ones have both more errors and a wider spread.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from pvera.data.tasks import TASKS
from pvera.report.published import Published
from pvera.report.readings import Uncertainty
from pvera.report.statistics import RankSum, auroc, rank_sum
from pvera.report.tables.layout import NOTHING, Cell, Panel, Row, Table, dataset_title, lettered, p_value, plain, signed
from pvera.report.tables.verdicts import Claim, verdict_table
from pvera.study.results import CATEGORIES

ALL = "All data sets"
DRAWS = (4, 16)  # those of the paper's figure

Runs = Sequence[Uncertainty]


def groups(runs: Runs) -> dict[str, list[Uncertainty]]:
    """All, then each data set by category and in the paper's order."""
    found: dict[str, list[Uncertainty]] = {}
    for run in sorted(runs, key=_place):
        found.setdefault(dataset_title(run.record["dataset"]), []).append(run)
    return {ALL: list(runs)} | found


def _place(run: Uncertainty) -> tuple:
    name = run.record["dataset"]
    return (
        CATEGORIES.index(run.record["category"]),
        list(TASKS).index(name) if name in TASKS else len(TASKS),
        name,
    )


def pooled(runs: Runs, values: Callable[[Uncertainty], np.ndarray]) -> np.ndarray:
    return np.concatenate([values(run) for run in runs])


def seeds(runs: Runs) -> list[int]:
    return sorted({run.record["seed"] for run in runs})


def shown_draws(runs: Runs) -> list[int]:
    """The paper's numbers of draws, as far as they are there; else the fewest and the most."""
    there = list(runs[0].estimates)
    return [k for k in DRAWS if k in there] or sorted({min(there), max(there)})


def compare(greater: np.ndarray, smaller: np.ndarray) -> RankSum:
    """`rank_sum`; NaN where one of them is empty."""
    return rank_sum(greater, smaller) if len(greater) and len(smaller) else RankSum(np.nan, np.nan)


# Spread of the scores


def spread_of(runs: Runs, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Algorithm 1 with k draws: standard deviations of the correct images, and of the incorrect ones."""
    return tuple(pooled(runs, lambda run: getattr(run.estimates[k], name)) for name in ("sd_correct", "sd_incorrect"))


def width_of(runs: Runs, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Widths of the intervals of k draws, of the images whose predicted class is right, and of the others."""
    return tuple(
        pooled(runs, lambda run: run.estimates[k].width[run.estimates[k].right == right]) for right in (True, False)
    )


def spread(runs: Runs) -> Table:
    """The paper's violins in numbers."""
    names = ("Incorrect (%)", "Correct", "Incorrect", "p", "Cliff's delta", "By seed")
    panels, data = _compared(runs, shown_draws(runs), spread_of, names)
    caption = (
        "Mean standard deviation of the highest softmax score over the draws, of images that count as "
        "correct (more than half of the draws are right) and incorrect. p: one-sided rank-sum test that "
        "incorrect images have the higher one. Cliff's delta: share of the pairs of an incorrect and a "
        "correct image in which the incorrect one has the higher value, less the share in which it has the "
        "lower one; 0 is no effect."
    )
    return Table("uncertainty", caption, about(runs), lettered(panels), data)


def _compared(
    runs: Runs, draws: Sequence[int], of: Callable, header: Sequence[str]
) -> tuple[list[Panel], pd.DataFrame]:
    """A panel per number of draws, a row per group: what `of` gives for right and wrong images."""
    panels, data = [], []
    for k in draws:
        rows = []
        for group, own in groups(runs).items():
            right, wrong = of(own, k)
            test, by_seed = compare(wrong, right), _by_seed(own, lambda some: compare(*of(some, k)[::-1]).cliffs_delta)
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
    """NaN of none, without a warning."""
    return float(values.mean()) if len(values) else np.nan


def _by_seed(runs: Runs, of: Callable[[Runs], float]) -> list[float]:
    return [of([run for run in runs if run.record["seed"] == seed]) for seed in seeds(runs)]


# Telling wrong from right

SD, SCORE, SINGLE = "Spread of the draws", "1 − mean score", "1 − score of one pass"


def detection(runs: Runs) -> pd.DataFrame:
    """One row per adapter, number of draws and way to tell: AUROC for telling wrong predictions from right
    ones.

    Wrong is what Algorithm 1 counts as incorrect with all draws, whatever the number of draws that tell.
    `SINGLE` has one pass with the mean instead of draws, and so no cost; its number of draws is 0.
    """
    rows = []
    for run in runs:
        wrong = ~run.most.correct
        values = {(SINGLE, 0): 1 - run.single_pass}
        for k, found in run.estimates.items():
            values |= {(SD, k): found.sd, (SCORE, k): 1 - found.centre}
        for (way, k), uncertainty in values.items():
            place = {name: run.record[name] for name in ("dataset", "seed")}
            rows.append(place | {"way": way, "draws": k, "auroc": auroc(uncertainty, wrong)})
    return pd.DataFrame(rows)


def detection_table(runs: Runs) -> Table:
    """`detection`, averaged over seeds, and over the data sets."""
    found = detection(runs)
    columns = [(SD, k) for k in runs[0].estimates] + [(SCORE, max(runs[0].estimates)), (SINGLE, 0)]
    header = [f"{way}, {k} draws" if k else way for way, k in columns]
    rows = []
    for group, own in groups(runs).items():
        some = found[found["dataset"].isin({run.record["dataset"] for run in own})]
        values = some.groupby(["way", "draws", "dataset"])["auroc"].mean().groupby(["way", "draws"]).mean()
        label = f"Mean over {len(groups(runs)) - 1} data sets" if group == ALL else group
        rows.append(Row(label, tuple(Cell(plain(values[column], 3)) for column in columns), rule=len(rows) == 1))
    caption = (
        "AUROC for telling wrong predictions from right ones (0.5: chance), within each data set, mean over "
        f"seeds. Wrong is in all columns what at most half of {max(runs[0].estimates)} draws get right. "
        "Beside the spread of the draws stand the mean score of the predicted class over all draws, and the "
        "highest score of a single pass with the mean, which needs no draws at all."
    )
    return Table("uncertainty_auroc", caption, about(runs), (Panel("", tuple(header), tuple(rows)),), found)


def spread_verdicts(runs: Runs) -> Table:
    claims = [
        _higher(runs, f"Wrong predictions have the higher standard deviation, {k} draws", spread_of, k)
        for k in shown_draws(runs)
    ]
    k = max(runs[0].estimates)
    claims.append(_on_each(runs, f"So it is on each data set alone, {k} draws", spread_of, k))
    gain = detection(runs).pivot(index=["dataset", "seed"], columns=["way", "draws"], values="auroc")
    gain = gain[(SD, k)] - gain[(SINGLE, 0)]
    text = f"the spread of {k} draws tells wrong from right better than the score of one pass"
    mean, by_seed = gain.groupby("dataset").mean().mean(), gain.groupby("seed").mean().tolist()
    claims.append(Claim(f"Not in the paper: {text}", "AUROC, mean over data sets", mean, by_seed, 3))
    return verdict_table(
        "uncertainty_claims",
        "What the paper says of the spread of the draws.",
        about(runs),
        claims,
        seeds(runs),
    )


def _higher(runs: Runs, text: str, of: Callable, k: int) -> Claim:
    def delta(some: Runs) -> float:
        return compare(*of(some, k)[::-1]).cliffs_delta

    return Claim(text, "Cliff's delta", delta(runs), _by_seed(runs, delta), 2)


def _on_each(runs: Runs, text: str, of: Callable, k: int) -> Claim:
    def least(some: Runs) -> float:
        deltas = [compare(*of(own, k)[::-1]).cliffs_delta for group, own in groups(some).items() if group != ALL]
        return float(np.min(deltas))

    return Claim(text, "Cliff's delta, the smallest", least(runs), _by_seed(runs, least), 2)


# Intervals


def widths(runs: Runs, paper: Published) -> Table:
    """Widths of right and wrong predictions beside the paper's, and per data set."""
    names = ("Wrong (%)", "Right", "Wrong", "p", "Cliff's delta", "By seed")
    panels, data = _compared(runs, shown_draws(runs), width_of, names)
    published = [float(paper.quote(f"width_{name}")) for name in ("correct", "incorrect")]
    rows = [Row("Paper", (Cell(plain(published[0], 3)), Cell(plain(published[1], 3)), Cell(_ratio(*published))))]
    for row in data[data["group"] == ALL].itertuples():
        ours = (row.right, row.wrong)
        rows.append(Row(f"Here, {row.draws} draws", (*(Cell(plain(v, 3)) for v in ours), Cell(_ratio(*ours))), True))
        gaps = (signed(ours[0] - published[0], 3), signed(ours[1] - published[1], 3), NOTHING)
        rows.append(Row("Difference", tuple(map(Cell, gaps))))
    beside = Panel("Beside the paper", ("Right", "Wrong", "Wrong / right"), tuple(rows))
    caption = (
        "Mean width of the 95 % t-interval of the softmax score of the most predicted class, of images whose "
        "predicted class is right and wrong; p and Cliff's delta as for the spread. The paper's are those "
        "of ViT-B/14 on its 19 data sets, from a number of draws that it does not state, so the difference "
        "says nothing about how well they are reproduced."
    )
    data = data.assign(published_right=published[0], published_wrong=published[1])
    return Table("intervals", caption, about(runs), lettered([beside, *panels]), data)


def _ratio(right: float, wrong: float) -> str:
    return plain(wrong / right if right else np.nan, 2)  # all draws equal: the intervals are points


def by_draws(runs: Runs) -> pd.DataFrame:
    """Per number of draws: mean widths, AUROC of the width for telling wrong from right (mean over adapters),
    by how much a t-interval of so many draws is wider than their standard deviation, and how many of the
    intervals hold the mean of many further draws."""
    from scipy.stats import t

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
        "Intervals by number of draws: mean width of right and wrong predictions; width of the interval in "
        "standard deviations of a draw, 2 t / root of k, which is why it narrows; AUROC of the width for "
        f"telling wrong from right, mean over adapters; coverage, the share of {data['intervals'].iloc[0]} "
        f"intervals that hold the mean of {settings['truth_draws']} further draws (nominal: 95 %)."
    )
    header = ("Width, right", "Width, wrong", "Width / SD", "AUROC", "Coverage (%)")
    return Table("intervals_draws", caption, about(runs), (Panel("", header, tuple(rows)),), data)


def interval_verdicts(runs: Runs) -> Table:
    k = max(runs[0].estimates)
    claims = [
        _higher(runs, f"Wrong predictions have the wider intervals, {n} draws", width_of, n) for n in shown_draws(runs)
    ]
    claims.append(_on_each(runs, f"So it is on each data set alone, {k} draws", width_of, k))
    return verdict_table("intervals_claims", "What the paper says of the intervals.", about(runs), claims, seeds(runs))


def about(runs: Runs) -> str:
    """From which adapters."""
    record = runs[0].record
    sets, images = {run.record["dataset"] for run in runs}, sum(len(run.most.labels) for run in runs)
    return (
        f"Profile {record['profile']}, {record['protocol']} protocol, backbone {record['backbone']}, seeds "
        f"{', '.join(map(str, seeds(runs)))}: {len(runs)} adapters on {len(sets)} data sets, {images} images "
        "in all (each once per seed, so that they are not independent)."
    )
