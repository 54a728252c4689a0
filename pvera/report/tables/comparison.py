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
from pvera.report.audit import sample_std
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
from pvera.report.table import NOTHING, Table, interval, p_value, plain, thousands, title
from pvera.report.tables.benchmark import REFERENCE, about, left_out, lower_p_values, pooled_counts
from pvera.report.tables.names import backbone_title

SEED = 0  # of the subsets
SUBSETS = 2000
APART = ("vera", "linear")  # the method that PVeRA extends, and the weakest one
CORRECTIONS = {"": "uncorrected", "_holm": "Holm", "_bh": "BH"}


@dataclass(frozen=True)
class Comparison:
    """All statistics of the methods' accuracies.

    scores: shares (`scores.wide`), complete. ranks: `friedman`. improvement: P(row better than column). methods: one
    row per method; accuracies and leads in percent:

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

    name: str
    about: str
    scores: pd.DataFrame
    ranks: Friedman
    improvement: pd.DataFrame
    methods: pd.DataFrame

    @property
    def datasets(self) -> int:
        """The number of data sets."""
        return len(self.scores.index.unique("dataset"))


def of_runs(runs: list[dict]) -> Comparison:
    """Compare one backbone's runs. InputError without PVeRA, another method, or a common data set."""
    every = wide(runs)
    scores = complete(every)
    if REFERENCE not in scores or len(scores.columns) < 2:
        raise InputError("a comparison with PVeRA needs runs of PVeRA and of another method")
    of_seeds = scores.groupby(level="dataset", sort=False)
    counts = [part.droplevel("category").loc[list(of_seeds.groups)] for part in pooled_counts(runs)]
    name = f"Profile {runs[0]['profile']}, backbone {backbone_title(runs[0]['backbone'])}"
    return _compare(name, about(runs) + left_out(every), scores, of_seeds.std(), of_seeds.count(), counts)


def of_published(paper: Published, backbone: str) -> Comparison:
    """Compare a published table. Counts are reconstructed by rounding.

    Standard deviations divide by n − 1 (`audit.sample_std`), as everywhere here.
    """
    accuracy, std = paper.accuracies(backbone).T / 100, sample_std(paper, backbone).T / 100
    index = pd.MultiIndex.from_tuples([(TASKS[name].category, name, 0) for name in accuracy.index], names=ROWS)
    images = pd.Series({name: SEEDS * TASKS[name].test_images for name in accuracy.index})
    n = pd.DataFrame(dict.fromkeys(accuracy, images))
    correct = (accuracy * n).round().astype(int)
    reference = pd.DataFrame(dict.fromkeys(accuracy, correct[REFERENCE]))
    about = (
        f"Published accuracies of {BACKBONES[backbone]}: means and standard deviations of {SEEDS} seeds, as far as the "
        "audit finds signs of n converted to n − 1."
    )
    runs, printed = pd.DataFrame(SEEDS, std.index, std.columns), paper.accuracies(backbone, "star").sum(axis=1)
    name = f"The paper's {BACKBONES[backbone]}"
    return _compare(name, about, accuracy.set_axis(index), std, runs, [correct, n, reference], printed)


def _compare(
    name: str,
    about: str,
    scores: pd.DataFrame,
    std: pd.DataFrame,
    runs: pd.DataFrame,
    counts: list[pd.DataFrame],
    printed: pd.Series | None = None,
) -> Comparison:
    """Compute all statistics of complete scores.

    Frames with rows data sets and columns methods: std, runs: standard deviation over seeds and number of seeds;
    counts: `benchmark.pooled_counts`. printed: number of stars per method in the paper.
    """
    mean, percents = 100 * over_seeds(scores), cube(100 * scores)
    methods, r, datasets = scores.columns.rename("method"), scores.columns.get_loc(REFERENCE), len(mean)
    drawn = resample(percents)
    average, of_drawn = averages(percents), averages(drawn)
    lead, better = average[r] - average, probability_of_improvement(percents[:, None], percents)
    low, high = percentile_interval(of_drawn, average, datasets)
    lead_low, lead_high = percentile_interval(of_drawn[:, [r]] - of_drawn, lead, datasets)
    improved = percentile_interval(probability_of_improvement(drawn[:, [r]], drawn), better[r], datasets)
    improvement_low, improvement_high = np.clip(improved, 0, 1)
    std_of_lead, ranks = np.hypot(std, std[[REFERENCE]].to_numpy()), friedman(mean.to_numpy().T)
    columns = {
        "average": average, "low": low, "high": high, "lead": lead, "lead_low": lead_low, "lead_high": lead_high,
        "lead_seeds": 100 * seed_error(std_of_lead.to_numpy().T, runs.to_numpy().T),
        "highest": (of_drawn.argmax(1)[:, None] == np.arange(len(average))).mean(0),
        "signed_rank": [signed_rank(mean[REFERENCE] - mean[method]) for method in methods],
        "improvement": better[r], "improvement_low": improvement_low, "improvement_high": improvement_high,
        "rank": ranks.ranks,
    }  # fmt: skip
    correct, n, reference = counts
    sides = {"lower": counts, "higher": (n - correct, n, n - reference)}
    for side, of_side in sides.items():
        p_values = lower_p_values(*of_side).assign(**{REFERENCE: np.nan}).to_numpy()
        adjusted = {"": p_values, "_holm": corrected(p_values), "_bh": corrected(p_values, "fdr_bh")}
        columns |= {side + suffix: (values < LEVEL).sum(0) for suffix, values in adjusted.items()}
    if printed is not None:
        columns["printed"] = printed.to_numpy()
    table = pd.DataFrame(columns, methods)
    versus_itself = ["lead_seeds", "signed_rank", "improvement", "improvement_low", "improvement_high"]
    table.loc[REFERENCE, versus_itself] = np.nan
    table["signed_rank_holm"] = corrected(table["signed_rank"])
    return Comparison(name, about, scores, ranks, pd.DataFrame(better, list(methods), list(methods)), table)


def table(compared: Comparison, name: str) -> Table:
    """Build the table of all statistics per method, in three panels."""
    methods, critical = compared.methods, compared.ranks.critical_difference
    apart = (methods["rank"] - methods.at[REFERENCE, "rank"]).abs().ge(critical).map({True: "yes", False: "no"})
    shown = methods.assign(highest=100 * methods["highest"], apart=apart)
    shown.loc[REFERENCE, ["lead", "lead_low", "lead_high"]] = np.nan
    shown.loc[REFERENCE, "apart"] = NOTHING
    tests = {side + suffix: f"{heading}: {test}" for side, heading in (("lower", "Below"), ("higher", "Above"))
             for suffix, test in CORRECTIONS.items()}  # fmt: skip
    stars = methods.drop(index=REFERENCE)[[key for key in ("printed", *tests) if key in methods]]
    spec = {
        "average": ("Average", 1, "max"),
        "low": ("95 % interval", lambda row: interval(None, row["low"], row["high"])),
        "lead": ("PVeRA's lead", "+1"),
        "lead_low": ("95 % interval", lambda row: interval(None, row["lead_low"], row["lead_high"])),
        "lead_seeds": ("Other seeds, ±", 1),
        "signed_rank_holm": ("p", lambda row: p_value(row["signed_rank_holm"])),
        "highest": ("Highest in (%)", 0),
        "rank": ("Average rank", 2, "min"),
        "apart": ("Apart from PVeRA", lambda row: row["apart"]),
        "improvement": (
            "P(PVeRA is better)",
            lambda row: interval(row["improvement"], row["improvement_low"], row["improvement_high"], 2),
        ),
        "printed": ("Printed", 0),
    } | {key: (heading, 0) for key, heading in tests.items()}
    ranks = ["rank", "apart", "improvement", "improvement_low", "improvement_high"]
    panels = {
        "Averages": shown.drop(columns=[*ranks, *stars]),
        "Ranks and probability of improvement": shown[ranks],
        "Stars": pd.concat([stars, stars.sum().to_frame("All").T]),
    }
    caption = (
        f"{compared.name}, {compared.datasets} data sets: support for PVeRA's place in the ranking. (a) Average "
        "accuracy (%), and PVeRA's lead over each method (points). Brackets: 95 % bootstrap intervals over data sets, "
        "paired. Other seeds: half the 95 % interval of the lead over seeds alone. p: one-sided signed-rank test "
        "over data sets that PVeRA is above, corrected by Holm. Highest in: share of resamples. Bold: best. "
        f"Underlined: second best. (b) Friedman's test: p {p_value(compared.ranks.p_value)}; critical difference of "
        f"average ranks {critical:.2f} (Nemenyi, {LEVEL}). (c) Data sets on which a method is significantly below and "
        "above PVeRA (pooled one-sided binomial test), uncorrected, and corrected over all methods and data sets by "
        "Holm and by Benjamini and Hochberg (BH)."
    )
    return Table(name, caption, panels, spec, methods.reset_index(), compared.about)


def sizes(compared: Comparison, of: Iterable[int]) -> Table:
    """Build the table of the power of n data sets, for each n of `of`, with the methods of a comparison.

    critical_difference: Nemenyi's; ranks differ by at most (methods − 1). least_p_value: of the signed-rank test after
    Holm's correction. resamples: number of different bootstrap resamples. highest: share of random choices of n data
    sets in which PVeRA has the highest average. A column per method of `APART`: share in which Nemenyi's test separates
    the two. NaN for more data sets than there are.
    """
    frame = over_seeds(compared.scores)
    mean, ranks = frame.to_numpy().T, frame.rank(axis=1, ascending=False).to_numpy().T
    k, r = len(mean), frame.columns.get_loc(REFERENCE)
    rng = np.random.default_rng(SEED)
    rows = []
    for n in of:
        difference = nemenyi_difference(k, n)
        row = {"datasets": n, "critical_difference": difference, "least_p_value": min(1.0, (k - 1) * 0.5**n)}
        row |= {"resamples": comb(2 * n - 1, n)}
        if n <= mean.shape[1]:
            chosen = rng.permuted(np.tile(np.arange(mean.shape[1]), (SUBSETS, 1)), axis=1)[:, :n]
            row["highest"] = (mean[:, chosen].mean(-1).argmax(0) == r).mean()
            average_rank = ranks[:, chosen].mean(-1)  # (methods, subsets)
            for method in APART:
                gap = average_rank[frame.columns.get_loc(method)] - average_rank[r]
                row[method] = (np.abs(gap) >= difference).mean()
        rows.append(row)
    data = pd.DataFrame(rows)
    spec = {
        "critical_difference": ("Critical difference", 2),
        "least_p_value": ("Least p", lambda row: p_value(row["least_p_value"])),
        "resamples": ("Resamples", lambda row: thousands(row["resamples"])),
        "highest": ("PVeRA highest (%)", lambda row: plain(100 * row["highest"], 0)),
    }
    for method in APART:
        spec[method] = (f"Apart from {title(method)} (%)", lambda row, method=method: plain(100 * row[method], 0))
    caption = (
        f"Power of a number of data sets (left) with {k} methods. Critical difference: of average ranks (Nemenyi), "
        f"which differ by at most {k - 1}. Least p: the smallest of the signed-rank test after Holm's correction. "
        "Resamples: different ones of the bootstrap. Right: share of random choices of that many data sets in which "
        "PVeRA has the highest average, and in which Nemenyi's test separates it from another method."
    )
    return Table("comparison_sizes", caption, {"": data.set_index("datasets")}, spec, data, compared.about)


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
    panel, sources = data.map(f"{{}} of {len(compared)}".format), " ".join(c.about for c in compared)
    return Table("comparison_support", caption, {"": panel}, data=data.reset_index(), about=sources)
