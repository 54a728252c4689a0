"""The paper's stars against its printed accuracies, under several readings of their test."""

import math
from collections.abc import Callable
from itertools import combinations, product

import pandas as pd
from scipy.stats import binomtest
from statsmodels.stats.proportion import proportions_ztest

from pvera.data.tasks import TASKS
from pvera.report.published import BACKBONES, SEEDS, Published
from pvera.report.statistics import LEVEL, binomial_p_value

HALF = 0.05  # half a unit of the last printed digit of an accuracy
EPSILON = 1e-9

Test = Callable[[int, int, int], float]  # (correct, n, reference's correct) -> p-value


def plausible_counts(percent: float, n: int) -> tuple[int, int]:
    """Return the least and greatest number of correct answers of n that print as `percent`."""
    low, high = (n * (percent + side) / 100 for side in (-HALF, HALF))
    return max(0, math.ceil(low - EPSILON)), min(n, math.floor(high + EPSILON))


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


def decisions(paper: Published, backbone: str, reading: str = "one-sided, seeds pooled") -> pd.DataFrame:
    """Return the verdict of `decide` for each method but PVeRA (rows) and each data set (columns)."""
    seeds, test = READINGS[reading]
    table = paper.accuracies(backbone)
    decided = table.drop("pvera").astype(object)
    for method, dataset in product(decided.index, decided.columns):
        n = seeds * TASKS[dataset].test_images
        decided.at[method, dataset] = decide(table.at[method, dataset], table.at["pvera", dataset], n, test)
    return decided


def contradictions(decided: pd.DataFrame, printed: pd.DataFrame) -> pd.DataFrame:
    """Return True where a printed star cannot be earned, and where a star that must be earned is missing."""
    return decided.notna() & decided.ne(printed.loc[decided.index])


def after_exchange(decided: pd.DataFrame, printed: pd.DataFrame, one: str, other: str) -> int:
    """Count the contradictions that are left when two methods exchange their printed stars."""
    exchanged = printed.rename(index={one: other, other: one})
    return int(contradictions(decided, exchanged).sum().sum())


def readings(paper: Published) -> pd.DataFrame:
    """Count the contradictory and the undecidable stars under each reading of the test.

    exchanged: contradictions if the stars of DoRA and LoRA changed places.
    """
    rows = []
    for reading, backbone in product(READINGS, BACKBONES):
        decided, printed = decisions(paper, backbone, reading), paper.accuracies(backbone, "star")
        row = {"reading": reading, "backbone": backbone, "cells": decided.size}
        row["contradictions"] = int(contradictions(decided, printed).sum().sum())
        row["exchanged"] = after_exchange(decided, printed, "dora", "lora")
        row["undecidable"] = int(decided.isna().sum().sum())
        rows.append(row)
    return pd.DataFrame(rows)


def exchanges(paper: Published) -> pd.DataFrame:
    """Count the contradictory stars of each detailed table before and after two columns exchange their stars."""
    rows = []
    for backbone in BACKBONES:
        decided, printed = decisions(paper, backbone), paper.accuracies(backbone, "star")
        before = int(contradictions(decided, printed).sum().sum())
        for one, other in combinations(decided.index, 2):
            after = after_exchange(decided, printed, one, other)
            rows.append({"backbone": backbone, "one": one, "other": other, "before": before, "after": after})
    return pd.DataFrame(rows).sort_values(["backbone", "after"], kind="stable", ignore_index=True)
