"""The audit: is the paper consistent with itself? Every printed number that others determine is recomputed.

A *finding* is one printed thing, its value according to everything else that is printed, and a verdict. Rounding is
taken in the paper's favour: a printed 71.4 stands for anything from 71.35 to 71.45 inclusive. Sentences, equations and
suspicious cells were read by a person: results/published/by_hand.csv. notes.csv beside it holds remarks on computed
findings; reasons in them are conjectures from patterns, since only the authors can know.
"""

from collections.abc import Iterator
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
import pandas as pd

from pvera import backbones, cost
from pvera.adapters import PVeRA, VeRA
from pvera.data.glue import GLUE
from pvera.data.tasks import TASKS
from pvera.report.published import BACKBONES, SEEDS, TABLES, Published
from pvera.report.statistics import LEVEL, binomial_p_value
from pvera.report.table import escape, listed, markdown_table, title
from pvera.report.table import marks as earned
from pvera.report.tables.benchmark import averages
from pvera.study.results import CATEGORIES

HALF = 0.05  # half a unit of the last printed digit of an accuracy
EPSILON = 1e-9

FOLLOWS, ROUNDING, OPEN = "follows", "within rounding", "undecidable"
CONTRADICTS, UNCHECKED = "does not follow", "not checkable"

VERDICTS = (FOLLOWS, ROUNDING, OPEN, CONTRADICTS, UNCHECKED)


class Finding(NamedTuple):
    """One printed thing, where the paper prints it, its recomputed value, and the verdict."""

    place: str
    printed: str
    recomputed: str
    verdict: str


Findings = Iterator[Finding]


def near(printed: float, value: float, half: float, slack: float) -> str:
    """Return the verdict on `printed`, precise to ± `half`, against `value`, which rounding can move by `slack`."""
    gap = abs(printed - value) - EPSILON
    return FOLLOWS if gap <= half else ROUNDING if gap <= half + slack else CONTRADICTS


def above(difference: float, slack: float) -> str:
    """Return the verdict on a difference that the paper calls positive and that rounding can move by `slack`."""
    return FOLLOWS if difference > 0 else ROUNDING if difference > -slack - EPSILON else CONTRADICTS


def agree(same: bool, verdict: str = FOLLOWS) -> str:
    """Return `verdict` on two things that agree."""
    return verdict if same else CONTRADICTS


def exact(place: str, printed, recomputed) -> Finding:
    """Return the finding on two things that must be equal."""
    return Finding(place, str(printed), str(recomputed), agree(printed == recomputed))


def cell(table: str, row) -> str:
    """Name the cell of a row with a method and a data set."""
    return f"{table}, {title(row.method)} on {title(row.dataset)}"


#: Backbone -> its detailed table.
DETAILED = {backbone: f"{TABLES[backbone]} ({name})" for backbone, name in BACKBONES.items()}


# Cells and averages


def check_cells(paper: Published) -> Findings:
    """Yield the findings on the main table against the detailed table of the same backbone."""
    pairs = paper.main.merge(
        paper.detailed[paper.detailed["backbone"] == "dinov2_b"], on=["method", "dataset"]
    )
    for row in pairs.rename(columns={"accuracy_x": "printed", "accuracy_y": "other"}).itertuples():
        verdict = near(row.printed, row.other, 0, 2 * HALF)
        if verdict == ROUNDING:  # unless no count of correct answers prints as both
            n = SEEDS * TASKS[row.dataset].test_images
            low, high = zip(
                plausible_counts(row.printed, n), plausible_counts(row.other, n), strict=True
            )
            verdict = agree(max(low) <= min(high), ROUNDING)
        yield Finding(
            cell("Table 1", row), f"{row.printed:.1f}", f"{row.other:.1f} in Table 6", verdict
        )


def means(paper: Published) -> pd.DataFrame:
    """Return the averages of the detailed tables: rows (backbone, method); columns "average" and each category."""
    category = {name: task.category for name, task in TASKS.items()}
    tables = {backbone: averages(paper.accuracies(backbone), category) for backbone in BACKBONES}
    return pd.concat(tables, names=["backbone", "method"]).dropna()


def check_averages(paper: Published) -> Findings:
    """Yield the findings on averages: the main table's from its cells, the text's from the detailed tables."""
    detailed, main = means(paper)["average"], paper.accuracies().mean(axis=1)
    for row in paper.averages.itertuples():
        other = detailed[row.backbone, row.method]
        value = other if row.source == "text" else main[row.method]
        recomputed = f"{value:.2f}"
        if recomputed != f"{other:.2f}":
            recomputed += f" ({other:.2f} from {TABLES[row.backbone]})"
        place = f"{row.source}, average of {title(row.method)}, {BACKBONES[row.backbone]}"
        yield Finding(place, f"{row.average:.1f}", recomputed, near(row.average, value, HALF, HALF))


# Sentences about which method is best or second, and by how much


def check_order(paper: Published) -> Findings:
    """Yield the findings on sentences that compare methods by their averages, or on the data sets of the main table."""
    average, leads = means(paper)["average"], {}
    for backbone, name in BACKBONES.items():
        pvera, others = average[backbone, "pvera"], average[backbone].drop("pvera")
        leads[backbone] = pvera - others.max()
        best = f"PVeRA {pvera:.2f}, best other {title(others.idxmax())} {others.max():.2f}"
        yield Finding(
            f"text, highest average, {name}", "PVeRA", best, above(leads[backbone], 2 * HALF)
        )
    for quote, backbone in (("second_s", "dinov2_s"), ("second_l", "dinov2_l")):
        quoted, others = paper.quote(quote), average[backbone].drop("pvera")
        named = [key for key in others.index if title(key) in quoted.split(" and ")]
        behind = others.max() - others
        tied_as_printed = set(behind.index[behind <= HALF + EPSILON])
        verdict = (
            FOLLOWS if tied_as_printed == set(named) else above(-behind[named].max(), 2 * HALF)
        )
        first = listed(others.nlargest(3), "{:.2f}")
        yield Finding(f"text, second best, {BACKBONES[backbone]}", quoted, first, verdict)
    for quote, backbone, sign in (("gap_s", "dinov2_s", 1), ("gap_l", "dinov2_l", -1)):
        least = min(
            sign * (leads[backbone] - lead) for other, lead in leads.items() if other != backbone
        )
        recomputed = ", ".join(f"{BACKBONES[b]} {lead:.2f}" for b, lead in leads.items())
        place = f"text, lead of PVeRA, {BACKBONES[backbone]}"
        yield Finding(place, paper.quote(quote), recomputed, above(least, 4 * HALF))
    table = paper.accuracies()
    natural = table[[dataset for dataset in table if TASKS[dataset].category == "natural"]]
    beaten = natural.lt(natural.loc["linear"]).sum(axis=1)[["bottleneck", "adaptformer"]]
    recomputed = "above Bottleneck on {}, above AdaptFormer on {} of {} data sets".format(
        *beaten, natural.shape[1]
    )
    yield Finding(
        "text, linear probing on natural images",
        paper.quote("linear_natural"),
        recomputed,
        agree(beaten.all()),
    )
    lowest = means(paper).loc["dinov2_b"][list(CATEGORIES[1:])].idxmin()
    recomputed = "lowest average: " + ", ".join(
        f"{title(m)} ({category})" for category, m in lowest.items()
    )
    verdict = agree(set(lowest) == {"linear"})
    yield Finding(
        "text, linear probing under a larger shift",
        paper.quote("linear_shift"),
        recomputed,
        verdict,
    )
    wins = (
        table.rank(ascending=False, method="min")
        .eq(1)
        .sum(axis=1)
        .sort_values(ascending=False, kind="stable")
    )
    quoted = paper.quote("best_of_dora")
    yield Finding(
        "text, data sets on which DoRA is best",
        quoted,
        listed(wins, "{}"),
        agree(int(quoted) == wins["dora"]),
    )


def check_marks(paper: Published) -> Findings:
    """Yield the findings on bold (best) and underlined (second) cells, given the printed numbers."""
    values, printed = paper.accuracies(), paper.accuracies(column="mark")
    average = paper.averages[paper.averages["source"] != "text"].set_index("method")
    columns = {f"Table 1, {title(d)}": (values[d], printed[d]) for d in values}
    columns["Table 1, Average"] = (average["average"], average["mark"])
    for task, rows in paper.language.set_index("method").groupby("task", sort=False):
        columns[f"Table 5, {task}"] = (rows["score"], rows["mark"])
    for place, (scores, marks) in columns.items():
        expected = pd.Series(earned(scores), scores.index)
        verdict = (
            FOLLOWS
            if expected.eq(marks).all()
            else ROUNDING
            if _breaks_ties(scores, marks)
            else CONTRADICTS
        )
        yield Finding(place, _described(marks), _described(expected), verdict)


def _breaks_ties(scores: pd.Series, marks: pd.Series) -> bool:
    """Return whether unrounded numbers behind equal printed ones could earn these marks."""
    best, second = (scores[marks == mark] for mark in ("best", "second"))
    if best.empty or (len(best) == 1) != (len(second) > 0):
        return False
    return best.eq(scores.max()).all() and second.eq(scores[marks != "best"].max()).all()


def _described(marks: pd.Series) -> str:
    """Return, for example, "best: PVeRA; second: DoRA and LoRA"."""
    methods = {mark: marks.index[marks == mark] for mark in ("best", "second")}
    return "; ".join(
        f"{mark}: {' and '.join(map(title, keys))}" for mark, keys in methods.items() if len(keys)
    )


# Stars and standard deviations


def plausible_counts(percent, n):
    """Return the least and greatest numbers of correct answers of n that print as `percent`; arrays or numbers."""
    low, high = (n * (percent + side) / 100 for side in (-HALF, HALF))
    return np.maximum(0, np.ceil(low - EPSILON)), np.minimum(n, np.floor(high + EPSILON))


def stars(paper: Published) -> pd.DataFrame:
    """Return a row per number of the detailed tables and the language table that can have a star.

    table, method, dataset: where it is printed. accuracy, star; reference: PVeRA's accuracy. n: answers, NaN
    where no binomial test applies. low, high: the range of p-values of the counts that print as these accuracies.
    earned: whether it gets a star; None where rounding leaves that open.
    """
    language = paper.language.rename(columns={"score": "accuracy", "task": "dataset"})
    detailed = paper.detailed.assign(
        table=paper.detailed["backbone"].map(DETAILED), block=paper.detailed["method"]
    )
    # The detailed tables are read by method, the language table by task.
    blocks = (detailed, language.assign(table="Table 5", block=language["dataset"]))
    rows = pd.concat(blocks, ignore_index=True)
    rows = rows.loc[
        rows.groupby(["table", "block"], sort=False).ngroup().sort_values(kind="stable").index
    ]
    images = {name: task.test_images for name, task in TASKS.items()}
    # CoLA's measure is a correlation, and a binomial test needs a share of correct answers.
    images |= {task.title: task.dev for task in GLUE.values() if task.metric == "accuracy"}
    rows = rows.assign(n=SEEDS * rows["dataset"].map(images))
    reference = rows.loc[rows["method"] == "pvera", ["table", "dataset", "accuracy"]]
    reference = reference.rename(columns={"accuracy": "reference"})
    rows = rows[rows["method"] != "pvera"].merge(reference, on=["table", "dataset"])
    (least, most), (lowest, highest) = (
        plausible_counts(rows[name], rows["n"]) for name in ("accuracy", "reference")
    )
    rows["low"], rows["high"] = (
        binomial_p_value(least, rows["n"], highest),
        binomial_p_value(most, rows["n"], lowest),
    )
    rows["earned"] = np.select([rows["high"] < LEVEL, rows["low"] >= LEVEL], [True, False], None)
    return rows


def exchanges(paper: Published) -> pd.DataFrame:
    """Count the contradictory stars of each detailed table before and after two columns exchange their stars.

    A printed star is one where it cannot be earned, a missing one where it must be earned.
    """
    rows, every = [], stars(paper)
    for backbone in BACKBONES:
        printed = paper.accuracies(backbone, "star").drop("pvera")
        earned = every[every["table"] == DETAILED[backbone]].pivot(
            index="method", columns="dataset", values="earned"
        )
        earned = earned.reindex_like(printed).stack(future_stack=True).dropna()
        before = int(earned.ne(printed.stack(future_stack=True)[earned.index]).sum())
        for first, second in combinations(printed.index, 2):
            exchanged = printed.rename(index={first: second, second: first}).stack(
                future_stack=True
            )
            after = int(earned.ne(exchanged[earned.index]).sum())
            rows.append(
                {
                    "backbone": backbone,
                    "one": first,
                    "other": second,
                    "before": before,
                    "after": after,
                }
            )
    return pd.DataFrame(rows).sort_values(["backbone", "after"], kind="stable", ignore_index=True)


def check_stars(paper: Published) -> Findings:
    """Yield the findings on the stars of the detailed tables and of the language table."""
    for row in stars(paper).itertuples():
        printed = f"{row.accuracy:.1f}{'*' if row.star else ''} (PVeRA {row.reference:.1f})"
        if np.isnan(row.n):
            yield Finding(cell(row.table, row), printed, "–", UNCHECKED)
            continue
        # Below 1e-99 digits depend on the platform.
        texts = [f"{p:.2g}" if p >= 1e-99 else "under 1e-99" for p in (row.low, row.high)]
        given = {None: "star or none", True: "star", False: "no star"}[row.earned]
        verdict = OPEN if row.earned is None else agree(row.earned == row.star)
        yield Finding(
            cell(row.table, row),
            printed,
            f"{given}: p {' to '.join(dict.fromkeys(texts))}",
            verdict,
        )
    printed = sum(
        table.loc[table["method"] == "pvera", "star"].sum()
        for table in (paper.detailed, paper.language)
    )
    yield exact("stars of PVeRA itself", printed, 0)


def check_spreads(paper: Published) -> Findings:
    """Yield the findings on whether three accuracies in [0, 100] can have this mean and standard deviation."""
    for row in paper.detailed.itertuples():
        total = SEEDS * row.accuracy
        widest = float(np.std([min(100, max(0, total - 100 * i)) for i in range(SEEDS)], ddof=1))
        printed = f"{row.accuracy:.1f} ± {row.std:.1f}"
        verdict = agree(row.std <= widest + 2 * HALF)
        yield Finding(cell(DETAILED[row.backbone], row), printed, f"at most {widest:.1f}", verdict)


# The grid table


def check_grid(paper: Published) -> Findings:
    """Yield the findings on the grid table: shares of its configurations, and its most chosen values.

    Shares are possible if whole numbers print as them and sum to the number of configurations.
    """
    total = int(paper.quote("configurations"))
    for method, rows in paper.grid.groupby("method", sort=False):
        options = [
            [k for k in range(total + 1) if abs(100 * k / total - p) <= 0.5 + EPSILON]
            for p in rows["percent"]
        ]
        counts = next((counts for counts in product(*options) if sum(counts) == total), None)
        printed = ", ".join(f"{p} %" for p in rows["percent"])
        recomputed = (
            ", ".join(f"{k}/{total}" for k in counts)
            if counts
            else f"no counts that sum to {total}"
        )
        yield Finding(f"Table 4, {title(method)}", printed, recomputed, agree(counts is not None))
    for method, quote in (("lora", "lora_rank"), ("vera", "vera_learning_rate")):
        rows = paper.grid[paper.grid["method"] == method]
        most = rows.loc[rows["percent"].idxmax(), "value"]
        yield exact(f"text, most chosen value of {title(method)}", paper.quote(quote), f"{most:g}")


# Trained parameters and operations, counted on this package's models


def adapter_sizes(paper: Published) -> pd.DataFrame:
    """Return the mean number of trained parameters of each method on ViT-B, weighted by the grid's shares.

    times: the same as a multiple of PVeRA's.
    """
    vit, rows = backbones.shapes("dinov2_b"), {}
    for key, members in paper.configurations().items():
        methods, percents = zip(*members, strict=True)
        rows[key] = np.average(
            [cost.trained_parameters(vit, method) for method in methods], weights=percents
        )
    table = pd.DataFrame({"parameters": pd.Series(rows)})
    return table.assign(times=table["parameters"] / table.at["pvera", "parameters"])


def check_sizes(paper: Published) -> Findings:
    """Yield the findings on the trained parameters in the ablation tables and the text, counted on ViT-B.

    Orders of magnitude, in the plural, count from 10^1.5.
    """
    vit, trained = backbones.shapes("dinov2_b"), cost.trained_parameters
    for row in paper.rank.itertuples():
        yield exact(f"Table 2, r = {row.rank}", row.parameters, trained(vit, PVeRA(rank=row.rank)))
    for row in paper.position.itertuples():
        yield exact(
            f"Table 3, {row.targets.upper()}",
            row.parameters,
            trained(vit, PVeRA(targets=row.targets)),
        )
    times = adapter_sizes(paper)["times"].drop(["pvera", "linear"])
    recomputed = f"times PVeRA's: {listed(times, '{:.1f}')}"
    verdict = agree((np.log10(times) >= 1.5).mean() > 1 / 2)
    yield Finding(
        "text, PVeRA against most other adapters", paper.quote("size"), recomputed, verdict
    )


def check_costs(paper: Published) -> Findings:
    """Yield the findings on the percentages of operations that PVeRA and VeRA add to ViT-B/14, counted by torch."""
    vit = backbones.shapes("dinov2_b")
    for method in (PVeRA(), VeRA()):
        printed, counted = float(paper.quote(f"flops_{method.key}")), cost.count(vit, method)
        base = counted.backbone_multiply_adds
        percent = 100 * ((counted.sampled or counted.inference) - base) / base
        recomputed = f"{percent:.2f} % of {base / cost.GIGA:.2f} G multiply-adds"
        yield Finding(
            f"text, {method.title} on ViT-B/14",
            f"{printed} %",
            recomputed,
            near(printed, percent, HALF, 0),
        )


# The two ablation tables


def check_ablations(paper: Published) -> Findings:
    """Yield the findings on the two ablation tables, against one another and against the text."""
    rank, position = paper.rank.set_index("rank"), paper.position.set_index("targets")
    r, targets = (
        int(paper.quote("position_table_rank")),
        _letters(paper.quote("rank_table_targets")),
    )
    for column in ("loss", "parameters"):
        place = f"Table 2 r = {r}, Table 3 {targets.upper()}: {column}"
        yield exact(place, rank.at[r, column], position.at[targets, column])
    yield exact("text, best rank", int(paper.quote("best_rank")), rank["loss"].idxmin())
    yield exact(
        "text, best position", _letters(paper.quote("best_targets")), position["loss"].idxmin()
    )
    close = paper.quote("close_ranks")
    nearest = rank["loss"].nsmallest(2 + close.count(",")).index[1:]
    yield exact("text, ranks nearly as good", close, ", ".join(map(str, sorted(nearest))))
    quoted = paper.quote("ablation_datasets").lower()
    datasets = [name for name, task in TASKS.items() if task.title.lower() in quoted]
    per_category = [
        sum(TASKS[dataset].category == category for dataset in datasets) for category in CATEGORIES
    ]
    yield exact("text, data sets per category", "2, 2, 2", ", ".join(map(str, per_category)))
    yield exact("text, data sets", int(paper.quote("ablation_count")), len(datasets))


def _letters(text: str) -> str:
    """Return "qv" for "query and value" and for "Q and V"."""
    return "".join(word[0].lower() for word in text.split() if word != "and")


#: Kind of check -> its function, in the order of the paper's tables.
CHECKS = {
    "main table = detailed table": check_cells,
    "averages": check_averages,
    "best and second": check_order,
    "bold and underline": check_marks,
    "stars": check_stars,
    "standard deviations": check_spreads,
    "grid shares": check_grid,
    "parameters": check_sizes,
    "operations": check_costs,
    "ablations": check_ablations,
}


def audit(paper: Published) -> pd.DataFrame:
    """Return all findings, one row each with its note: those of `CHECKS`, and those read by hand after their kind."""
    kinds = [pd.DataFrame(check(paper)).assign(check=kind) for kind, check in CHECKS.items()]
    computed = pd.concat(kinds).merge(paper.notes, "left", ["check", "place"])
    findings = pd.concat([computed, paper.by_hand], ignore_index=True)[list(paper.by_hand)].fillna(
        ""
    )
    return pd.concat(
        [of_kind for _, of_kind in findings.groupby("check", sort=False)], ignore_index=True
    )


def summary(findings: pd.DataFrame) -> pd.DataFrame:
    """Count the findings of each check (rows) by verdict (columns)."""
    table = pd.crosstab(findings["check"], findings["verdict"], margins=True, margins_name="all")
    table = table.reindex(
        index=[*findings["check"].unique(), "all"], columns=VERDICTS, fill_value=0
    )
    return table.rename_axis(index="check", columns=None)


def table(data: pd.DataFrame) -> str:
    """Return a table in Markdown, without its index."""
    return markdown_table(list(map(escape, data)), data.astype(str).map(escape).to_numpy())
