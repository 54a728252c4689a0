"""Is the paper consistent with itself? Every printed number that others determine, recomputed from those.

A *finding* is one printed thing, what it is by everything else that is printed, and a verdict:

    follows           it is what the other numbers give
    within rounding   it is not, but numbers that round to the printed ones can give it
    undecidable       numbers that round to the printed ones give it, and others its opposite
    does not follow   no numbers that round to the printed ones give it
    not checkable     it needs data, or a definition, that the paper does not print

Rounding is taken in the paper's favour: a printed 71.4 stands for anything from 71.35 to 71.45 inclusive.
What a note gives as a reason is a conjecture from the pattern; only the authors can know.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np
import pandas as pd
from scipy.stats import binomtest, norm

from pvera import backbones, cost
from pvera.adapters import METHODS, PVeRA, VeRA
from pvera.data.tasks import TASKS
from pvera.report import tables
from pvera.report.published import BACKBONES, SEEDS, TABLES, Published
from pvera.report.statistics import LEVEL, binomial_p_value
from pvera.study.results import CATEGORIES

FOLLOWS, ROUNDING, OPEN, CONTRADICTS, UNCHECKED = VERDICTS = (
    "follows",
    "within rounding",
    "undecidable",
    "does not follow",
    "not checkable",
)
HALF = 0.05  # half a unit of the last printed digit of an accuracy
EPSILON = 1e-9

#: Examples of the GLUE validation sets (Wang et al., 2019) behind the language table. CoLA has no place here:
#: its measure is a correlation, which is no share of right answers.
GLUE_VALIDATION = {"RTE": 277, "MRPC": 408}


@dataclass(frozen=True)
class Finding:
    check: str  # what kind of thing
    place: str  # where it is printed
    printed: str
    recomputed: str
    verdict: str
    note: str = ""


def audit(paper: Published) -> pd.DataFrame:
    """All findings, one row each, in the order of the paper's tables."""
    checks = (cells, averages, order, marks, stars, spreads, grid, sizes, costs, ablations, counts, equations)
    found = [finding for check in (*checks, uncheckable) for finding in check(paper)]
    return pd.DataFrame(found, columns=list(Finding.__annotations__))


def summary(findings: pd.DataFrame) -> pd.DataFrame:
    """How many findings of each kind have each verdict."""
    table = pd.crosstab(findings["check"], findings["verdict"])
    table = table.reindex(index=findings["check"].unique(), columns=list(VERDICTS), fill_value=0)
    table.loc["all"] = table.sum()
    return table.rename_axis(index="check", columns=None)


# Tables 1 and the detailed ones


def cells(paper: Published) -> Iterator[Finding]:
    """The main table against the detailed table of the same backbone."""
    main, detailed = paper.main_table(), paper.accuracies("dinov2_b")
    for method, dataset in product(main.index, main.columns):
        printed, other = main.at[method, dataset], detailed.at[method, dataset]
        gap = abs(printed - other)
        verdict = FOLLOWS if gap < EPSILON else ROUNDING if gap <= 2 * HALF + EPSILON else CONTRADICTS
        note = "conjecture: a slip of the pen, or one table not updated" if verdict == CONTRADICTS else ""
        if verdict == ROUNDING:
            note = "one number halfway between can be printed as either"
            n = SEEDS * TASKS[dataset].test_images
            bounds = [plausible_counts(value, n) for value in (printed, other)]
            if max(low for low, _ in bounds) > min(high for _, high in bounds):
                note += f", though no count out of {n} lies there; conjecture: rounded twice"
        yield Finding(
            "main table = detailed table", f"Table 1, {_cell(method, dataset)}", f"{printed:.1f}",
            f"{other:.1f} in {TABLES['dinov2_b']}", verdict, note,
        )  # fmt: skip


def means(paper: Published) -> pd.DataFrame:
    """Averages of the detailed tables: rows (backbone, method); columns all data sets, then each category."""
    rows = {}
    for backbone in BACKBONES:
        table = paper.accuracies(backbone)
        for method, values in table.iterrows():
            parts = {c: values[[TASKS[d].category == c for d in table]].mean() for c in CATEGORIES}
            rows[backbone, method] = {"average": values.mean(), **parts}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis(["backbone", "method"])


def ranks(paper: Published) -> pd.DataFrame:
    """Mean rank over the data sets, 1 the best, ties sharing their mean: rows methods, columns backbones."""
    table = {b: paper.accuracies(b).rank(ascending=False).mean(axis=1) for b in BACKBONES}
    return pd.DataFrame(table)


def averages(paper: Published) -> Iterator[Finding]:
    """Averages in the main table, from its own cells, and in the text, from the detailed tables."""
    by_backbone = means(paper)["average"]
    main = paper.main_table().mean(axis=1)
    for row in paper.averages.itertuples():
        in_table = row.source != "text"
        own = main if in_table else by_backbone[row.backbone]
        verdict = near(row.average, own[row.method], HALF, HALF)
        note = ""
        if verdict == CONTRADICTS:
            same = [m for m in own.index if m != row.method and abs(own[m] - row.average) <= HALF + EPSILON]
            if same:
                note = f"it is the average of {_titles(same)}; conjecture: taken from there"
        recomputed, other = f"{own[row.method]:.2f}", f"{by_backbone[row.backbone, row.method]:.2f}"
        if recomputed != other:
            recomputed += f" ({other} from {TABLES[row.backbone]})"
        place = f"{row.source}, average of {METHODS[row.method].title}, {BACKBONES[row.backbone]}"
        yield Finding("averages", place, f"{row.average:.1f}", recomputed, verdict, note)


def order(paper: Published) -> Iterator[Finding]:
    """Which methods are best and second on average, and by how much."""
    average = means(paper)["average"]
    leads = {}
    for backbone, title in BACKBONES.items():
        own = average[backbone]
        others = own.drop("pvera")
        leads[backbone] = own["pvera"] - others.max()
        yield Finding(
            "best and second", f"text, highest average, {title}", "PVeRA",
            f"PVeRA {own['pvera']:.2f}, best other {_titles([others.idxmax()])} {others.max():.2f}",
            above(leads[backbone], 2 * HALF),
        )  # fmt: skip
    for quote, backbone in (("second_s", "dinov2_s"), ("second_l", "dinov2_l")):
        others = average[backbone].drop("pvera")
        said = [_key(title) for title in paper.quote(quote).split(" and ")]
        behind = others.max() - others
        same = set(behind.index[behind <= HALF + EPSILON]) == set(said)  # as printed, that is
        verdict = FOLLOWS if same else above(-behind[said].max(), 2 * HALF)
        yield Finding(
            "best and second", f"text, second best, {BACKBONES[backbone]}", paper.quote(quote),
            ", ".join(f"{METHODS[m].title} {others[m]:.2f}" for m in others.nlargest(3).index), verdict,
            "said with these methods' averages, see above" if verdict == CONTRADICTS else "",
        )  # fmt: skip
    for quote, backbone, sign in (("gap_s", "dinov2_s", 1), ("gap_l", "dinov2_l", -1)):
        others = [lead for other, lead in leads.items() if other != backbone]
        yield Finding(
            "best and second", f"text, lead of PVeRA, {BACKBONES[backbone]}", paper.quote(quote),
            ", ".join(f"{BACKBONES[b]} {lead:.2f}" for b, lead in leads.items()),
            above(min(sign * (leads[backbone] - lead) for lead in others), 4 * HALF),
        )  # fmt: skip
    linear = paper.main_table()
    natural = [d for d in linear if TASKS[d].category == "natural"]
    beaten = {m: int((linear.loc["linear", natural] > linear.loc[m, natural]).sum()) for m in linear.index}
    yield Finding(
        "best and second", "text, linear probing on natural images", paper.quote("linear_natural"),
        f"above Bottleneck on {beaten['bottleneck']}, above AdaptFormer on {beaten['adaptformer']} "
        f"of {len(natural)} data sets",
        FOLLOWS if beaten["bottleneck"] and beaten["adaptformer"] else CONTRADICTS,
    )  # fmt: skip
    lowest = {c: means(paper).loc["dinov2_b"][c].idxmin() for c in CATEGORIES[1:]}
    yield Finding(
        "best and second", "text, linear probing under a larger shift", paper.quote("linear_shift"),
        "lowest average: " + ", ".join(f"{METHODS[m].title} ({c})" for c, m in lowest.items()),
        FOLLOWS if set(lowest.values()) == {"linear"} else CONTRADICTS,
    )  # fmt: skip
    main = paper.main_table().apply(tables.marks).eq("best")
    wins = main.sum(axis=1).sort_values(ascending=False, kind="stable")
    yield Finding(
        "best and second", "text, data sets on which DoRA is best", paper.quote("best_of_dora"),
        ", ".join(f"{METHODS[method].title} {number}" for method, number in wins.items()),
        FOLLOWS if int(paper.quote("best_of_dora")) == wins["dora"] else CONTRADICTS,
    )  # fmt: skip
    measures = {
        "mean rank": ranks(paper)["dinov2_b"],
        "worst rank": paper.accuracies("dinov2_b").rank(ascending=False).max(axis=1),
        "mean standard deviation over seeds": paper.accuracies("dinov2_b", "std").mean(axis=1),
    }
    best = []
    for name, values in measures.items():
        lowest = values.index[values == values.min()]
        best.append(f"{name} {values['pvera']:.2f} (lowest: {_titles(lowest)} {values.min():.2f})")
    yield Finding(
        "best and second", "text, performance of PVeRA", paper.quote("stability"), "; ".join(best),
        UNCHECKED, "the paper does not say how stability is measured",
    )  # fmt: skip


def marks(paper: Published) -> Iterator[Finding]:
    """Bold for the best and underline for the second, of what is printed."""
    values, printed = paper.main_table(), paper.main_table("mark")
    average = paper.averages[paper.averages["source"] != "text"].set_index("method")
    columns = {f"Table 1, {TASKS[d].title}": (values[d], printed[d]) for d in values}
    columns["Table 1, Average"] = (average["average"], average["mark"])
    for task, rows in paper.language.groupby("task", sort=False):
        rows = rows.set_index("method")
        columns[f"Table 5, {task}"] = (rows["score"], rows["mark"])
    for place, (scores, own) in columns.items():
        right = pd.Series(tables.marks(scores), scores.index)
        verdict = FOLLOWS if right.eq(own).all() else ROUNDING if _breaks_ties(scores, own) else CONTRADICTS
        note = "marks part equal printed numbers" if verdict == ROUNDING else ""
        yield Finding("bold and underline", place, _marked(own), _marked(right), verdict, note)


def _breaks_ties(scores: pd.Series, own: pd.Series) -> bool:
    """Whether unrounded numbers behind equal printed ones could earn these marks."""
    best, second, rest = (scores[own == mark] for mark in ("best", "second", ""))
    if best.empty or (len(best) == 1) != (len(second) > 0):
        return False
    return best.min() >= scores[own != "best"].max() and not second.min() < rest.max()


# Stars


def plausible_counts(percent: float, n: int) -> tuple[int, int]:
    """Least and greatest number of right answers of n that prints as `percent`."""
    low, high = (n * (percent + side) / 100 for side in (-HALF, HALF))
    return max(0, math.ceil(low - EPSILON)), min(n, math.floor(high + EPSILON))


Test = Callable[[int, int, int], float]  # (correct, n, reference's correct) -> p-value


def p_range(accuracy: float, reference: float, n: int, test: Test) -> tuple[float, float]:
    """Least and greatest p-value of counts that print as `accuracy` and `reference`, both in per cent."""
    (least, most), (ref_least, ref_most) = plausible_counts(accuracy, n), plausible_counts(reference, n)
    values = [test(most, n, ref_least), test(least, n, ref_most)]
    if least <= ref_most and ref_least <= most:
        values.append(test(max(least, ref_least), n, max(least, ref_least)))  # both may be equal
    return min(values), max(values)


def decide(accuracy: float, reference: float, n: int, test: Test = binomial_p_value) -> bool | None:
    """Whether `accuracy` gets a star against `reference`; None if rounding leaves it open."""
    low, high = p_range(accuracy, reference, n, test)
    return True if high < LEVEL else False if low >= LEVEL else None


def two_sided(correct: int, n: int, reference: int) -> float:
    return float(binomtest(correct, n, reference / n).pvalue)


def two_samples(correct: int, n: int, reference: int) -> float:
    """One-sided z test of two proportions, both uncertain."""
    pooled = (correct + reference) / (2 * n)
    spread = math.sqrt(2 * pooled * (1 - pooled) / n)
    return float(norm.cdf((correct - reference) / n / spread)) if spread > 0 else 1.0


#: Ways to read "we perform a binomial test between each adapter and PVeRA": seeds pooled, and the test.
READINGS: dict[str, tuple[int, Test]] = {
    "one-sided, seeds pooled": (SEEDS, binomial_p_value),
    "one-sided, as if one seed": (1, binomial_p_value),
    "two-sided, seeds pooled": (SEEDS, two_sided),
    "two samples, one-sided, seeds pooled": (SEEDS, two_samples),
}


def decisions(paper: Published, backbone: str, reading: str = next(iter(READINGS))) -> pd.DataFrame:
    """True, False or None (`decide`) for each method but PVeRA and each data set."""
    seeds, test = READINGS[reading]
    table = paper.accuracies(backbone)
    reference = table.loc["pvera"]
    return pd.DataFrame(
        [
            [decide(value, reference[d], seeds * TASKS[d].test_images, test) for d, value in row.items()]
            for _, row in table.iterrows()
        ],
        table.index, table.columns, dtype=object,
    ).drop("pvera")  # fmt: skip


def contradictions(decided: pd.DataFrame, printed: pd.DataFrame) -> pd.DataFrame:
    """Where a star is printed that cannot be, or none where there must be one."""
    return decided.notna() & decided.ne(printed.loc[decided.index])


def exchanged(table: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """`table` with two of its rows exchanged."""
    table = table.copy()
    table.loc[[one, other]] = table.loc[[other, one]].to_numpy()
    return table


def readings(paper: Published) -> pd.DataFrame:
    """How many stars do not follow under each reading of the test, and how many are undecidable.

    exchanged: contradictions if the stars of DoRA and LoRA changed places.
    """
    rows = []
    for reading, backbone in product(READINGS, BACKBONES):
        decided, printed = decisions(paper, backbone, reading), paper.accuracies(backbone, "star")
        counts = {
            "contradictions": contradictions(decided, printed),
            "exchanged": contradictions(decided, exchanged(printed, "dora", "lora")),
            "undecidable": decided.isna(),
        }
        counts = {name: int(table.sum().sum()) for name, table in counts.items()}
        rows.append({"reading": reading, "backbone": backbone, "cells": decided.size, **counts})
    return pd.DataFrame(rows)


def exchanges(paper: Published) -> pd.DataFrame:
    """Contradictory stars of each detailed table if the stars of two columns changed places."""
    rows = []
    for backbone in BACKBONES:
        decided, printed = decisions(paper, backbone), paper.accuracies(backbone, "star")
        before = int(contradictions(decided, printed).sum().sum())
        for one, other in combinations(decided.index, 2):
            after = int(contradictions(decided, exchanged(printed, one, other)).sum().sum())
            row = {"backbone": backbone, "one": one, "other": other, "before": before, "after": after}
            rows.append(row)
    return pd.DataFrame(rows).sort_values(["backbone", "after"], kind="stable", ignore_index=True)


def stars(paper: Published) -> Iterator[Finding]:
    """The stars of the detailed tables and of the language table."""
    best = exchanges(paper).groupby("backbone").first()
    for backbone in BACKBONES:
        accuracy, printed = paper.accuracies(backbone), paper.accuracies(backbone, "star")
        decided = decisions(paper, backbone)
        swap = best.loc[backbone]
        pair, exchange = (swap["one"], swap["other"]), ""
        if swap["before"] - swap["after"] > 1:
            exchange = (
                f"if {_titles(pair)} exchanged stars, {swap['after']} instead of {swap['before']} stars "
                "of this table would not follow; conjecture: two columns changed places"
            )
        for method, dataset in product(decided.index, decided.columns):
            value, reference = accuracy.at[method, dataset], accuracy.at["pvera", dataset]
            star, decision = bool(printed.at[method, dataset]), decided.at[method, dataset]
            note = ["above PVeRA's"] * bool(star and value > reference) + [exchange] * (method in pair)
            yield _star_finding(
                f"{TABLES[backbone]} ({BACKBONES[backbone]}), {_cell(method, dataset)}", value, star,
                reference, SEEDS * TASKS[dataset].test_images, decision, "; ".join(filter(None, note)),
            )  # fmt: skip
    for task, rows in paper.language.groupby("task", sort=False):
        rows = rows.set_index("method")
        reference = rows.at["pvera", "score"]
        for method, row in rows.drop("pvera").iterrows():
            place = f"Table 5, {METHODS[method].title} on {task}"
            if task in GLUE_VALIDATION:
                n = SEEDS * GLUE_VALIDATION[task]
                decision = decide(row["score"], reference, n)
                yield _star_finding(place, row["score"], row["star"], reference, n, decision, "")
            else:
                printed, note = _starred(row["score"], row["star"], reference), "needs every answer of both"
                yield Finding("stars", place, printed, "–", UNCHECKED, f"a correlation: {note}")
    own = [table.loc[table["method"] == "pvera", "star"].sum() for table in (paper.detailed, paper.language)]
    yield _exact("stars", "stars of PVeRA itself", sum(own), 0)


def _star_finding(place: str, value: float, star: bool, reference: float, n: int, decision: bool | None,
                  note: str) -> Finding:  # fmt: skip
    low, high = p_range(value, reference, n, binomial_p_value)
    given = {None: "star or none", True: "star", False: "no star"}[decision]
    verdict = OPEN if decision is None else FOLLOWS if decision == star else CONTRADICTS
    return Finding(
        "stars", place, _starred(value, star, reference), f"{given}: p {_between(low, high)}",
        verdict, note if verdict == CONTRADICTS else "",
    )  # fmt: skip


def _starred(value: float, star: bool, reference: float) -> str:
    return f"{value:.1f}{'*' if star else ''} (PVeRA {reference:.1f})"


# Standard deviations


def lone_seed(mean: float, std: float, ddof: int) -> tuple[float, float]:
    """If two of three seeds agree and one fell behind: what it reached, and what the two reached.

    ddof: 0 if the standard deviation divides by 3, 1 if by 2.
    """
    gap = std * math.sqrt(4.5 if ddof == 0 else 3)
    return mean - 2 / 3 * gap, mean + 1 / 3 * gap


def spreads(paper: Published) -> Iterator[Finding]:
    """Whether three accuracies between 0 and 100 can have this mean and standard deviation."""
    for row in paper.detailed.itertuples():
        total = SEEDS * row.accuracy
        extreme = [min(100, max(0, total - 100 * i)) for i in range(SEEDS)]
        widest = float(np.std(extreme, ddof=1))
        note = ""
        if row.std >= 20:
            low = [lone_seed(row.accuracy, row.std, ddof)[0] for ddof in (0, 1)]
            chance = 100 / TASKS[row.dataset].classes
            note = (
                f"two equal seeds and a lower one would put that at {low[0]:.1f} (std dividing by 3) or "
                f"{low[1]:.1f} (by 2); 1 / classes is {chance:.1f}"
            )
        yield Finding(
            "standard deviations",
            f"{TABLES[row.backbone]} ({BACKBONES[row.backbone]}), {_cell(row.method, row.dataset)}",
            f"{row.accuracy:.1f} ± {row.std:.1f}", f"at most {widest:.1f}",
            FOLLOWS if row.std <= widest + 2 * HALF else CONTRADICTS, note,
        )  # fmt: skip


# Grid search


def shares(percents: list[int], total: int) -> tuple[int, ...] | None:
    """Whole numbers that sum to `total` and print as these percentages of it; None if there are none."""
    options = [[k for k in range(total + 1) if abs(100 * k / total - p) <= 0.5 + EPSILON] for p in percents]
    return next((counts for counts in product(*options) if sum(counts) == total), None)


def grid(paper: Published) -> Iterator[Finding]:
    """Shares of the grid table as shares of its configurations, and its most frequent values."""
    total = int(paper.quote("configurations"))
    for method, rows in paper.grid.groupby("method", sort=False):
        percents = rows["percent"].tolist()
        found = shares(percents, total)
        note = f"sums to {sum(percents)}, as rounded shares may" if found and sum(percents) != 100 else ""
        if not found:
            alone = [p for p in percents if not _is_share(p, total)]
            note = ", ".join(f"{p}% is no multiple of 1/{total} ({_neighbours(p, total)})" for p in alone)
            note += "; conjecture: adjusted so that the row sums to 100" if sum(percents) == 100 else ""
        yield Finding(
            "grid shares", f"Table 4, {METHODS[method].title}", ", ".join(f"{p}%" for p in percents),
            ", ".join(f"{k}/{total}" for k in found) if found else f"no counts that sum to {total}",
            FOLLOWS if found else CONTRADICTS, note,
        )  # fmt: skip
    for method, quote in (("lora", "lora_rank"), ("vera", "vera_learning_rate")):
        own = paper.grid[paper.grid["method"] == method]
        most = own.loc[own["percent"].idxmax(), "value"]
        yield Finding(
            "grid shares", f"text, most chosen value of {METHODS[method].title}", paper.quote(quote),
            f"{most:g}", FOLLOWS if float(paper.quote(quote)) == most else CONTRADICTS,
        )  # fmt: skip


def _is_share(percent: int, total: int) -> bool:
    return any(abs(100 * k / total - percent) <= 0.5 + EPSILON for k in range(total + 1))


def _neighbours(percent: int, total: int) -> str:
    below = math.floor(percent * total / 100)
    return " and ".join(f"{k}/{total} = {100 * k / total:.1f}%" for k in (below, below + 1))


# Sizes and costs


def adapter_sizes(paper: Published) -> pd.DataFrame:
    """Trained numbers of each method on ViT-B, averaged by the grid's shares; times: those of PVeRA."""
    vit, rows = backbones.shapes("dinov2_b"), {}
    for key, members in paper.configurations().items():
        methods, percents = zip(*members, strict=True)
        rows[key] = np.average([cost.trained_parameters(vit, method) for method in methods], weights=percents)
    table = pd.DataFrame({"parameters": pd.Series(rows)})
    return table.assign(times=table["parameters"] / table.at["pvera", "parameters"])


def sizes(paper: Published) -> Iterator[Finding]:
    """Trained numbers of the ablation tables and of the text, from our own models of ViT-B."""
    vit = backbones.shapes("dinov2_b")
    for row in paper.rank.itertuples():
        counted = cost.trained_parameters(vit, PVeRA(rank=row.rank))
        yield _exact("parameters", f"Table 2, r = {row.rank}", row.parameters, counted)
    for row in paper.position.itertuples():
        counted = cost.trained_parameters(vit, PVeRA(targets=row.targets))
        yield _exact("parameters", f"Table 3, {row.targets.upper()}", row.parameters, counted)
    times = adapter_sizes(paper)["times"].drop(["pvera", "linear"])
    larger = times[np.log10(times) >= 1.5]
    yield Finding(
        "parameters", "text, PVeRA against most other adapters", paper.quote("size"),
        "times PVeRA's: " + ", ".join(f"{METHODS[m].title} {x:.1f}" for m, x in times.items()),
        FOLLOWS if len(larger) > len(times) / 2 else CONTRADICTS,
        "averages over the grid by its shares; counted as two orders from 10^1.5",
    )  # fmt: skip


def costs(paper: Published) -> Iterator[Finding]:
    """The percentages of operations that PVeRA and VeRA add to ViT-B/14, from closed forms."""
    shape = cost.Shape.of(backbones.shapes("dinov2_b"))
    base = cost.backbone_multiply_adds(shape)
    for method, note in (
        (PVeRA(), "with σ; the mean alone, which inference takes, costs what VeRA costs"),
        (VeRA(), ""),
    ):
        printed = float(paper.quote(f"flops_{method.key}"))
        percent = 100 * cost.adapter_multiply_adds(method, shape, sampled=True) / base
        yield Finding(
            "operations", f"text, {method.title} on ViT-B/14", f"{printed}%",
            f"{percent:.2f}% of {base / cost.GIGA:.2f} G multiply-adds", near(printed, percent, HALF, 0),
            note,
        )  # fmt: skip


# Ablations


def double_softmax_loss(accuracy: float, classes: int) -> float:
    """Cross entropy of softmax scores taken for logits, each 0 or 1, of which `accuracy` are right.

    A right answer costs log(e + C − 1) − 1, the least this loss can be, a wrong one log(e + C − 1).
    """
    return math.log(math.e + classes - 1) - accuracy


def calibrated_loss(accuracy: float, classes: int) -> float:
    """The greatest cross entropy of a calibrated classifier: every image has the confidence `accuracy`."""
    wrong = 1 - accuracy
    entropy = -sum(p * math.log(p) for p in (accuracy, wrong) if p > 0)
    return entropy + wrong * math.log(max(classes - 1, 1))


def ablation_losses(paper: Published) -> pd.DataFrame:
    """What the ablations' losses can be, per data set: the mean of each column is what the tables print.

    floor: of a softmax taken twice; one_hot: the same at the main table's accuracy and scores of 0 and 1;
    calibrated: a bound for one softmax and calibrated scores of that accuracy; uniform: equal scores.
    """
    rows = {}
    for name in paper.ablation_datasets():
        classes, accuracy = TASKS[name].classes, paper.main_table().at["pvera", name] / 100
        rows[name] = {
            "accuracy": accuracy,
            "floor": double_softmax_loss(1, classes),
            "one_hot": double_softmax_loss(accuracy, classes),
            "calibrated": calibrated_loss(accuracy, classes),
            "uniform": math.log(classes),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def ablations(paper: Published) -> Iterator[Finding]:
    """The two ablation tables, among themselves and against the text."""
    rank, position = paper.rank.set_index("rank"), paper.position.set_index("targets")
    r = int(paper.quote("position_table_rank"))
    targets = _letters(paper.quote("rank_table_targets"))
    for column in ("loss", "parameters"):
        one, other = rank.at[r, column], position.at[targets, column]
        yield _exact("ablations", f"Table 2 r = {r}, Table 3 {targets.upper()}: {column}", one, other)
    yield _exact("ablations", "text, best rank", int(paper.quote("best_rank")), rank["loss"].idxmin())
    yield _exact("ablations", "text, best position", _letters(paper.quote("best_targets")),
                 position["loss"].idxmin())  # fmt: skip
    close = [int(x) for x in paper.quote("close_ranks").split(",")]
    nearest = rank["loss"].sort_values().index[1 : 1 + len(close)].tolist()
    yield _exact("ablations", "text, ranks nearly as good", ", ".join(map(str, sorted(close))),
                 ", ".join(map(str, sorted(nearest))))  # fmt: skip
    chosen = paper.ablation_datasets()
    per_category = [sum(TASKS[d].category == c for d in chosen) for c in CATEGORIES]
    yield _exact("ablations", "text, data sets per category", "2, 2, 2", ", ".join(map(str, per_category)))
    yield _exact("ablations", "text, data sets", int(paper.quote("ablation_count")), len(chosen))

    bounds = ablation_losses(paper).mean()
    losses = [*rank["loss"], *position["loss"]]
    low, high = min(losses), max(losses)
    verdict, note = FOLLOWS, ""
    if low > bounds["calibrated"]:
        verdict, note = (
            UNCHECKED,
            (
                "only scores far from calibrated cost so much; equal scores for all classes cost "
                f"{bounds['uniform']:.2f}"
            ),
        )
        if low >= bounds["floor"]:
            note += (
                "; conjecture: softmax scores were given to a cross entropy that takes a softmax again; "
                f"this with scores of 0 and 1 and these accuracies gives {bounds['one_hot']:.2f}, and never "
                f"less than {bounds['floor']:.2f}"
            )
    yield Finding(
        "ablations", "Tables 2 and 3, losses as a cross entropy", f"{low:.3f} to {high:.3f}",
        f"at most {bounds['calibrated']:.2f} for calibrated scores at Table 1's accuracies", verdict, note,
    )  # fmt: skip


# Sentences, equations and algorithms


def counts(paper: Published) -> Iterator[Finding]:
    """Numbers of data sets, methods and configurations in the text."""
    table, methods = paper.detailed, paper.detailed["method"].nunique()
    of_category = table.groupby("category", sort=False)["dataset"].nunique()
    expected = {
        "text, data sets": ("datasets", table["dataset"].nunique()),
        "text, categories": ("categories", len(of_category)),
        **{f"Table 1, {name} data sets": (name, number) for name, number in of_category.items()},
        "text, other adapters, linear probing among them": ("other_adapters", methods - 1),
        "text, other adapters beside linear probing": ("other_adapters_without_linear", methods - 2),
        "Table 4, configurations": (
            "configurations", int(paper.quote("grid_datasets")) * int(paper.quote("grid_seeds"))
        ),
    }  # fmt: skip
    for place, (quote, number) in expected.items():
        yield _exact("counts", place, int(paper.quote(quote)), number)


def equations(paper: Published) -> Iterator[Finding]:
    """Where equations and algorithms say different things."""
    q = paper.quote
    yield _said(
        "Algorithm 1, incorrect and correct samples", f"accuracy {q('algorithm_incorrect')} 0.5 is incorrect",
        "more than half of the draws right is correct", q("algorithm_incorrect") != ">",
        "conjecture: the two names changed places; the text reads the right way round",
    )  # fmt: skip
    yield _said(
        "Algorithm 2, factor of ε", q("algorithm_std"), f"{q('equation_std')} (Eq. 6)",
        q("algorithm_std") == q("equation_std"), "conjecture: meant is exp(½ log σ²)",
    )  # fmt: skip
    twice = q("algorithm_output").count("α") + q("algorithm_training_alpha").count("α")
    yield _said(
        "Algorithm 2, factors α in training", f"{twice}", f"{q('equation_output').count('α')} (Eq. 7)",
        twice == q("equation_output").count("α"), "1 in evaluation; conjecture: one too many in training",
    )  # fmt: skip
    yield _said(
        "Algorithm 2, output", q("algorithm_output"), "with B (Eq. 7)",
        "B" in q("algorithm_output"), "without B a vector of r numbers meets one of d",
    )  # fmt: skip
    yield _said(
        "Section 3.2, shape of B", q("shape_b_pvera").replace(" ", ""),
        f"{q('shape_b_lora').replace(' ', '')} (Section 3.1, and for z B in Eq. 7)",
        q("shape_b_pvera").replace(" ", "") == q("shape_b_lora").replace(" ", ""), "",
    )  # fmt: skip
    transposed = "W^T" not in q("equation_projection") or "^T" in q("equation_merge")
    yield _said(
        "Eq. 10, merged weight", q("equation_merge"), "the update transposed, as Eq. 1 multiplies by Wᵀ",
        transposed, "",
    )  # fmt: skip


def uncheckable(paper: Published) -> Iterator[Finding]:
    """What the paper says about data that it shows as figures only."""
    for quote, place, needs in (
        ("calibration", "text, calibration of LoRA-based methods", "the test scores of every method"),
        ("uncertainty", "text, spread of the scores of wrong predictions", "the scores of several draws"),
        ("width_correct", "text, width of intervals, correct", "the scores of several draws"),
        ("width_incorrect", "text, width of intervals, incorrect", "the scores of several draws"),
        ("out_of_distribution", "text, μ in distribution", "the latents of three models on three data sets"),
    ):
        yield Finding("figures", place, paper.quote(quote), "–", UNCHECKED, f"needs {needs}")


# Text


def near(printed: float, value: float, half: float, slack: float) -> str:
    """Verdict on `printed`, of precision ± `half`, against `value`, which rounding can move by `slack`."""
    gap = abs(printed - value) - EPSILON
    return FOLLOWS if gap <= half else ROUNDING if gap <= half + slack else CONTRADICTS


def above(difference: float, slack: float) -> str:
    """Verdict on a difference that is said to be positive and that rounding can move by `slack`."""
    return FOLLOWS if difference > 0 else ROUNDING if difference > -slack - EPSILON else CONTRADICTS


def _exact(check: str, place: str, printed, recomputed) -> Finding:
    verdict = FOLLOWS if printed == recomputed else CONTRADICTS
    return Finding(check, place, str(printed), str(recomputed), verdict)


def _said(place: str, printed: str, other: str, agree: bool, note: str) -> Finding:
    verdict, note = (FOLLOWS, "") if agree else (CONTRADICTS, note)
    return Finding("equations", place, printed, other, verdict, note)


def _letters(text: str) -> str:
    """ "query and value", "Q and V" as "qv"."""
    return "".join(word[0].lower() for word in text.split() if word != "and")


def _titles(methods) -> str:
    return " and ".join(METHODS[m].title for m in methods)


def _key(title: str) -> str:
    return next(key for key, method in METHODS.items() if method.title == title)


def _cell(method: str, dataset: str) -> str:
    return f"{METHODS[method].title} on {TASKS[dataset].title}"


def _between(low: float, high: float) -> str:
    """A range of p-values; exact ones are too small to be told from zero long before they are zero."""
    texts = [f"{p:.2g}" if p >= 1e-99 else "under 1e-99" for p in (low, high)]
    return " to ".join(dict.fromkeys(texts))


def _marked(own: pd.Series) -> str:
    methods = {mark: own.index[own == mark] for mark in ("best", "second")}
    return "; ".join(f"{mark}: {_titles(found)}" for mark, found in methods.items() if len(found))


PAGE = """\
# Is the paper consistent with itself?

Every printed number that others determine, recomputed from those;
[the notebook](../../analysis/audit.ipynb) shows how. Rounding is taken in the paper's favour: a printed 71.4
stands for anything from 71.35 to 71.45, and of a star's test the least and the highest p-value are given that
rounding allows.

- *follows*: it is what the other numbers give
- *within rounding*: it is not, but numbers that round to the printed ones can give it
- *undecidable*: numbers that round to the printed ones give it, and others its opposite
- *does not follow*: no numbers that round to the printed ones give it
- *not checkable*: it needs data, or a definition, that the paper does not print

That two printed things disagree does not say which of them is wrong, and several findings can have one
cause. Reasons in the notes are conjectures from patterns; only the authors can know.
"""


def markdown(findings: pd.DataFrame) -> str:
    """The audit as a page: what was checked, and everything that does not simply follow."""
    parts = [PAGE.strip(), table(summary(findings).reset_index())]
    titles = {
        CONTRADICTS: "Does not follow",
        ROUNDING: "Differs, but within rounding",
        OPEN: "Undecidable at the printed precision",
        UNCHECKED: "Not checkable from what is printed",
    }
    for verdict, title in titles.items():
        part = findings[findings["verdict"] == verdict].drop(columns="verdict")
        if len(part):
            parts += [f"## {title}", table(part)]
    return "\n\n".join(parts) + "\n"


def table(data: pd.DataFrame) -> str:
    """A table in Markdown, without its index."""
    rows = [list(data), [":--"] * len(data.columns), *data.astype(str).to_numpy().tolist()]
    return "\n".join("| " + " | ".join(_escaped(text) for text in row) + " |" for row in rows)


def _escaped(text: str) -> str:
    for character in "*|_^":
        text = text.replace(character, f"\\{character}")
    return text
