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

from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.report.audit import divisor, sample_std
from pvera.report.published import BACKBONES, SEEDS, Published
from pvera.report.scores import ROWS, complete, cube, over_seeds, wide
from pvera.report.statistics import (
    LEVEL,
    Friedman,
    averages,
    corrected,
    friedman,
    nemenyi_difference,
    percentile_interval,
    probability_of_improvement,
    resample,
    seed_error,
    signed_rank,
)
from pvera.report.table import NOTHING, Table, interval, p_value, percent, plain, thousands, title
from pvera.report.tables.benchmark import REFERENCE, about, left_out, lower_p_values, pooled_counts
from pvera.report.tables.names import backbone_title

SEED = 0  # of the bootstrap and of the subsets
SUBSETS = 2000
APART = ("vera", "linear")  # the method that PVeRA extends, and the weakest one
CORRECTIONS = {"": "uncorrected", "_holm": "Holm", "_bh": "BH"}


@dataclass(frozen=True)
class Evidence:
    """Accuracies to compare, and their spread over seeds.

    scores: shares (`scores.wide`), complete. Frames with rows data sets and columns methods: std, runs: standard
    deviation and number of single runs; lower, higher: p-values of the pooled binomial test that a method is below or
    above PVeRA; printed: the stars in the paper, for its own tables.
    """

    name: str
    about: str
    scores: pd.DataFrame
    std: pd.DataFrame
    runs: pd.DataFrame
    lower: pd.DataFrame
    higher: pd.DataFrame
    printed: pd.DataFrame | None = None

    @property
    def datasets(self) -> int:
        """The number of data sets."""
        return len(self.scores.index.unique("dataset"))


def of_runs(runs: list[dict]) -> Evidence:
    """Collect the evidence of one backbone's runs. InputError without PVeRA, another method, or a common data set."""
    every = wide(runs)
    scores = complete(every)
    if REFERENCE not in scores or len(scores.columns) < 2:
        raise InputError("a comparison with PVeRA needs runs of PVeRA and of another method")
    of_seeds = scores.groupby(level="dataset", sort=False)
    counts = (part.droplevel("category").loc[list(of_seeds.groups)] for part in pooled_counts(runs))
    return Evidence(
        f"Profile {runs[0]['profile']}, backbone {backbone_title(runs[0]['backbone'])}", about(runs) + left_out(every),
        scores, of_seeds.std(), of_seeds.count(), *_both_tails(*counts),
    )  # fmt: skip


def of_published(paper: Published, backbone: str) -> Evidence:
    """Collect the evidence of a published table. Counts are reconstructed by rounding.

    Standard deviations divide by n − 1 (`audit.sample_std`), as everywhere here.
    """
    accuracy, std = paper.accuracies(backbone).T / 100, sample_std(paper, backbone).T / 100
    converted = ", taken to divide by n and converted to n − 1" if divisor(paper) == 0 else ""
    index = pd.MultiIndex.from_tuples([(TASKS[name].category, name, 0) for name in accuracy.index], names=ROWS)
    n = pd.DataFrame({method: [SEEDS * TASKS[name].test_images for name in accuracy.index] for method in accuracy},
                     accuracy.index)  # fmt: skip
    correct = (accuracy * n).round().astype(int)
    reference = pd.DataFrame(dict.fromkeys(accuracy, correct[REFERENCE]))
    return Evidence(
        f"The paper's {BACKBONES[backbone]}",
        f"Published accuracies of {BACKBONES[backbone]}: means and standard deviations of {SEEDS} seeds{converted}.",
        accuracy.set_axis(index), std, pd.DataFrame(SEEDS, std.index, std.columns), *_both_tails(correct, n, reference),
        printed=paper.accuracies(backbone, "star").T.astype(bool),
    )  # fmt: skip


def _both_tails(correct: pd.DataFrame, n: pd.DataFrame, reference: pd.DataFrame) -> list[pd.DataFrame]:
    """Return one-sided p-values below and above PVeRA; NaN for PVeRA itself."""
    sides = (correct, n, reference), (n - correct, n, n - reference)
    return [lower_p_values(*side).assign(**{REFERENCE: np.nan}) for side in sides]


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
    methods, datasets = evidence.scores.columns.rename("method"), evidence.datasets
    r = methods.get_loc(REFERENCE)
    percents = cube(100 * evidence.scores)
    mean = 100 * over_seeds(evidence.scores)
    drawn = resample(percents, np.random.default_rng(SEED))
    average, of_drawn = averages(percents), averages(drawn)
    improvement = probability_of_improvement(percents[:, None], percents)
    ranks = friedman(mean.to_numpy().T)
    columns = {"average": average}
    columns["low"], columns["high"] = percentile_interval(of_drawn, average, datasets)
    columns["lead"] = average[r] - average
    columns["lead_low"], columns["lead_high"] = percentile_interval(
        of_drawn[:, [r]] - of_drawn, columns["lead"], datasets
    )
    of_pair = np.hypot(evidence.std, evidence.std[[REFERENCE]].to_numpy())
    columns["lead_seeds"] = 100 * seed_error(of_pair.to_numpy().T, evidence.runs.to_numpy().T)
    columns["highest"] = (of_drawn.argmax(1)[:, None] == np.arange(len(average))).mean(0)
    columns["signed_rank"] = [signed_rank(mean[REFERENCE] - mean[method]) for method in methods]
    columns["improvement"] = improvement[r]
    of_pvera = probability_of_improvement(drawn[:, [r]], drawn)
    improved = percentile_interval(of_pvera, improvement[r], datasets)
    columns["improvement_low"], columns["improvement_high"] = np.clip(improved, 0, 1)
    columns["rank"] = ranks.ranks
    for side in ("lower", "higher"):
        p_values = getattr(evidence, side).to_numpy()
        for suffix, values in (
            ("", p_values), ("_holm", corrected(p_values)), ("_bh", corrected(p_values, "fdr_bh"))
        ):  # fmt: skip
            columns[side + suffix] = (values < LEVEL).sum(0)
    if evidence.printed is not None:
        columns["printed"] = evidence.printed.sum().to_numpy()
    table = pd.DataFrame(columns, methods)
    versus_itself = ["lead_seeds", "signed_rank", "improvement", "improvement_low", "improvement_high"]
    table.loc[REFERENCE, versus_itself] = np.nan
    table["signed_rank_holm"] = corrected(table["signed_rank"])
    return Comparison(evidence, table, pd.DataFrame(improvement, list(methods), list(methods)), ranks)


def summary(compared: Comparison) -> list[str]:
    """Say in a few sentences how well PVeRA's place in the ranking is supported."""
    table, ranks = compared.methods, compared.ranks
    others = table.drop(REFERENCE)
    next_best = others["average"].idxmax()
    pvera, other, name = table.loc[REFERENCE], table.loc[next_best], title(next_best)
    sentences = [
        f"PVeRA's average, {percent(pvera['average'])}, is {abs(other['lead']):.1f} points "
        f"{'above' if other['lead'] > 0 else 'below'} that of the best other method, {name}. "
        f"The 95 % interval of this lead over data sets is {interval(None, other['lead_low'], other['lead_high'])}; "
        + (
            "that over seeds is unknown."
            if np.isnan(other["lead_seeds"])
            else f"that over seeds alone is ± {other['lead_seeds']:.1f}."
        ),
        f"PVeRA has the highest average in {100 * pvera['highest']:.0f} % of the resamples, {name} in "
        f"{100 * other['highest']:.0f} %. On a data set PVeRA is better than {name} with probability "
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
        ", ".join(f"{int(table[side + suffix].sum())} {kind}" for suffix, kind in CORRECTIONS.items())
        for side in ("lower", "higher")
    )
    cells = len(others) * compared.evidence.datasets
    sentences.append(
        f"Of {cells} cells, the binomial test finds significantly below PVeRA: {below}; above it: {above} "
        "(BH: Benjamini and Hochberg)."
    )
    k, n = len(table), compared.evidence.datasets
    least = least_p_value(n, k - 1)
    sentences.append(
        f"With {n} data sets and {k} methods, average ranks must differ by {ranks.critical_difference:.2f} to be "
        f"separated, and can differ by {k - 1} at most. The smallest corrected p-value of the signed-rank test is "
        f"{least:.2g}" + (f", so it can find nothing at {LEVEL}." if least >= LEVEL else ".")
    )
    return sentences


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
    mean = over_seeds(evidence.scores)
    methods, ranks = list(mean), mean.rank(axis=1, ascending=False).to_numpy().T
    mean, r = mean.to_numpy().T, methods.index(REFERENCE)
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
            for method in set(APART) & set(methods):
                gap = average_rank[methods.index(method)] - average_rank[r]
                row[method] = (np.abs(gap) >= difference).mean()
        rows.append(row)
    return pd.DataFrame(rows)


def comparison(compared: Comparison, name: str = "comparison") -> Table:
    """Build the table of all statistics per method, in three panels."""
    evidence, table, ranked = compared.evidence, compared.methods, compared.ranks
    gap = (table["rank"] - table.at[REFERENCE, "rank"]).abs()
    shown = table.assign(highest=100 * table["highest"], apart=gap.ge(ranked.critical_difference))
    shown.loc[REFERENCE, "lead"] = np.nan
    counts = ["printed"] * ("printed" in table) + [side + suffix for side in SIDES for suffix in CORRECTIONS]
    stars = table.drop(index=REFERENCE)[counts]
    stars = pd.concat([stars, stars.sum().to_frame("All").T])

    def unless_itself(text: str, row: pd.Series) -> str:
        return NOTHING if row.name == REFERENCE else text

    spec = {
        "average": ("Average", 1, "max"),
        "low": ("95 % interval", lambda row: interval(None, row["low"], row["high"])),
        "lead": ("PVeRA's lead", "+1"),
        "lead_low": (
            "95 % interval",
            lambda row: unless_itself(interval(None, row["lead_low"], row["lead_high"]), row),
        ),
        "lead_seeds": (
            "Other seeds",
            lambda row: NOTHING if np.isnan(row["lead_seeds"]) else f"± {plain(row['lead_seeds'], 1)}",
        ),
        "signed_rank_holm": ("p", lambda row: unless_itself(p_value(row["signed_rank_holm"]), row)),
        "highest": ("Highest in (%)", 0),
        "rank": ("Average rank", 2, "min"),
        "apart": ("Apart from PVeRA", lambda row: unless_itself("yes" if row["apart"] else "no", row)),
        "improvement": (
            "P(PVeRA is better)",
            lambda row: interval(row["improvement"], row["improvement_low"], row["improvement_high"], 2),
        ),
        "printed": ("Printed", 0),
        **{side + suffix: (f"{heading}: {test}", 0)
           for side, heading in SIDES.items() for suffix, test in CORRECTIONS.items()},
    }  # fmt: skip
    panels = {
        "Averages": shown[
            ["average", "low", "high", *(n for n in shown if n.startswith(("lead", "signed", "highest")))]
        ],
        "Ranks and probability of improvement": shown[
            ["rank", "apart", "improvement", "improvement_low", "improvement_high"]
        ],
        "Stars": stars,
    }
    test = "" if np.isnan(ranked.p_value) else f"Friedman's test: p {_equals(ranked.p_value)}; "
    caption = (
        f"{evidence.name}, {evidence.datasets} data sets: support for PVeRA's place in the ranking. (a) Average "
        "accuracy (%), and PVeRA's lead over each method (points). Brackets: 95 % bootstrap intervals over data sets, "
        "paired. Other seeds: half the 95 % interval of the lead over seeds alone. p: one-sided signed-rank test "
        "over data sets that PVeRA is above, corrected by Holm. Highest in: share of resamples. Bold: best. "
        f"Underlined: second best. (b) {test}critical difference of average ranks {ranked.critical_difference:.2f} "
        f"(Nemenyi, {LEVEL}). (c) Data sets on which a method is significantly below and above PVeRA (pooled one-sided "
        "binomial test), uncorrected, and corrected over all methods and data sets by Holm and by Benjamini and "
        "Hochberg (BH)."
    )
    return Table(name, caption, panels, spec, table.reset_index(), evidence.about)


SIDES = {"lower": "Below", "higher": "Above"}


def sizes(evidence: Evidence, of: Iterable[int], name: str = "comparison_sizes") -> Table:
    """Build the table of `small_samples`."""
    data = small_samples(evidence, of)
    shares = ["highest", *APART]
    spec = {
        "critical_difference": ("Critical difference", 2),
        "least_p_value": ("Least p", lambda row: p_value(row["least_p_value"])),
        "resamples": ("Resamples", lambda row: thousands(row["resamples"])),
        "highest": ("PVeRA highest (%)", 0),
        **{method: (f"Apart from {title(method)} (%)", 0) for method in APART},
    }
    k = len(evidence.scores.columns)
    caption = (
        f"Power of a number of data sets (left) with {k} methods. Critical difference: of average ranks (Nemenyi), "
        f"which differ by at most {k - 1}. Least p: the smallest of the signed-rank test after Holm's correction. "
        "Resamples: different ones of the bootstrap. Right: share of random choices of that many data sets in which "
        "PVeRA has the highest average, and in which Nemenyi's test separates it from another method."
    )
    panel = data.set_index("datasets").assign(**{share: 100 * data.set_index("datasets")[share] for share in shares})
    return Table(name, caption, {"": panel}, spec, data, evidence.about)


def support(compared: list[Comparison]) -> Table:
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
    highest = sum(c.methods["average"].idxmax() == REFERENCE for c in compared)
    caption = (
        f"PVeRA has the highest average in {highest} of {len(compared)} tables. Columns: tables in which its lead over "
        "the method (left) is above zero, and in which the lead is supported by its 95 % interval over seeds alone, by "
        "that over data sets, by the signed-rank test (corrected by Holm), and by Nemenyi's test."
    )
    panel = data.map(f"{{}} of {len(compared)}".format)
    about_all = " ".join(c.evidence.about for c in compared)
    return Table("comparison_support", caption, {"": panel}, data=data.reset_index(), about=about_all)


def _titles(methods: Iterable[str]) -> str:
    return ", ".join(map(title, methods)) or "none"


def _equals(value: float) -> str:
    text = p_value(value)
    return text if text.startswith("<") else f"= {text}"
