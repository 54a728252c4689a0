"""The paper's stars against its printed accuracies."""

import math
from itertools import combinations, product

import pandas as pd

from pvera.data.tasks import TASKS
from pvera.report.published import BACKBONES, SEEDS, Published
from pvera.report.statistics import LEVEL, binomial_p_value

HALF = 0.05  # half a unit of the last printed digit of an accuracy
EPSILON = 1e-9


def plausible_counts(percent: float, n: int) -> tuple[int, int]:
    """Return the least and greatest number of correct answers of n that print as `percent`."""
    low, high = (n * (percent + side) / 100 for side in (-HALF, HALF))
    return max(0, math.ceil(low - EPSILON)), min(n, math.floor(high + EPSILON))


def p_range(accuracy: float, reference: float, n: int) -> tuple[float, float]:
    """Return the least and greatest p-value of counts that print as `accuracy` and `reference`, both in per cent."""
    (least, most), (ref_least, ref_most) = plausible_counts(accuracy, n), plausible_counts(reference, n)
    values = [binomial_p_value(most, n, ref_least), binomial_p_value(least, n, ref_most)]
    if least <= ref_most and ref_least <= most:
        equal = max(least, ref_least)  # both counts may be equal
        values.append(binomial_p_value(equal, n, equal))
    return min(values), max(values)


def decide(accuracy: float, reference: float, n: int) -> bool | None:
    """Return whether `accuracy` gets a star against `reference`; None if rounding leaves it open."""
    low, high = p_range(accuracy, reference, n)
    return True if high < LEVEL else False if low >= LEVEL else None


def decisions(paper: Published, backbone: str) -> pd.DataFrame:
    """Return the verdict of `decide` for each method but PVeRA (rows) and each data set (columns), seeds pooled."""
    table = paper.accuracies(backbone)
    decided = table.drop("pvera").astype(object)
    for method, dataset in product(decided.index, decided.columns):
        n = SEEDS * TASKS[dataset].test_images
        decided.at[method, dataset] = decide(table.at[method, dataset], table.at["pvera", dataset], n)
    return decided


def contradictions(decided: pd.DataFrame, printed: pd.DataFrame) -> int:
    """Count the printed stars that cannot be earned, and the stars that must be earned but are missing."""
    return int((decided.notna() & decided.ne(printed.loc[decided.index])).sum().sum())


def exchanges(paper: Published) -> pd.DataFrame:
    """Count the contradictory stars of each detailed table before and after two columns exchange their stars."""
    rows = []
    for backbone in BACKBONES:
        decided, printed = decisions(paper, backbone), paper.accuracies(backbone, "star")
        before = contradictions(decided, printed)
        for one, other in combinations(decided.index, 2):
            after = contradictions(decided, printed.rename(index={one: other, other: one}))
            rows.append({"backbone": backbone, "one": one, "other": other, "before": before, "after": after})
    return pd.DataFrame(rows).sort_values(["backbone", "after"], kind="stable", ignore_index=True)
