"""The audit: is the paper consistent with itself? Every printed number that others determine is recomputed.

A *finding* is one printed thing, its value according to everything else that is printed, and a verdict. Rounding is
taken in the paper's favour: a printed 71.4 stands for anything from 71.35 to 71.45 inclusive. Sentences and equations
were read by a person: results/published/by_hand.csv. notes.csv beside it holds remarks on computed findings; reasons in
them are conjectures from patterns, since only the authors can know.
"""

import math
from collections.abc import Iterator
from itertools import product
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import entr

from pvera import backbones, cost
from pvera.adapters import METHODS, PVeRA, VeRA
from pvera.data.tasks import TASKS
from pvera.report.published import BACKBONES, SEEDS, TABLES, Published
from pvera.report.stars import EPSILON, HALF, decide, decisions, p_range, plausible_counts
from pvera.report.statistics import binomial_p_value
from pvera.study import markdown
from pvera.study.results import CATEGORIES

FOLLOWS, ROUNDING, OPEN = "follows", "within rounding", "undecidable"
CONTRADICTS, UNCHECKED = "does not follow", "not checkable"

#: Verdict -> its meaning.
VERDICTS = {
    FOLLOWS: "the other printed numbers give it",
    ROUNDING: "they do not, but numbers that round to them can",
    OPEN: "some numbers that round to the printed ones give it, others give its opposite",
    CONTRADICTS: "no numbers that round to the printed ones give it",
    UNCHECKED: "it needs data, or a definition, that the paper does not print",
}


class Finding(NamedTuple):
    """One printed thing, its recomputed value, and the verdict."""

    check: str  # the kind of check
    place: str  # where the paper prints it
    printed: str
    recomputed: str
    verdict: str


def near(printed: float, value: float, half: float, slack: float) -> str:
    """Return the verdict on `printed`, precise to ± `half`, against `value`, which rounding can move by `slack`."""
    gap = abs(printed - value) - EPSILON
    return FOLLOWS if gap <= half else ROUNDING if gap <= half + slack else CONTRADICTS


def above(difference: float, slack: float) -> str:
    """Return the verdict on a difference that the paper calls positive and that rounding can move by `slack`."""
    return FOLLOWS if difference > 0 else ROUNDING if difference > -slack - EPSILON else CONTRADICTS


def agree(same: bool) -> str:
    """Return the verdict on a comparison without rounding."""
    return FOLLOWS if same else CONTRADICTS


def exact(check: str, place: str, printed, recomputed) -> Finding:
    """Return the finding on two things that must be equal."""
    return Finding(check, place, str(printed), str(recomputed), agree(printed == recomputed))


def titles(methods) -> str:
    """Return the titles of methods in a row: "DoRA and LoRA"."""
    return " and ".join(METHODS[m].title for m in methods)


def cell_title(backbone: str, method: str, dataset: str) -> str:
    """Return the place of a cell of a detailed table."""
    return f"{TABLES[backbone]} ({BACKBONES[backbone]}), {METHODS[method].title} on {TASKS[dataset].title}"


# Cells and averages


def check_cells(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the main table against the detailed table of the same backbone."""
    main, detailed = paper.main_table(), paper.accuracies("dinov2_b")
    for method, dataset in product(main.index, main.columns):
        printed, other = main.at[method, dataset], detailed.at[method, dataset]
        verdict = near(printed, other, 0, 2 * HALF)
        if verdict == ROUNDING:  # unless no count of correct answers prints as both
            n = SEEDS * TASKS[dataset].test_images
            low, high = zip(plausible_counts(printed, n), plausible_counts(other, n), strict=True)
            verdict = ROUNDING if max(low) <= min(high) else CONTRADICTS
        place = f"Table 1, {METHODS[method].title} on {TASKS[dataset].title}"
        yield Finding("main table = detailed table", place, f"{printed:.1f}", f"{other:.1f} in Table 6", verdict)


def means(paper: Published) -> pd.DataFrame:
    """Return the averages of the detailed tables: rows (backbone, method); columns "average" and each category."""
    grouped = paper.detailed.groupby(["backbone", "method"], sort=False)["accuracy"].mean().to_frame("average")
    categories = paper.detailed.pivot_table("accuracy", ["backbone", "method"], "category", sort=False)
    order = pd.MultiIndex.from_product([BACKBONES, METHODS], names=["backbone", "method"])
    return grouped.join(categories[list(CATEGORIES)]).reindex(order).dropna()


def ranks(paper: Published) -> pd.DataFrame:
    """Return each method's mean rank over the data sets (rows) for each backbone (columns).

    Rank 1 is the best; ties share their mean.
    """
    return pd.DataFrame({b: paper.accuracies(b).rank(ascending=False).mean(axis=1) for b in BACKBONES})


def check_averages(paper: Published) -> Iterator[Finding]:
    """Yield the findings on averages: the main table's from its cells, the text's from the detailed tables."""
    detailed, main = means(paper)["average"], paper.main_table().mean(axis=1)
    for row in paper.averages.itertuples():
        value = other = detailed[row.backbone, row.method]
        if row.source != "text":
            value = main[row.method]
        recomputed = f"{value:.2f}"
        if recomputed != f"{other:.2f}":
            recomputed += f" ({other:.2f} from {TABLES[row.backbone]})"
        place = f"{row.source}, average of {METHODS[row.method].title}, {BACKBONES[row.backbone]}"
        yield Finding("averages", place, f"{row.average:.1f}", recomputed, near(row.average, value, HALF, HALF))


# Sentences about which method is best or second, and by how much

ORDER = "best and second"


def check_order(paper: Published) -> Iterator[Finding]:
    """Yield the findings on sentences that compare methods by their averages."""
    average = means(paper)["average"]
    leads = {}
    for backbone, title in BACKBONES.items():
        pvera, others = average[backbone, "pvera"], average[backbone].drop("pvera")
        leads[backbone] = pvera - others.max()
        best = f"PVeRA {pvera:.2f}, best other {titles([others.idxmax()])} {others.max():.2f}"
        yield Finding(ORDER, f"text, highest average, {title}", "PVeRA", best, above(leads[backbone], 2 * HALF))
    for quote, backbone in (("second_s", "dinov2_s"), ("second_l", "dinov2_l")):
        said, others = paper.quote(quote), average[backbone].drop("pvera")
        named = [key for key in others.index if METHODS[key].title in said.split(" and ")]
        behind = others.max() - others
        tied_as_printed = set(behind.index[behind <= HALF + EPSILON])
        verdict = FOLLOWS if tied_as_printed == set(named) else above(-behind[named].max(), 2 * HALF)
        first = ", ".join(f"{METHODS[m].title} {others[m]:.2f}" for m in others.nlargest(3).index)
        yield Finding(ORDER, f"text, second best, {BACKBONES[backbone]}", said, first, verdict)
    for quote, backbone, sign in (("gap_s", "dinov2_s", 1), ("gap_l", "dinov2_l", -1)):
        least = min(sign * (leads[backbone] - lead) for other, lead in leads.items() if other != backbone)
        shown = ", ".join(f"{BACKBONES[b]} {lead:.2f}" for b, lead in leads.items())
        place = f"text, lead of PVeRA, {BACKBONES[backbone]}"
        yield Finding(ORDER, place, paper.quote(quote), shown, above(least, 4 * HALF))


def check_places(paper: Published) -> Iterator[Finding]:
    """Yield the findings on sentences about single methods in the main table."""
    table = paper.main_table()
    natural = table[[dataset for dataset in table if TASKS[dataset].category == "natural"]]
    beaten = natural.lt(natural.loc["linear"]).sum(axis=1)
    yield Finding(
        ORDER, "text, linear probing on natural images", paper.quote("linear_natural"),
        f"above Bottleneck on {beaten['bottleneck']}, above AdaptFormer on {beaten['adaptformer']} "
        f"of {natural.shape[1]} data sets",
        agree(beaten["bottleneck"] and beaten["adaptformer"]),
    )  # fmt: skip
    lowest = means(paper).loc["dinov2_b"][list(CATEGORIES[1:])].idxmin()
    shown = ", ".join(f"{METHODS[m].title} ({category})" for category, m in lowest.items())
    yield Finding(
        ORDER, "text, linear probing under a larger shift", paper.quote("linear_shift"), f"lowest average: {shown}",
        agree(set(lowest) == {"linear"}),
    )  # fmt: skip
    wins = table.rank(ascending=False, method="min").eq(1).sum(axis=1).sort_values(ascending=False, kind="stable")
    yield Finding(
        ORDER, "text, data sets on which DoRA is best", paper.quote("best_of_dora"),
        ", ".join(f"{METHODS[method].title} {number}" for method, number in wins.items()),
        agree(int(paper.quote("best_of_dora")) == wins["dora"]),
    )  # fmt: skip


def check_marks(paper: Published) -> Iterator[Finding]:
    """Yield the findings on bold (best) and underlined (second) cells, given the printed numbers."""
    values, printed = paper.main_table(), paper.main_table("mark")
    average = paper.averages[paper.averages["source"] != "text"].set_index("method")
    columns = {f"Table 1, {TASKS[d].title}": (values[d], printed[d]) for d in values}
    columns["Table 1, Average"] = (average["average"], average["mark"])
    for task, rows in paper.language.set_index("method").groupby("task", sort=False):
        columns[f"Table 5, {task}"] = (rows["score"], rows["mark"])
    for place, (scores, marks) in columns.items():
        expected = scores.rank(ascending=False, method="min").map({1: "best", 2: "second"}).fillna("")
        verdict = FOLLOWS if expected.eq(marks).all() else ROUNDING if _breaks_ties(scores, marks) else CONTRADICTS
        yield Finding("bold and underline", place, _described(marks), _described(expected), verdict)


def _breaks_ties(scores: pd.Series, marks: pd.Series) -> bool:
    """Return whether unrounded numbers behind equal printed ones could earn these marks."""
    best, second = (scores[marks == mark] for mark in ("best", "second"))
    if best.empty or (len(best) == 1) != (len(second) > 0):
        return False
    return best.eq(scores.max()).all() and second.eq(scores[marks != "best"].max()).all()


def _described(marks: pd.Series) -> str:
    """Return, for example, "best: PVeRA; second: DoRA and LoRA"."""
    methods = {mark: marks.index[marks == mark] for mark in ("best", "second")}
    return "; ".join(f"{mark}: {titles(keys)}" for mark, keys in methods.items() if len(keys))


# Stars

#: Sizes of the GLUE validation sets (Wang et al., 2019) behind the language table. CoLA is absent: its measure is
#: a correlation, and a binomial test needs a share of correct answers.
GLUE_VALIDATION = {"RTE": 277, "MRPC": 408}


def check_stars(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the stars of the detailed tables and of the language table."""
    for backbone in BACKBONES:
        accuracy, star = paper.accuracies(backbone), paper.accuracies(backbone, "star")
        for (method, dataset), decision in decisions(paper, backbone).stack(future_stack=True).items():
            cells = accuracy.at[method, dataset], star.at[method, dataset], accuracy.at["pvera", dataset]
            n = SEEDS * TASKS[dataset].test_images
            yield _star_finding(cell_title(backbone, method, dataset), *cells, n, decision)
    for task, rows in paper.language.set_index("method").groupby("task", sort=False):
        reference = rows.at["pvera", "score"]
        for method, row in rows.drop("pvera").iterrows():
            place = f"Table 5, {METHODS[method].title} on {task}"
            if task in GLUE_VALIDATION:
                n = SEEDS * GLUE_VALIDATION[task]
                cells = row["score"], row["star"], reference, n
                yield _star_finding(place, *cells, decide(row["score"], reference, n))
            else:
                yield Finding("stars", place, _starred(row["score"], row["star"], reference), "–", UNCHECKED)
    stars = [table.loc[table["method"] == "pvera", "star"].sum() for table in (paper.detailed, paper.language)]
    yield exact("stars", "stars of PVeRA itself", sum(stars), 0)


def _star_finding(place: str, value: float, star: bool, reference: float, n: int, decision: bool | None) -> Finding:
    bounds = p_range(value, reference, n, binomial_p_value)
    texts = [f"{p:.2g}" if p >= 1e-99 else "under 1e-99" for p in bounds]  # below, digits depend on the platform
    given = {None: "star or none", True: "star", False: "no star"}[decision]
    recomputed = f"{given}: p {' to '.join(dict.fromkeys(texts))}"
    verdict = OPEN if decision is None else agree(decision == star)
    return Finding("stars", place, _starred(value, star, reference), recomputed, verdict)


def _starred(value: float, star: bool, reference: float) -> str:
    return f"{value:.1f}{'*' if star else ''} (PVeRA {reference:.1f})"


# Standard deviations over seeds

SPREADS = "standard deviations"
WIDE = 20  # points; a standard deviation that only a seed far behind the others can give


def collapsed(paper: Published) -> pd.DataFrame:
    """Return the cells with a `WIDE` standard deviation and where their lowest seed would stand, if two seeds agree.

    by_n, by_n_less_1: its accuracy if the standard deviation divides by three, and by two. constant: 100 / classes,
    the accuracy of a constant answer in balanced classes.
    """
    wide = paper.detailed[paper.detailed["std"] >= WIDE]
    return wide.assign(
        by_n=wide["accuracy"] - wide["std"] * math.sqrt(2),
        by_n_less_1=wide["accuracy"] - wide["std"] * 2 / math.sqrt(3),
        constant=[100 / TASKS[dataset].classes for dataset in wide["dataset"]],
    )


def divisor(paper: Published) -> int | None:
    """Return 0 if the paper's standard deviations seem to divide by n, 1 if by n − 1 (numpy's ddof); None without
    evidence.

    Evidence: the lowest seed of most `collapsed` cells stands nearer to a constant answer.
    """
    cells = collapsed(paper)
    if cells.empty:
        return None
    nearer = (cells["by_n"] - cells["constant"]).abs() < (cells["by_n_less_1"] - cells["constant"]).abs()
    return 0 if nearer.mean() > 0.5 else 1


def sample_std(paper: Published, backbone: str) -> pd.DataFrame:
    """Return the printed standard deviations of a backbone as ones that divide by n − 1, by `divisor`."""
    std = paper.accuracies(backbone, "std")
    return std * math.sqrt(SEEDS / (SEEDS - 1)) if divisor(paper) == 0 else std


def check_spreads(paper: Published) -> Iterator[Finding]:
    """Yield the findings on whether three accuracies in [0, 100] can have this mean and standard deviation, and on
    what the standard deviations divide by, which the paper does not say.
    """
    for row in paper.detailed.itertuples():
        total = SEEDS * row.accuracy
        extreme = [min(100, max(0, total - 100 * i)) for i in range(SEEDS)]
        widest = float(np.std(extreme, ddof=1))
        place, verdict = cell_title(row.backbone, row.method, row.dataset), agree(row.std <= widest + 2 * HALF)
        yield Finding(SPREADS, place, f"{row.accuracy:.1f} ± {row.std:.1f}", f"at most {widest:.1f}", verdict)
    if (ddof := divisor(paper)) is not None:
        yield Finding(SPREADS, "Tables 6 to 8, divisor", "not said", ("n", "n − 1")[ddof], UNCHECKED)


# Cells that look like trainings that learned nothing, and the averages that they move

SUSPECTS = "suspected cells"
REPEATED = 1 / 3  # of a data set's cells; so many equal ones are listed
FAILED, LOW = 1 / 10, 1 / 2  # of the median over a backbone's methods


def far_below(table: pd.DataFrame, share: float) -> pd.DataFrame:
    """Return True in the cells (methods × data sets) under `share` of the median over methods."""
    return table < share * table.median()


def check_suspects(paper: Published) -> Iterator[Finding]:
    """Yield the findings on repeated cells, on cells far below all others, and on the averages of their methods.

    Nothing printed contradicts such a cell, so none of them is checkable: the predictions would tell.
    """
    for dataset, cells in paper.detailed.groupby("dataset", sort=False):
        counts = cells.loc[cells["std"] == 0, "accuracy"].value_counts()
        if counts.empty or counts.max() <= REPEATED * len(cells):
            continue
        value = counts.idxmax()
        below, above_it = ((sign * (cells["accuracy"] - value) > 2 * HALF + EPSILON).sum() for sign in (-1, 1))
        printed = f"{counts.max()} of {len(cells)} cells are {value:.1f} ± 0.0"
        recomputed = f"{below} cells below it, {above_it} above it"
        yield Finding(SUSPECTS, f"Tables 6 to 8, {TASKS[dataset].title}", printed, recomputed, UNCHECKED)
    for backbone in BACKBONES:
        table = paper.accuracies(backbone)
        failed = table[far_below(table, FAILED)].stack().dropna()
        for (method, dataset), value in failed.items():
            median = f"median of the methods {table[dataset].median():.1f}"
            yield Finding(SUSPECTS, cell_title(backbone, method, dataset), f"{value:.1f}", median, UNCHECKED)
        for method in failed.index.unique(0):
            rows, texts = table.loc[[method, "linear"]], []
            for share, name in ((FAILED, "a tenth"), (LOW, "half")):
                low = far_below(table, share).loc[method]
                texts.append(f"{_beside(rows.loc[:, ~low])} without its {low.sum()} under {name} of the median")
            place = f"{TABLES[backbone]} ({BACKBONES[backbone]}), average of {METHODS[method].title}"
            printed = f"{METHODS[method].title} and Linear: {_beside(rows)} over all data sets"
            yield Finding(SUSPECTS, place, printed, "; ".join(texts), UNCHECKED)


def _beside(rows: pd.DataFrame) -> str:
    return " and ".join(f"{mean:.1f}" for mean in rows.mean(axis=1))


# The grid table


def shares(percents: list[int], total: int) -> tuple[int, ...] | None:
    """Return whole numbers that sum to `total` and print as these percentages of it; None if there are none."""
    options = [[k for k in range(total + 1) if abs(100 * k / total - p) <= 0.5 + EPSILON] for p in percents]
    return next((counts for counts in product(*options) if sum(counts) == total), None)


def check_grid(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the grid table: shares of its configurations, and its most chosen values."""
    total = int(paper.quote("configurations"))
    for method, rows in paper.grid.groupby("method", sort=False):
        counts = shares(rows["percent"].tolist(), total)
        yield Finding(
            "grid shares", f"Table 4, {METHODS[method].title}", ", ".join(f"{p} %" for p in rows["percent"]),
            ", ".join(f"{k}/{total}" for k in counts) if counts else f"no counts that sum to {total}",
            agree(counts is not None),
        )  # fmt: skip
    for method, quote in (("lora", "lora_rank"), ("vera", "vera_learning_rate")):
        rows = paper.grid[paper.grid["method"] == method]
        most = rows.loc[rows["percent"].idxmax(), "value"]
        yield exact(
            "grid shares", f"text, most chosen value of {METHODS[method].title}", paper.quote(quote), f"{most:g}"
        )


# Trained parameters and operations, recomputed from this package's models and closed forms


def adapter_sizes(paper: Published) -> pd.DataFrame:
    """Return the mean number of trained parameters of each method on ViT-B, weighted by the grid's shares.

    times: the same as a multiple of PVeRA's.
    """
    vit, rows = backbones.shapes("dinov2_b"), {}
    for key, members in paper.configurations().items():
        methods, percents = zip(*members, strict=True)
        rows[key] = np.average([cost.trained_parameters(vit, method) for method in methods], weights=percents)
    table = pd.DataFrame({"parameters": pd.Series(rows)})
    return table.assign(times=table["parameters"] / table.at["pvera", "parameters"])


def check_sizes(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the trained parameters in the ablation tables and the text, counted on ViT-B.

    Orders of magnitude, in the plural, count from 10^1.5.
    """
    vit, trained = backbones.shapes("dinov2_b"), cost.trained_parameters
    for row in paper.rank.itertuples():
        yield exact("parameters", f"Table 2, r = {row.rank}", row.parameters, trained(vit, PVeRA(rank=row.rank)))
    for row in paper.position.itertuples():
        place = f"Table 3, {row.targets.upper()}"
        yield exact("parameters", place, row.parameters, trained(vit, PVeRA(targets=row.targets)))
    times = adapter_sizes(paper)["times"].drop(["pvera", "linear"])
    yield Finding(
        "parameters", "text, PVeRA against most other adapters", paper.quote("size"),
        "times PVeRA's: " + ", ".join(f"{METHODS[m].title} {x:.1f}" for m, x in times.items()),
        agree((np.log10(times) >= 1.5).mean() > 1 / 2),
    )  # fmt: skip


def check_costs(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the percentages of operations that PVeRA and VeRA add to ViT-B/14, from closed forms."""
    shape = cost.Shape.of(backbones.shapes("dinov2_b"))
    base = cost.backbone_multiply_adds(shape)
    for method in (PVeRA(), VeRA()):
        printed = float(paper.quote(f"flops_{method.key}"))
        percent = 100 * cost.adapter_multiply_adds(method, shape, sampled=True) / base
        recomputed = f"{percent:.2f} % of {base / cost.GIGA:.2f} G multiply-adds"
        verdict = near(printed, percent, HALF, 0)
        yield Finding("operations", f"text, {method.title} on ViT-B/14", f"{printed} %", recomputed, verdict)


# The two ablation tables, and bounds on the losses that they print


def ablation_losses(paper: Published) -> pd.DataFrame:
    """Return bounds on the ablations' loss per data set; the tables print means over these data sets.

    floor: the least loss of a softmax taken twice, log(e + C − 1) − 1 for C classes. one_hot: that loss at the main
    table's accuracy with scores of 0 and 1. calibrated: the greatest loss of one softmax with calibrated scores: every
    image has the accuracy as its confidence. uniform: the loss of equal scores.
    """
    names = paper.ablation_datasets()
    accuracy = paper.main_table().loc["pvera", names] / 100
    classes = np.array([TASKS[name].classes for name in names])
    wrong_twice = np.log(np.e + classes - 1)
    return pd.DataFrame(
        {
            "accuracy": accuracy,
            "floor": wrong_twice - 1,
            "one_hot": wrong_twice - accuracy,
            "calibrated": entr(accuracy) + entr(1 - accuracy) + (1 - accuracy) * np.log(classes - 1),
            "uniform": np.log(classes),
        }
    )


def check_ablations(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the two ablation tables, against one another and against the text."""
    check = "ablations"
    rank, position = paper.rank.set_index("rank"), paper.position.set_index("targets")
    r, targets = int(paper.quote("position_table_rank")), _letters(paper.quote("rank_table_targets"))
    for column in ("loss", "parameters"):
        place = f"Table 2 r = {r}, Table 3 {targets.upper()}: {column}"
        yield exact(check, place, rank.at[r, column], position.at[targets, column])
    yield exact(check, "text, best rank", int(paper.quote("best_rank")), rank["loss"].idxmin())
    yield exact(check, "text, best position", _letters(paper.quote("best_targets")), position["loss"].idxmin())
    close = paper.quote("close_ranks")
    nearest = rank["loss"].nsmallest(2 + close.count(",")).index[1:]
    yield exact(check, "text, ranks nearly as good", close, ", ".join(map(str, sorted(nearest))))
    datasets = paper.ablation_datasets()
    per_category = [sum(TASKS[dataset].category == category for dataset in datasets) for category in CATEGORIES]
    yield exact(check, "text, data sets per category", "2, 2, 2", ", ".join(map(str, per_category)))
    yield exact(check, "text, data sets", int(paper.quote("ablation_count")), len(datasets))
    bound, losses = ablation_losses(paper)["calibrated"].mean(), pd.concat([paper.rank, paper.position])["loss"]
    yield Finding(
        check, "Tables 2 and 3, losses as a cross entropy", f"{losses.min():.3f} to {losses.max():.3f}",
        f"at most {bound:.2f} for calibrated scores at Table 1's accuracies",
        UNCHECKED if losses.min() > bound else FOLLOWS,
    )  # fmt: skip


def _letters(text: str) -> str:
    """Return "qv" for "query and value" and for "Q and V"."""
    return "".join(word[0].lower() for word in text.split() if word != "and")


#: In the order of the paper's tables.
CHECKS = (
    check_cells,
    check_averages,
    check_order,
    check_places,
    check_marks,
    check_stars,
    check_spreads,
    check_suspects,
    check_grid,
    check_sizes,
    check_costs,
    check_ablations,
)


def audit(paper: Published) -> pd.DataFrame:
    """Return all findings, one row each with its note: those of `CHECKS`, and those read by hand after their kind."""
    computed = pd.DataFrame([finding for check in CHECKS for finding in check(paper)])
    computed = computed.merge(paper.notes, "left", ["check", "place"])
    findings = pd.concat([computed, paper.by_hand], ignore_index=True).fillna("")
    kinds = pd.Categorical(findings["check"], findings["check"].unique())
    return findings.iloc[kinds.argsort(kind="stable")].reset_index(drop=True)


def summary(findings: pd.DataFrame) -> pd.DataFrame:
    """Count the findings of each check (rows) by verdict (columns)."""
    table = pd.crosstab(findings["check"], findings["verdict"])
    table = table.reindex(index=findings["check"].unique(), columns=list(VERDICTS), fill_value=0)
    table.loc["all"] = table.sum()
    return table.rename_axis(index="check", columns=None)


def table(data: pd.DataFrame) -> str:
    """Return a table in Markdown, without its index."""
    rows = [[markdown.escape(value) for value in row] for row in data.astype(str).to_numpy()]
    return markdown.table([markdown.escape(title) for title in data], rows)


PAGE = """\
# Is the paper consistent with itself?

The audit recomputes every printed number that other printed numbers determine;
[the notebook](../../analysis/audit.ipynb) shows how. Rounding is taken in the paper's favour: a printed 71.4
stands for anything from 71.35 to 71.45. For a star's test, the page gives the least and the greatest p-value that
rounding allows. A finding says that two printed things disagree. It does not say which of them is wrong, and several
findings can have one cause. Reasons in the notes are conjectures from patterns; only the authors can know."""


def page(findings: pd.DataFrame) -> str:
    """Return the audit as a page: the number of findings, those that do not follow, and the averages that do."""
    meanings = pd.DataFrame(VERDICTS.items(), columns=["verdict", "meaning"])
    parts = [PAGE, table(meanings), table(summary(findings).reset_index())]
    for verdict in (CONTRADICTS, ROUNDING, OPEN, UNCHECKED):
        part = findings[findings["verdict"] == verdict].drop(columns="verdict")
        parts += [f"## {verdict.capitalize()}", table(part)]
    follow = findings[(findings["check"] == "averages") & (findings["verdict"] == FOLLOWS)]
    parts += ["## Averages that follow", table(follow[["place", "printed", "recomputed"]])]
    return "\n\n".join(parts) + "\n"
