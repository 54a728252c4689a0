"""Beyond the paper: statistical support for a ranking of methods, of our runs and of the published numbers.

Stars on single cells leave four questions open: how many survive a correction for their number, whether the average
ranks differ, how far the averages would move with other data sets or seeds, and how probable it is that one method is
better than another on a data set.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import comb

import numpy as np
import pandas as pd

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.report.audit import divisor, sample_std
from pvera.report.published import BACKBONES, SEEDS, Published
from pvera.report.scores import Scores, wide
from pvera.report.statistics import (
    LEVEL,
    Friedman,
    averages,
    corrected,
    friedman,
    mean_and_std,
    nemenyi_difference,
    percentile_interval,
    probability_of_improvement,
    resample,
    seed_error,
    signed_rank,
)
from pvera.report.table import marks
from pvera.report.tables.benchmark import REFERENCE, about, left_out, lower_p_values, pooled_counts
from pvera.report.tables.layout import (
    NOTHING,
    Cell,
    Panel,
    Row,
    Table,
    interval,
    lettered,
    p_value,
    percent,
    signed,
    thousands,
)
from pvera.report.tables.names import backbone_title

SEED = 0  # of the bootstrap and of the subsets
SUBSETS = 2000
APART = ("vera", "linear")  # the method that PVeRA extends, and the weakest one
CORRECTIONS = {"": "uncorrected", "_holm": "Holm", "_bh": "BH"}


@dataclass(frozen=True)
class Evidence:
    """Accuracies to compare, and their spread over seeds.

    scores: shares, complete. std, runs: (methods, data sets), standard deviation and number of single runs. lower,
    higher: (methods, data sets), p-values of the pooled binomial test that a method is below or above PVeRA. printed:
    the stars in the paper, for its own tables.
    """

    name: str
    about: str
    scores: Scores
    std: np.ndarray
    runs: np.ndarray
    lower: np.ndarray
    higher: np.ndarray
    printed: np.ndarray | None = None

    @property
    def reference(self) -> int:
        return self.scores.methods.index(REFERENCE)


def of_runs(runs: list[dict]) -> Evidence:
    """Collect the evidence of one backbone's runs. InputError without PVeRA, another method, or a common data set."""
    every = Scores.of(runs)
    scores = every.complete()
    if REFERENCE not in scores.methods or len(scores.methods) < 2:
        raise InputError("a comparison with PVeRA needs runs of PVeRA and of another method")
    whole = [every.datasets.index(dataset) for dataset in scores.datasets]
    correct, n, reference = (counts.to_numpy().T[:, whole] for counts in pooled_counts(runs))
    return Evidence(
        f"Profile {runs[0]['profile']}, backbone {backbone_title(runs[0]['backbone'])}",
        about(runs) + left_out(wide(runs)), scores,
        mean_and_std(scores.values, axis=1)[1], (~np.isnan(scores.values)).sum(1),
        *_both_tails(scores, correct, n, reference),
    )  # fmt: skip


def of_published(paper: Published, backbone: str) -> Evidence:
    """Collect the evidence of a published table. Counts are reconstructed by rounding.

    Standard deviations divide by n − 1 (`audit.sample_std`), as everywhere here.
    """
    accuracy, std = paper.accuracies(backbone), sample_std(paper, backbone)
    converted = ", taken to divide by n and converted to n − 1" * (divisor(paper) == 0)
    datasets = tuple(accuracy.columns)
    categories = tuple(TASKS[dataset].category for dataset in datasets)
    scores = Scores(accuracy.to_numpy()[:, None] / 100, tuple(accuracy.index), (0,), datasets, categories)
    n = SEEDS * np.array([[TASKS[dataset].test_images for dataset in datasets]])
    correct = np.rint(scores.values[:, 0] * n).astype(int)
    reference = correct[[scores.methods.index(REFERENCE)]]
    return Evidence(
        f"The paper's {BACKBONES[backbone]}",
        f"Published accuracies of {BACKBONES[backbone]}: means and standard deviations of {SEEDS} seeds{converted}.",
        scores, std.to_numpy() / 100, np.full(std.shape, SEEDS),
        *_both_tails(scores, correct, n, reference),
        printed=paper.accuracies(backbone, "star").to_numpy(bool),
    )  # fmt: skip


def _both_tails(scores: Scores, correct, n, reference) -> tuple[np.ndarray, np.ndarray]:
    """Return one-sided p-values below and above PVeRA; NaN for PVeRA itself."""
    correct, n, reference = np.broadcast_arrays(correct, n, reference)
    sides = (correct, n, reference), (n - correct, n, n - reference)
    tails = [lower_p_values(*map(pd.DataFrame, side)).to_numpy().copy() for side in sides]
    for tail in tails:
        tail[scores.methods.index(REFERENCE)] = np.nan
    return tails


# Computing


@dataclass(frozen=True)
class Comparison:
    """All statistics of one evidence.

    methods: one row per method, see `compare`. improvement: P(row better than column). ranks: `friedman`.
    """

    evidence: Evidence
    methods: pd.DataFrame
    improvement: pd.DataFrame
    ranks: Friedman


def compare(evidence: Evidence) -> Comparison:
    """Compute all statistics of the evidence. Columns of `methods`, accuracies and leads in percent:

    average, low, high: with its 95 % bootstrap interval over data sets.
    lead, lead_low, lead_high: PVeRA's average minus the method's, from the same resamples (paired over data sets).
    lead_seeds: half the 95 % interval of the lead over seeds alone.
    highest: share of resamples in which the method has the highest average.
    signed_rank, signed_rank_holm: one-sided p-value over data sets that PVeRA is above.
    improvement, improvement_low, improvement_high: probability that PVeRA is better on a data set.
    rank: average rank.
    lower, higher (_holm, _bh: corrected): data sets on which the method is significantly below or above PVeRA by the
    binomial test.
    printed: the paper's stars, for its own tables.
    """
    scores, r = evidence.scores, evidence.reference
    percent = 100 * scores.values
    mean = mean_and_std(percent, axis=1)[0]  # (methods, data sets)
    drawn = resample(percent, np.random.default_rng(SEED))
    average, of_drawn = averages(percent), averages(drawn)
    improvement = probability_of_improvement(percent[:, None], percent)
    ranks = friedman(mean)
    columns = {"average": average}
    datasets = percent.shape[2]
    columns["low"], columns["high"] = percentile_interval(of_drawn, average, datasets)
    columns["lead"] = average[r] - average
    columns["lead_low"], columns["lead_high"] = percentile_interval(
        of_drawn[:, [r]] - of_drawn, columns["lead"], datasets
    )
    columns["lead_seeds"] = 100 * seed_error(np.hypot(evidence.std, evidence.std[r]), evidence.runs)
    columns["highest"] = (of_drawn.argmax(1)[:, None] == np.arange(len(average))).mean(0)
    columns["signed_rank"] = [signed_rank(mean[r] - of_method) for of_method in mean]
    columns["improvement"] = improvement[r]
    of_pvera = probability_of_improvement(drawn[:, [r]], drawn)
    improved = percentile_interval(of_pvera, improvement[r], datasets)
    columns["improvement_low"], columns["improvement_high"] = np.clip(improved, 0, 1)
    columns["rank"] = ranks.ranks
    for side in ("lower", "higher"):
        p_values = getattr(evidence, side)
        for suffix, values in (
            ("", p_values), ("_holm", corrected(p_values)), ("_bh", corrected(p_values, "fdr_bh"))
        ):  # fmt: skip
            columns[side + suffix] = (values < LEVEL).sum(1)
    if evidence.printed is not None:
        columns["printed"] = evidence.printed.sum(1)
    table = pd.DataFrame(columns, pd.Index(scores.methods, name="method"))
    versus_itself = ["lead_seeds", "signed_rank", "improvement", "improvement_low", "improvement_high"]
    table.loc[REFERENCE, versus_itself] = np.nan
    table["signed_rank_holm"] = corrected(table["signed_rank"])
    names = list(scores.methods)
    return Comparison(evidence, table, pd.DataFrame(improvement, names, names), ranks)


def summary(compared: Comparison) -> list[str]:
    """Say in a few sentences how well PVeRA's place in the ranking is supported."""
    table, ranks = compared.methods, compared.ranks
    others = table.drop(REFERENCE)
    next_best = others["average"].idxmax()
    pvera, other, title = table.loc[REFERENCE], table.loc[next_best], METHODS[next_best].title
    sentences = [
        f"PVeRA's average, {percent(pvera['average'])}, is {abs(other['lead']):.1f} points "
        f"{'above' if other['lead'] > 0 else 'below'} that of the best other method, {title}. "
        f"The 95 % interval of this lead over data sets is {interval(None, other['lead_low'], other['lead_high'])}; "
        + (
            "that over seeds is unknown."
            if np.isnan(other["lead_seeds"])
            else f"that over seeds alone is ± {other['lead_seeds']:.1f}."
        ),
        f"PVeRA has the highest average in {100 * pvera['highest']:.0f} % of the resamples, {title} in "
        f"{100 * other['highest']:.0f} %. On a data set PVeRA is better than {title} with probability "
        f"{interval(other['improvement'], other['improvement_low'], other['improvement_high'], 2)}.",
    ]
    apart = np.abs(table["rank"] - pvera["rank"]) >= ranks.critical_difference
    friedmans = "" if np.isnan(ranks.p_value) else f" (Friedman: p {_equals(ranks.p_value)})"
    sentences.append(
        f"Nemenyi's test on average ranks{friedmans} separates PVeRA from: {_titles(table.index[apart])}. "
        "The signed-rank test, corrected by Holm, finds PVeRA above: "
        f"{_titles(others.index[others['signed_rank_holm'] < LEVEL])}."
    )
    below, above = (
        ", ".join(f"{int(table[side + suffix].sum())} {name}" for suffix, name in CORRECTIONS.items())
        for side in ("lower", "higher")
    )
    cells = len(others) * len(compared.evidence.scores.datasets)
    sentences.append(
        f"Of {cells} cells, the binomial test finds significantly below PVeRA: {below}; above it: {above} "
        "(BH: Benjamini and Hochberg)."
    )
    k, n = len(table), len(compared.evidence.scores.datasets)
    least = least_p_value(n, k - 1)
    sentences.append(
        f"With {n} data sets and {k} methods, average ranks must differ by {ranks.critical_difference:.2f} to be "
        f"separated, and can differ by {k - 1} at most. The smallest corrected p-value of the signed-rank test is "
        f"{least:.2g}" + (f", so it can find nothing at {LEVEL}." if least >= LEVEL else ".")
    )
    return sentences


def answer(compared: Comparison) -> str:
    """Say in one sentence over how many methods PVeRA's lead has which support."""
    others = compared.methods.drop(REFERENCE)
    ahead, supported = (int((others[column] > 0).sum()) for column in ("lead", "lead_low"))
    return (
        f"{compared.evidence.name}: PVeRA's average is above that of {ahead} of {len(others)} methods, and "
        f"the 95 % interval of its lead over data sets excludes zero for {supported} of these."
    )


def least_p_value(datasets: int, tests: int = 1) -> float:
    """Return the smallest p-value of the signed-rank test, times `tests` as in Holm's correction."""
    return min(1.0, tests * 0.5**datasets)


def small_samples(evidence: Evidence, sizes: Iterable[int]) -> pd.DataFrame:
    """Compute the power of n data sets, for each n of `sizes`, with the methods of the evidence.

    critical_difference: Nemenyi's; ranks differ by at most (methods − 1). least_p_value: of the signed-rank test after
    Holm's correction. resamples: number of different bootstrap resamples. highest: share of random choices of n data
    sets in which PVeRA has the highest average. A column per method of `APART`: share in which Nemenyi's test separates
    the two. NaN without the method, and where the evidence has fewer than n data sets.
    """
    scores, r = evidence.scores, evidence.reference
    mean = mean_and_std(scores.values, axis=1)[0]
    ranks = pd.DataFrame(mean).rank(ascending=False).to_numpy()
    rng = np.random.default_rng(SEED)
    rows = []
    for n in sizes:
        difference = nemenyi_difference(len(mean), n)
        row = {"datasets": n, "critical_difference": difference}
        row |= {"least_p_value": least_p_value(n, len(mean) - 1), "resamples": comb(2 * n - 1, n)}
        row |= dict.fromkeys(("highest", *APART), np.nan)
        if n <= mean.shape[1]:
            chosen = rng.permuted(np.tile(np.arange(mean.shape[1]), (SUBSETS, 1)), axis=1)[:, :n]
            row["highest"] = (mean[:, chosen].mean(-1).argmax(0) == r).mean()
            average_rank = ranks[:, chosen].mean(-1)  # (methods, subsets)
            for method in set(APART) & set(scores.methods):
                gap = average_rank[scores.methods.index(method)] - average_rank[r]
                row[method] = (np.abs(gap) >= difference).mean()
        rows.append(row)
    return pd.DataFrame(rows)


def comparison(compared: Comparison, name: str = "comparison") -> Table:
    """Build the table of all statistics per method, in three panels."""
    evidence, table = compared.evidence, compared.methods
    averages_, ranks, stars = [], [], []
    best, low_rank = marks(table["average"]), marks(-table["rank"], 2)
    for m, (method, row) in enumerate(table.iterrows()):
        title, itself = METHODS[method].title, method == REFERENCE
        seeds = NOTHING if np.isnan(row["lead_seeds"]) else f"± {row['lead_seeds']:.1f}"
        cells = [Cell(percent(row["average"]), best[m]), interval(None, row["low"], row["high"])]
        cells += [NOTHING] * 4 if itself else [
            signed(row["lead"], 1), interval(None, row["lead_low"], row["lead_high"]), seeds,
            p_value(row["signed_rank_holm"]),
        ]  # fmt: skip
        averages_.append(_row(title, [*cells, f"{100 * row['highest']:.0f}"]))
        gap = row["rank"] - table.at[REFERENCE, "rank"]
        apart = "yes" if abs(gap) >= compared.ranks.critical_difference else "no"
        better = interval(row["improvement"], row["improvement_low"], row["improvement_high"], 2)
        cells = [Cell(f"{row['rank']:.2f}", low_rank[m]), *([NOTHING] * 2 if itself else [apart, better])]
        ranks.append(_row(title, cells))
        if not itself:
            stars.append(_row(title, [str(int(row[column])) for column in _star_columns(table)]))
    totals = table[_star_columns(table)].sum()
    stars.append(_row("All", [str(int(total)) for total in totals], rule=True))
    tests = list(CORRECTIONS.values())
    header = [*["Printed"] * (evidence.printed is not None), *(f"Below: {test}" for test in tests)]
    panels = (
        Panel(
            "Averages",
            ("Average", "95 % interval", "PVeRA's lead", "95 % interval", "Other seeds", "p", "Highest in (%)"),
            tuple(averages_),
        ),
        Panel(
            "Ranks and probability of improvement",
            ("Average rank", "Apart from PVeRA", "P(PVeRA is better)"), tuple(ranks),
        ),
        Panel("Stars", (*header, *(f"Above: {test}" for test in tests)), tuple(stars)),
    )  # fmt: skip
    datasets = len(evidence.scores.datasets)
    ranked = compared.ranks
    test = "" if np.isnan(ranked.p_value) else f"Friedman's test: p {_equals(ranked.p_value)}; "
    caption = (
        f"{evidence.name}, {datasets} data sets: support for PVeRA's place in the ranking. (a) Average accuracy (%), "
        f"and PVeRA's lead over each method (points). Brackets: 95 % bootstrap intervals over data sets, "
        "paired. Other seeds: half the 95 % interval of the lead over seeds alone. p: one-sided signed-rank test "
        "over data sets that PVeRA is above, corrected by Holm. Highest in: share of resamples. Bold: best. "
        f"Underlined: second best. (b) {test}critical difference of average ranks {ranked.critical_difference:.2f} "
        f"(Nemenyi, {LEVEL}). (c) Data sets on which a method is significantly below and above PVeRA (pooled one-sided "
        "binomial test), uncorrected, and corrected over all methods and data sets by Holm and by Benjamini and "
        "Hochberg (BH)."
    )
    return Table(name, caption, evidence.about, lettered(panels), table.reset_index())


def sizes(evidence: Evidence, of: Iterable[int], name: str = "comparison_sizes") -> Table:
    """Build the table of `small_samples`."""
    data = small_samples(evidence, of)
    rows = []
    for row in data.itertuples():
        shares = (getattr(row, column) for column in ("highest", *APART))
        shares = (NOTHING if np.isnan(share) else f"{100 * share:.0f}" for share in shares)
        cells = [f"{row.critical_difference:.2f}", p_value(row.least_p_value), thousands(row.resamples)]
        rows.append(_row(str(row.datasets), [*cells, *shares]))
    k = len(evidence.scores.methods)
    caption = (
        f"Power of a number of data sets (left) with {k} methods. Critical difference: of average ranks (Nemenyi), "
        f"which differ by at most {k - 1}. Least p: the smallest of the signed-rank test after Holm's correction. "
        "Resamples: different ones of the bootstrap. Right: share of random choices of that many data sets in which "
        "PVeRA has the highest average, and in which Nemenyi's test separates it from another method."
    )
    apart = (f"Apart from {METHODS[method].title} (%)" for method in APART)
    header = ("Critical difference", "Least p", "Resamples", "PVeRA highest (%)", *apart)
    return Table(name, caption, evidence.about, (Panel("", header, tuple(rows)),), data)


def support(compared: list[Comparison], name: str = "comparison_support") -> Table:
    """Build the table of how many comparisons support PVeRA's lead over each method, by kind of support."""
    kinds = {
        "Higher average": lambda c: c.methods["lead"] > 0,
        "Interval over seeds": lambda c: c.methods["lead"] > c.methods["lead_seeds"],
        "Interval over data sets": lambda c: c.methods["lead_low"] > 0,
        "Signed-rank test": lambda c: c.methods["signed_rank_holm"] < LEVEL,
        "Nemenyi's test": lambda c: c.methods["rank"] - c.methods.at[REFERENCE, "rank"] >= c.ranks.critical_difference,
    }
    data = pd.DataFrame({kind: sum(holds(c).astype(int) for c in compared) for kind, holds in kinds.items()})
    data = data.drop(REFERENCE)
    rows = [
        _row(METHODS[method].title, [f"{count} of {len(compared)}" for count in counts])
        for method, counts in zip(data.index, data.to_numpy(), strict=True)
    ]
    highest = sum(c.methods["average"].idxmax() == REFERENCE for c in compared)
    caption = (
        f"PVeRA has the highest average in {highest} of {len(compared)} tables. Columns: tables in which its lead over "
        "the method (left) is above zero, and in which the lead is supported by its 95 % interval over seeds alone, by "
        "that over data sets, by the signed-rank test (corrected by Holm), and by Nemenyi's test."
    )
    about_all = " ".join(c.evidence.about for c in compared)
    return Table(name, caption, about_all, (Panel("", tuple(kinds), tuple(rows)),), data.reset_index())


def _star_columns(table: pd.DataFrame) -> list[str]:
    columns = [side + suffix for side in ("lower", "higher") for suffix in CORRECTIONS]
    return ["printed", *columns] if "printed" in table else columns


def _row(label: str, cells: Iterable[Cell | str], rule: bool = False) -> Row:
    return Row(label, tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in cells), rule)


def _titles(methods: Iterable[str]) -> str:
    return ", ".join(METHODS[method].title for method in methods) or "none"


def _equals(value: float) -> str:
    text = p_value(value)
    return text if text.startswith("<") else f"= {text}"
