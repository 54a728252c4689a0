"""Sentences about which method is best, ranks, and the bold and underlined cells."""

from collections.abc import Iterator

import pandas as pd

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS
from pvera.report import tables
from pvera.report.audit.averages import means
from pvera.report.audit.core import (
    CONTRADICTS,
    EPSILON,
    FOLLOWS,
    HALF,
    ROUNDING,
    UNCHECKED,
    Finding,
    above,
    titles,
)
from pvera.report.published import BACKBONES, Published
from pvera.study.results import CATEGORIES


def ranks(paper: Published) -> pd.DataFrame:
    """Mean rank over the data sets, 1 the best, ties sharing their mean: rows methods, columns backbones."""
    table = {b: paper.accuracies(b).rank(ascending=False).mean(axis=1) for b in BACKBONES}
    return pd.DataFrame(table)


def check_order(paper: Published) -> Iterator[Finding]:
    """Which methods are best and second on average, and by how much."""
    average = means(paper)["average"]
    leads = {}
    for backbone, title in BACKBONES.items():
        own = average[backbone]
        others = own.drop("pvera")
        leads[backbone] = own["pvera"] - others.max()
        yield Finding(
            "best and second", f"text, highest average, {title}", "PVeRA",
            f"PVeRA {own['pvera']:.2f}, best other {titles([others.idxmax()])} {others.max():.2f}",
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
        best.append(f"{name} {values['pvera']:.2f} (lowest: {titles(lowest)} {values.min():.2f})")
    yield Finding(
        "best and second", "text, performance of PVeRA", paper.quote("stability"), "; ".join(best),
        UNCHECKED, "the paper does not say how stability is measured",
    )  # fmt: skip


def check_marks(paper: Published) -> Iterator[Finding]:
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


def _key(title: str) -> str:
    return next(key for key, method in METHODS.items() if method.title == title)


def _marked(own: pd.Series) -> str:
    methods = {mark: own.index[own == mark] for mark in ("best", "second")}
    return "; ".join(f"{mark}: {titles(found)}" for mark, found in methods.items() if len(found))
