"""The stars of the detailed tables and of the language table, under several readings of their test."""

import math
from collections.abc import Callable, Iterator
from itertools import combinations, product

import pandas as pd
from scipy.stats import binomtest, norm

from pvera.adapters import METHODS
from pvera.data.tasks import TASKS
from pvera.report.audit.core import (
    CONTRADICTS,
    EPSILON,
    FOLLOWS,
    HALF,
    OPEN,
    UNCHECKED,
    Finding,
    cell_title,
    exact,
    titles,
)
from pvera.report.published import BACKBONES, SEEDS, TABLES, Published
from pvera.report.statistics import LEVEL, binomial_p_value

#: Examples of the GLUE validation sets (Wang et al., 2019) behind the language table. CoLA has no place here:
#: its measure is a correlation, which is no share of right answers.
GLUE_VALIDATION = {"RTE": 277, "MRPC": 408}


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


def check_stars(paper: Published) -> Iterator[Finding]:
    """The stars of the detailed tables and of the language table."""
    best = exchanges(paper).groupby("backbone").first()
    for backbone in BACKBONES:
        accuracy, printed = paper.accuracies(backbone), paper.accuracies(backbone, "star")
        decided = decisions(paper, backbone)
        swap = best.loc[backbone]
        pair, exchange = (swap["one"], swap["other"]), ""
        if swap["before"] - swap["after"] > 1:
            exchange = (
                f"if {titles(pair)} exchanged stars, {swap['after']} instead of {swap['before']} stars "
                "of this table would not follow; conjecture: two columns changed places"
            )
        for method, dataset in product(decided.index, decided.columns):
            value, reference = accuracy.at[method, dataset], accuracy.at["pvera", dataset]
            star, decision = bool(printed.at[method, dataset]), decided.at[method, dataset]
            note = ["above PVeRA's"] * bool(star and value > reference) + [exchange] * (method in pair)
            yield _star_finding(
                f"{TABLES[backbone]} ({BACKBONES[backbone]}), {cell_title(method, dataset)}", value, star,
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
    yield exact("stars", "stars of PVeRA itself", sum(own), 0)


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


def _between(low: float, high: float) -> str:
    """A range of p-values; exact ones are too small to be told from zero long before they are zero."""
    texts = [f"{p:.2g}" if p >= 1e-99 else "under 1e-99" for p in (low, high)]
    return " to ".join(dict.fromkeys(texts))
