"""The stars of the detailed tables and of the language table, under several readings of their test."""

import math
from collections.abc import Callable, Iterator
from itertools import combinations, product

import pandas as pd
from scipy.stats import binomtest
from statsmodels.stats.proportion import proportions_ztest

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

#: Sizes of the GLUE validation sets (Wang et al., 2019) behind the language table. CoLA is absent: its measure is
#: a correlation, and a binomial test needs a share of correct answers.
GLUE_VALIDATION = {"RTE": 277, "MRPC": 408}


def plausible_counts(percent: float, n: int) -> tuple[int, int]:
    """Return the least and greatest number of correct answers of n that print as `percent`."""
    low, high = (n * (percent + side) / 100 for side in (-HALF, HALF))
    return max(0, math.ceil(low - EPSILON)), min(n, math.floor(high + EPSILON))


Test = Callable[[int, int, int], float]  # (correct, n, reference's correct) -> p-value


def p_range(accuracy: float, reference: float, n: int, test: Test) -> tuple[float, float]:
    """Return the least and greatest p-value of counts that print as `accuracy` and `reference`, both in per cent."""
    (least, most), (ref_least, ref_most) = plausible_counts(accuracy, n), plausible_counts(reference, n)
    values = [test(most, n, ref_least), test(least, n, ref_most)]
    if least <= ref_most and ref_least <= most:
        values.append(test(max(least, ref_least), n, max(least, ref_least)))  # both may be equal
    return min(values), max(values)


def decide(accuracy: float, reference: float, n: int, test: Test = binomial_p_value) -> bool | None:
    """Return whether `accuracy` gets a star against `reference`; None if rounding leaves it open."""
    low, high = p_range(accuracy, reference, n, test)
    return True if high < LEVEL else False if low >= LEVEL else None


def two_sided(correct: int, n: int, reference: int) -> float:
    """Return the p-value of the exact binomial test against reference / n, taken as known."""
    return float(binomtest(correct, n, reference / n).pvalue)


def two_samples(correct: int, n: int, reference: int) -> float:
    """Return the p-value of the one-sided z test of two proportions, both estimated; 1 if both are 0 or both 1."""
    if correct == reference and correct in (0, n):
        return 1.0
    return float(proportions_ztest([correct, reference], [n, n], alternative="smaller")[1])


#: Readings of "we perform a binomial test between each adapter and PVeRA": number of pooled seeds, and the test.
READINGS: dict[str, tuple[int, Test]] = {
    "one-sided, seeds pooled": (SEEDS, binomial_p_value),
    "one-sided, as if one seed": (1, binomial_p_value),
    "two-sided, seeds pooled": (SEEDS, two_sided),
    "two samples, one-sided, seeds pooled": (SEEDS, two_samples),
}


def decisions(paper: Published, backbone: str, reading: str = next(iter(READINGS))) -> pd.DataFrame:
    """Return the verdict of `decide` for each method but PVeRA (rows) and each data set (columns)."""
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
    """Return True where a printed star cannot be earned, and where a star that must be earned is missing."""
    return decided.notna() & decided.ne(printed.loc[decided.index])


def exchanged(table: pd.DataFrame, one: str, other: str) -> pd.DataFrame:
    """Return `table` with two of its rows exchanged."""
    table = table.copy()
    table.loc[[one, other]] = table.loc[[other, one]].to_numpy()
    return table


def readings(paper: Published) -> pd.DataFrame:
    """Count the contradictory and the undecidable stars under each reading of the test.

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
    """Count the contradictory stars of each detailed table before and after two columns exchange their stars."""
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
    """Yield the findings on the stars of the detailed tables and of the language table."""
    for backbone in BACKBONES:
        yield from _check_detailed(paper, backbone)
    for task, rows in paper.language.groupby("task", sort=False):
        yield from _check_language(task, rows.set_index("method"))
    stars = [table.loc[table["method"] == "pvera", "star"].sum() for table in (paper.detailed, paper.language)]
    yield exact("stars", "stars of PVeRA itself", sum(stars), 0)


def _check_detailed(paper: Published, backbone: str) -> Iterator[Finding]:
    accuracy, printed = paper.accuracies(backbone), paper.accuracies(backbone, "star")
    decided = decisions(paper, backbone)
    swaps = exchanges(paper)
    swap = swaps[swaps["backbone"] == backbone].iloc[0]
    pair, exchange = (swap["one"], swap["other"]), ""
    if swap["before"] - swap["after"] > 1:
        exchange = (
            f"if {titles(pair)} exchanged stars, {swap['after']} instead of {swap['before']} stars "
            "of this table would not follow; conjecture: two columns changed places"
        )
    for method, dataset in product(decided.index, decided.columns):
        value, reference = accuracy.at[method, dataset], accuracy.at["pvera", dataset]
        star, decision = bool(printed.at[method, dataset]), decided.at[method, dataset]
        notes = ["above PVeRA's"] * bool(star and value > reference) + [exchange] * (method in pair)
        yield _star_finding(
            f"{TABLES[backbone]} ({BACKBONES[backbone]}), {cell_title(method, dataset)}", value, star,
            reference, SEEDS * TASKS[dataset].test_images, decision, "; ".join(filter(None, notes)),
        )  # fmt: skip


def _check_language(task: str, rows: pd.DataFrame) -> Iterator[Finding]:
    reference = rows.at["pvera", "score"]
    for method, row in rows.drop("pvera").iterrows():
        place = f"Table 5, {METHODS[method].title} on {task}"
        if task in GLUE_VALIDATION:
            n = SEEDS * GLUE_VALIDATION[task]
            decision = decide(row["score"], reference, n)
            yield _star_finding(place, row["score"], row["star"], reference, n, decision, "")
        else:
            printed, note = (
                _starred(row["score"], row["star"], reference),
                "its test needs every answer of both methods",
            )
            yield Finding("stars", place, printed, "–", UNCHECKED, f"a correlation: {note}")


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
    """Return a range of p-values as text; below 1e-99 the digits depend on the platform."""
    texts = [f"{p:.2g}" if p >= 1e-99 else "under 1e-99" for p in (low, high)]
    return " to ".join(dict.fromkeys(texts))
