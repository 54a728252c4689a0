"""The audit: is the paper consistent with itself?

Every printed number that others determine is recomputed. A *finding* is one printed thing, its
value according to everything else that is printed, and the outcome of the check. Rounding counts
in the paper's favour: a printed 71.4 stands for anything from 71.35 to 71.45 inclusive.

A person read the sentences, equations and suspicious cells (results/published/by_hand.csv).
notes.csv in the same folder holds remarks on computed findings. Reasons in them are conjectures
from patterns, since only the authors can know.
"""

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from pvera import backbones, cost
from pvera.adapters import PVeRA, VeRA
from pvera.data.glue import GLUE
from pvera.data.tasks import CATEGORIES, TASKS
from pvera.report.paper_numbers import DETAILED_TABLES, PAPER_BACKBONES, PAPER_SEEDS, PaperNumbers
from pvera.report.statistics import LEVEL, binomial_p_value
from pvera.report.table import markdown_table
from pvera.report.tables.benchmark import CATEGORY_OF, averages
from pvera.report.text import escape, listed, title

#: Half a unit of the last printed digit of an accuracy.
HALF = 0.05
#: Tolerance for sums of decimals.
EPSILON = 1e-9

FOLLOWS = "follows"
ROUNDING = "within rounding"
OPEN = "undecidable"
DOES_NOT_FOLLOW = "does not follow"
UNCHECKED = "not checkable"
OUTCOMES = (FOLLOWS, ROUNDING, OPEN, DOES_NOT_FOLLOW, UNCHECKED)

#: Backbone -> its detailed table and its title: "Table 6 (ViT-B/14)".
DETAILED_TITLES = {
    backbone: f"{DETAILED_TABLES[backbone]} ({name})" for backbone, name in PAPER_BACKBONES.items()
}


class Finding(NamedTuple):
    """One printed thing and the outcome of its check."""

    #: Where the paper prints it.
    place: str
    #: The thing.
    printed: str
    #: The value of the thing according to other printed numbers.
    recomputed: str
    #: One of `OUTCOMES`.
    outcome: str


Findings = Iterator[Finding]


def number_outcome(printed: float, value: float, half: float, slack: float) -> str:
    """Return the outcome for a printed number.

    Args:
        printed: The number.
        value: The recomputed number.
        half: Half a unit of the last printed digit; 0 where both are printed, and must be equal.
        slack: How far rounding can move `value`.
    """
    distance = abs(printed - value) - EPSILON
    if distance <= half:
        return FOLLOWS
    return ROUNDING if distance <= half + slack else DOES_NOT_FOLLOW


def lead_outcome(difference: float, slack: float) -> str:
    """Return the outcome for a difference that the paper calls positive.

    Args:
        difference: The recomputed difference.
        slack: How far rounding can move it.
    """
    if difference > 0:
        return FOLLOWS
    return ROUNDING if difference > -slack - EPSILON else DOES_NOT_FOLLOW


def agreement_outcome(same: bool) -> str:
    """Return the outcome for two things that should agree."""
    return FOLLOWS if same else DOES_NOT_FOLLOW


def equality_finding(place: str, printed: object, recomputed: object) -> Finding:
    """Return the finding on two things that must be equal."""
    return Finding(place, str(printed), str(recomputed), agreement_outcome(printed == recomputed))


def place_of(table: str, row: Any) -> str:
    """Return the name of the cell of a row with a method and a data set."""
    return f"{table}, {title(row.method)} on {title(row.dataset)}"


# Cells and averages


def check_cells(paper: PaperNumbers) -> Findings:
    """Yield the findings on the main table against the detailed table of the same backbone."""
    detailed = paper.detailed[paper.detailed["backbone"] == "dinov2_b"]
    pairs = paper.main.merge(detailed, on=["method", "dataset"], suffixes=("", "_detailed"))
    for row in pairs.itertuples():
        outcome = number_outcome(row.accuracy, row.accuracy_detailed, half=0, slack=2 * HALF)
        # Rounding is no excuse where no count of correct answers prints as both.
        answers = PAPER_SEEDS * TASKS[row.dataset].test_images
        both = np.array([row.accuracy, row.accuracy_detailed])
        least, most = plausible_counts(both, answers)
        if least.max() > most.min():
            outcome = DOES_NOT_FOLLOW
        recomputed = f"{row.accuracy_detailed:.1f} in Table 6"
        yield Finding(place_of("Table 1", row), f"{row.accuracy:.1f}", recomputed, outcome)


def detailed_averages(paper: PaperNumbers) -> pd.DataFrame:
    """Return the averages of the detailed tables.

    Returns:
        Rows (backbone, method); columns "average" and each category.
    """
    tables = {
        backbone: averages(paper.accuracies(backbone), CATEGORY_OF) for backbone in PAPER_BACKBONES
    }
    return pd.concat(tables, names=["backbone", "method"]).dropna()


def check_averages(paper: PaperNumbers) -> Findings:
    """Yield the findings on averages.

    Those of the main table follow from its cells, those of the text from the detailed tables.
    """
    detailed = detailed_averages(paper)["average"]
    main = paper.accuracies().mean(axis=1)
    for row in paper.averages.itertuples():
        other = detailed[row.backbone, row.method]
        value = other if row.source == "text" else main[row.method]
        recomputed = f"{value:.2f}"
        # The detailed tables print the same cells, but some of them differ.
        if recomputed != f"{other:.2f}":
            recomputed += f" ({other:.2f} from {DETAILED_TABLES[row.backbone]})"
        place = f"{row.source}, average of {title(row.method)}, {PAPER_BACKBONES[row.backbone]}"
        outcome = number_outcome(row.average, value, HALF, HALF)
        yield Finding(place, f"{row.average:.1f}", recomputed, outcome)


# Sentences about which method is best or second, and by how much


def check_order(paper: PaperNumbers) -> Findings:
    """Yield the findings on sentences that compare methods: first, whether PVeRA is the best."""
    # Backbones as rows, the other methods as columns.
    others = detailed_averages(paper)["average"].unstack()
    pvera = others.pop("pvera")
    leads = pvera - others.max(axis=1)

    for backbone, name in PAPER_BACKBONES.items():
        second = listed(others.loc[backbone].nlargest(1), "{:.2f}")
        recomputed = f"PVeRA {pvera[backbone]:.2f}, best other {second}"
        outcome = lead_outcome(leads[backbone], 2 * HALF)
        yield Finding(f"text, highest average, {name}", "PVeRA", recomputed, outcome)
    yield from check_second(paper, others)
    yield from check_leads(paper, leads)
    yield from check_linear(paper)
    yield check_wins(paper)


def check_second(paper: PaperNumbers, others: pd.DataFrame) -> Findings:
    """Yield whether the methods that the text calls second have the highest other averages."""
    for quote, backbone in (("second_s", "dinov2_s"), ("second_l", "dinov2_l")):
        quoted = paper.quote(quote)
        ranked = others.loc[backbone].sort_values(ascending=False)
        named = ranked[ranked.index.map(title).isin(quoted.split(" and "))]
        # Methods that share the second place have averages that may print alike.
        outcome = agreement_outcome(ranked.max() - named.min() <= 2 * HALF + EPSILON)
        place = f"text, second best, {PAPER_BACKBONES[backbone]}"
        yield Finding(place, quoted, listed(ranked.head(3), "{:.2f}"), outcome)


def check_leads(paper: PaperNumbers, leads: pd.Series) -> Findings:
    """Yield whether PVeRA leads by most on ViT-S and by least on ViT-L."""
    recomputed = ", ".join(f"{name} {leads[key]:.2f}" for key, name in PAPER_BACKBONES.items())
    for quote, backbone, sign in (("gap_s", "dinov2_s", 1), ("gap_l", "dinov2_l", -1)):
        least = (sign * (leads[backbone] - leads.drop(backbone))).min()
        # Two leads of two averages each: four roundings.
        place = f"text, lead of PVeRA, {PAPER_BACKBONES[backbone]}"
        yield Finding(place, paper.quote(quote), recomputed, lead_outcome(least, 4 * HALF))


def check_linear(paper: PaperNumbers) -> Findings:
    """Yield whether linear probing is good on natural images and the lowest elsewhere."""
    table = paper.accuracies()
    natural = table[[dataset for dataset in table if CATEGORY_OF[dataset] == "natural"]]
    below = natural.lt(natural.loc["linear"]).sum(axis=1)
    bottleneck, adaptformer = below["bottleneck"], below["adaptformer"]
    recomputed = (
        f"above Bottleneck on {bottleneck}, above AdaptFormer on {adaptformer} "
        f"of {natural.shape[1]} data sets"
    )
    outcome = agreement_outcome(bottleneck > 0 and adaptformer > 0)
    place = "text, linear probing on natural images"
    yield Finding(place, paper.quote("linear_natural"), recomputed, outcome)

    lowest = detailed_averages(paper).loc["dinov2_b"][list(CATEGORIES[1:])].idxmin()
    each = ", ".join(f"{title(method)} ({category})" for category, method in lowest.items())
    outcome = agreement_outcome(set(lowest) == {"linear"})
    place = "text, linear probing under a larger shift"
    yield Finding(place, paper.quote("linear_shift"), f"lowest average: {each}", outcome)


def check_wins(paper: PaperNumbers) -> Finding:
    """Return whether DoRA is best on as many data sets as the text says."""
    ranks = paper.accuracies().rank(ascending=False, method="min")
    wins = ranks.eq(1).sum(axis=1).sort_values(ascending=False, kind="stable")
    quoted = paper.quote("best_of_dora")
    outcome = agreement_outcome(int(quoted) == wins["dora"])
    return Finding("text, data sets on which DoRA is best", quoted, listed(wins, "{}"), outcome)


# Stars and standard deviations


def plausible_counts(percent: Any, n: Any) -> tuple[Any, Any]:
    """Return the least and the greatest count of n that prints as a percentage.

    Args:
        percent: The percentages; a number or an array, as `n`.
        n: Number of answers.
    """
    least = np.ceil(n * (percent - HALF) / 100 - EPSILON)
    most = np.floor(n * (percent + HALF) / 100 + EPSILON)
    return np.maximum(0, least), np.minimum(n, most)


def star_tests(paper: PaperNumbers) -> pd.DataFrame:
    """Test each accuracy that can have a star, in the detailed tables and the language table.

    Returns:
        A row per accuracy: table, method and dataset say where it is printed. accuracy, star: what
        is printed; reference: PVeRA's accuracy. n: answers, NaN where no binomial test applies.
        low, high: the range of p-values of the counts that print as these accuracies. earned:
        whether it gets a star; None where rounding leaves that open.
    """
    rows = _with_answers(paper)
    is_pvera = rows["method"] == "pvera"
    reference = rows[is_pvera].set_index(["table", "dataset"])["accuracy"].rename("reference")
    rows = rows[~is_pvera].join(reference, on=["table", "dataset"])

    # The fewest correct answers against the most of PVeRA give the lowest p-value.
    least, most = plausible_counts(rows["accuracy"], rows["n"])
    least_reference, most_reference = plausible_counts(rows["reference"], rows["n"])
    rows["low"] = binomial_p_value(least, rows["n"], most_reference)
    rows["high"] = binomial_p_value(most, rows["n"], least_reference)
    rows["earned"] = None
    rows.loc[rows["high"] < LEVEL, "earned"] = True
    rows.loc[rows["low"] >= LEVEL, "earned"] = False
    return rows


def _with_answers(paper: PaperNumbers) -> pd.DataFrame:
    """Return the accuracies of both kinds of tables, with their answers n."""
    detailed = paper.detailed.assign(table=paper.detailed["backbone"].map(DETAILED_TITLES))
    language = paper.language.rename(columns={"score": "accuracy", "task": "dataset"})
    rows = pd.concat([detailed, language.assign(table="Table 5")], ignore_index=True)

    images = {name: task.test_images for name, task in TASKS.items()}
    # CoLA's measure is a correlation, and a binomial test needs a share of correct answers.
    images |= {task.title: task.test_texts for task in GLUE.values() if task.metric == "accuracy"}
    return rows.assign(n=PAPER_SEEDS * rows["dataset"].map(images))


def check_stars(paper: PaperNumbers) -> Findings:
    """Yield the findings on the stars of the detailed tables and of the language table."""
    expected = {None: "star or none", True: "star", False: "no star"}
    for row in star_tests(paper).itertuples():
        place = place_of(row.table, row)
        printed = f"{row.accuracy:.1f}{'*' if row.star else ''} (PVeRA {row.reference:.1f})"
        if np.isnan(row.n):
            yield Finding(place, printed, "–", UNCHECKED)
            continue

        # Below 1e-99 digits depend on the platform.
        texts = [f"{p:.2g}" if p >= 1e-99 else "under 1e-99" for p in (row.low, row.high)]
        recomputed = f"{expected[row.earned]}: p {' to '.join(dict.fromkeys(texts))}"
        outcome = OPEN if row.earned is None else agreement_outcome(row.earned == row.star)
        yield Finding(place, printed, recomputed, outcome)

    tables = (paper.detailed, paper.language)
    of_pvera = sum(table.loc[table["method"] == "pvera", "star"].sum() for table in tables)
    yield equality_finding("stars of PVeRA itself", of_pvera, 0)


def check_spreads(paper: PaperNumbers) -> Findings:
    """Yield whether three accuracies in [0, 100] can have each mean and standard deviation."""
    for row in paper.detailed.itertuples():
        # Near 0 and 100 the largest spread depends much on the mean, which is rounded too.
        means = (row.accuracy - HALF, row.accuracy, row.accuracy + HALF)
        largest = max(map(largest_spread, means))
        outcome = agreement_outcome(row.std <= largest + HALF + EPSILON)
        printed = f"{row.accuracy:.1f} ± {row.std:.1f}"
        place = place_of(DETAILED_TITLES[row.backbone], row)
        yield Finding(place, printed, f"at most {largest_spread(row.accuracy):.1f}", outcome)


def largest_spread(mean: float) -> float:
    """Return the largest standard deviation of the seeds' accuracies in [0, 100] with this mean."""
    # As many of them are 100 as their total allows, one has what is left, and the others are 0.
    extremes = np.clip(PAPER_SEEDS * mean - 100 * np.arange(PAPER_SEEDS), 0, 100)
    return float(extremes.std(ddof=1))


# The grid table


def check_grid(paper: PaperNumbers) -> Findings:
    """Yield the findings on the grid table: its shares, and its most chosen values.

    Shares are possible if whole numbers print as them and sum to the number of configurations.
    """
    # 19 data sets with 3 seeds each.
    total = int(paper.quote("configurations"))
    for method, rows in paper.grid.groupby("method", sort=False):
        counts = _counts(rows["percent"], total)
        recomputed = f"no counts that sum to {total}"
        if counts is not None:
            recomputed = ", ".join(f"{count}/{total}" for count in counts)
        printed = ", ".join(f"{percent} %" for percent in rows["percent"])
        outcome = agreement_outcome(counts is not None)
        yield Finding(f"Table 4, {title(method)}", printed, recomputed, outcome)

    for method, quote in (("lora", "lora_rank"), ("vera", "vera_learning_rate")):
        rows = paper.grid[paper.grid["method"] == method]
        most = rows.loc[rows["percent"].idxmax(), "value"]
        place = f"text, most chosen value of {title(method)}"
        yield equality_finding(place, paper.quote(quote), f"{most:g}")


def _counts(percents: pd.Series, total: int) -> tuple[np.integer, ...] | None:
    """Return whole numbers that print as these percentages of their sum, or None."""
    shares = 100 * np.arange(total + 1) / total
    options = [np.flatnonzero(abs(shares - percent) <= 0.5 + EPSILON) for percent in percents]
    return next((counts for counts in product(*options) if sum(counts) == total), None)


# Trainable parameters and operations, counted on this package's models


def adapter_sizes(paper: PaperNumbers) -> pd.DataFrame:
    """Return the mean number of trainable parameters of each method on ViT-B.

    Returns:
        A row per method: parameters, weighted by the shares of the grid table; times, the same as a
        multiple of PVeRA's.
    """
    vit = backbones.meta_model("dinov2_b")
    sizes = {}
    for key, members in paper.configurations().items():
        counts = [cost.trained_parameters(vit, method) for method, _ in members]
        sizes[key] = np.average(counts, weights=[percent for _, percent in members])
    table = pd.DataFrame({"parameters": pd.Series(sizes)})
    return table.assign(times=table["parameters"] / table.at["pvera", "parameters"])


def check_sizes(paper: PaperNumbers) -> Findings:
    """Yield the findings on trainable parameters in the ablation tables and the text, on ViT-B."""
    vit = backbones.meta_model("dinov2_b")
    for row in paper.rank.itertuples():
        counted = cost.trained_parameters(vit, PVeRA(rank=row.rank))
        yield equality_finding(f"Table 2, r = {row.rank}", row.parameters, counted)
    for row in paper.position.itertuples():
        counted = cost.trained_parameters(vit, PVeRA(targets=row.targets))
        yield equality_finding(f"Table 3, {row.targets.upper()}", row.parameters, counted)

    times = adapter_sizes(paper)["times"].drop(["pvera", "linear"])
    recomputed = f"times PVeRA's: {listed(times, '{:.1f}')}"
    # "Orders of magnitude", in the plural, count from 10^1.5.
    outcome = agreement_outcome((np.log10(times) >= 1.5).mean() > 1 / 2)
    place = "text, PVeRA against most other adapters"
    yield Finding(place, paper.quote("size"), recomputed, outcome)


def check_costs(paper: PaperNumbers) -> Findings:
    """Yield the findings on the operations (%) that PVeRA and VeRA add to ViT-B/14."""
    vit = backbones.meta_model("dinov2_b")
    for method in (PVeRA(), VeRA()):
        printed = float(paper.quote(f"flops_{method.key}"))
        counted = cost.count_cost(vit, method)
        base = counted.backbone_multiply_adds
        # A pass that samples; VeRA does not sample.
        percent = 100 * ((counted.sampled or counted.inference) - base) / base
        recomputed = f"{percent:.2f} % of {base / cost.GIGA:.2f} G multiply-adds"
        outcome = number_outcome(printed, percent, half=HALF, slack=0)
        yield Finding(f"text, {method.title} on ViT-B/14", f"{printed} %", recomputed, outcome)


#: Kind of check -> its function, in the order of the paper's tables.
CHECKS = {
    "main table = detailed table": check_cells,
    "averages": check_averages,
    "best and second": check_order,
    "stars": check_stars,
    "standard deviations": check_spreads,
    "grid shares": check_grid,
    "parameters": check_sizes,
    "operations": check_costs,
}


def audit(paper: PaperNumbers) -> pd.DataFrame:
    """Return all findings with their notes: those of `CHECKS`, and those read by hand.

    Findings of one kind of check stand together, the computed ones first.
    """
    kinds = [pd.DataFrame(check(paper)).assign(check=kind) for kind, check in CHECKS.items()]
    # The CSV files call the outcome a verdict.
    computed = (
        pd.concat(kinds)
        .rename(columns={"outcome": "verdict"})
        .merge(paper.notes, "left", ["check", "place"])
    )
    findings = pd.concat([computed, paper.by_hand], ignore_index=True)
    findings = findings[list(paper.by_hand)].fillna("")
    # Kinds keep the order in which they first occur.
    order = findings["check"].factorize()[0].argsort(kind="stable")
    return findings.iloc[order].reset_index(drop=True)


def summary(findings: pd.DataFrame) -> pd.DataFrame:
    """Count the findings of each check (rows, the last one "all") by outcome (columns)."""
    table = pd.crosstab(findings["check"], findings["verdict"], margins=True, margins_name="all")
    checks = [*findings["check"].unique(), "all"]
    table = table.reindex(index=checks, columns=OUTCOMES, fill_value=0)
    return table.rename_axis(index="check", columns=None)


def findings_markdown(data: pd.DataFrame) -> str:
    """Return findings, or their numbers, as a table in Markdown, with titles instead of keys."""
    texts = data.astype(object).map(lambda cell: escape(title(cell)))
    header = [title(column) for column in data]
    return markdown_table(header, texts.to_numpy(), "l" * len(header))
