"""Sentences about which method is best or second, and by how much."""

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
    UNCHECKED,
    Finding,
    above,
    titles,
)
from pvera.report.published import BACKBONES, Published
from pvera.study.results import CATEGORIES

CHECK = "best and second"
ON_PAGE = "dinov2_b"  # the backbone of the main table, which the sentences on data sets are about


def ranks(paper: Published) -> pd.DataFrame:
    """Return each method's mean rank over the data sets (rows) for each backbone (columns).

    Rank 1 is the best; ties share their mean.
    """
    table = {b: paper.accuracies(b).rank(ascending=False).mean(axis=1) for b in BACKBONES}
    return pd.DataFrame(table)


def check_order(paper: Published) -> Iterator[Finding]:
    """Yield the findings on sentences that compare methods."""
    for check in (_highest, _second, _leads, _linear_probing, _wins, _stability):
        yield from check(paper)


def _lead(paper: Published, backbone: str) -> float:
    """Return the average of PVeRA minus that of the best other method."""
    average = means(paper)["average"][backbone]
    return average["pvera"] - average.drop("pvera").max()


def _highest(paper: Published) -> Iterator[Finding]:
    for backbone, title in BACKBONES.items():
        average = means(paper)["average"][backbone]
        others = average.drop("pvera")
        yield Finding(
            CHECK, f"text, highest average, {title}", "PVeRA",
            f"PVeRA {average['pvera']:.2f}, best other {titles([others.idxmax()])} {others.max():.2f}",
            above(_lead(paper, backbone), 2 * HALF),
        )  # fmt: skip


def _second(paper: Published) -> Iterator[Finding]:
    for quote, backbone in (("second_s", "dinov2_s"), ("second_l", "dinov2_l")):
        others = means(paper)["average"][backbone].drop("pvera")
        named = [_key(title) for title in paper.quote(quote).split(" and ")]
        behind = others.max() - others
        tied_as_printed = set(behind.index[behind <= HALF + EPSILON])
        verdict = FOLLOWS if tied_as_printed == set(named) else above(-behind[named].max(), 2 * HALF)
        yield Finding(
            CHECK, f"text, second best, {BACKBONES[backbone]}", paper.quote(quote),
            ", ".join(f"{METHODS[m].title} {others[m]:.2f}" for m in others.nlargest(3).index), verdict,
            "said with these methods' averages, see above" if verdict == CONTRADICTS else "",
        )  # fmt: skip


def _leads(paper: Published) -> Iterator[Finding]:
    leads = {backbone: _lead(paper, backbone) for backbone in BACKBONES}
    for quote, backbone, sign in (("gap_s", "dinov2_s", 1), ("gap_l", "dinov2_l", -1)):
        others = [lead for other, lead in leads.items() if other != backbone]
        yield Finding(
            CHECK, f"text, lead of PVeRA, {BACKBONES[backbone]}", paper.quote(quote),
            ", ".join(f"{BACKBONES[b]} {lead:.2f}" for b, lead in leads.items()),
            above(min(sign * (leads[backbone] - lead) for lead in others), 4 * HALF),
        )  # fmt: skip


def _linear_probing(paper: Published) -> Iterator[Finding]:
    table = paper.main_table()
    natural = [dataset for dataset in table if TASKS[dataset].category == "natural"]
    beaten = {m: int((table.loc["linear", natural] > table.loc[m, natural]).sum()) for m in table.index}
    yield Finding(
        CHECK, "text, linear probing on natural images", paper.quote("linear_natural"),
        f"above Bottleneck on {beaten['bottleneck']}, above AdaptFormer on {beaten['adaptformer']} "
        f"of {len(natural)} data sets",
        FOLLOWS if beaten["bottleneck"] and beaten["adaptformer"] else CONTRADICTS,
    )  # fmt: skip
    lowest = {category: means(paper).loc[ON_PAGE][category].idxmin() for category in CATEGORIES[1:]}
    yield Finding(
        CHECK, "text, linear probing under a larger shift", paper.quote("linear_shift"),
        "lowest average: " + ", ".join(f"{METHODS[m].title} ({category})" for category, m in lowest.items()),
        FOLLOWS if set(lowest.values()) == {"linear"} else CONTRADICTS,
    )  # fmt: skip


def _wins(paper: Published) -> Iterator[Finding]:
    best = paper.main_table().apply(tables.marks).eq("best")
    wins = best.sum(axis=1).sort_values(ascending=False, kind="stable")
    yield Finding(
        CHECK, "text, data sets on which DoRA is best", paper.quote("best_of_dora"),
        ", ".join(f"{METHODS[method].title} {number}" for method, number in wins.items()),
        FOLLOWS if int(paper.quote("best_of_dora")) == wins["dora"] else CONTRADICTS,
    )  # fmt: skip


def _stability(paper: Published) -> Iterator[Finding]:
    measures = {
        "mean rank": ranks(paper)[ON_PAGE],
        "worst rank": paper.accuracies(ON_PAGE).rank(ascending=False).max(axis=1),
        "mean standard deviation over seeds": paper.accuracies(ON_PAGE, "std").mean(axis=1),
    }
    texts = []
    for name, values in measures.items():
        lowest = values.index[values == values.min()]
        texts.append(f"{name} {values['pvera']:.2f} (lowest: {titles(lowest)} {values.min():.2f})")
    yield Finding(
        CHECK, "text, performance of PVeRA", paper.quote("stability"), "; ".join(texts),
        UNCHECKED, "the paper does not say how stability is measured",
    )  # fmt: skip


def _key(title: str) -> str:
    return next(key for key, method in METHODS.items() if method.title == title)
