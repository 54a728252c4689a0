"""What depends on the order of numbers alone, and so not on their scale."""

from dataclasses import dataclass

import numpy as np
from scipy.stats import mannwhitneyu, rankdata

from ..errors import InputError


@dataclass(frozen=True)
class RankSum:
    """Outcome of `rank_sum` for samples x and y.

    superiority: P(x > y) + ½ P(x = y) of a random pair, the area under the ROC curve, ½ for no effect;
    cliffs_delta: P(x > y) − P(x < y) = 2 · superiority − 1, also called rank-biserial correlation.
    """

    p_value: float
    superiority: float

    @property
    def cliffs_delta(self) -> float:
        return 2 * self.superiority - 1


def rank_sum(x: np.ndarray, y: np.ndarray, alternative: str = "greater") -> RankSum:
    """Unpaired Wilcoxon rank-sum (Mann-Whitney) test: does x (n,) tend to be greater than y (m,)?

    alternative: "greater", "less" or "two-sided". The p-value is exact where a sample has at most eight
    values and there are no ties, else by the normal approximation with corrections for ties and continuity
    (scipy's "auto"). Among thousands of images tiny effects are significant and p-values underflow to zero,
    so read the effect size with it. InputError for an empty sample or NaN.
    """
    x, y = (_sample(values, "the rank-sum test") for values in (x, y))
    if alternative not in ("greater", "less", "two-sided"):
        raise InputError(f"alternative {alternative!r} is none of 'greater', 'less', 'two-sided'")
    found = mannwhitneyu(x, y, alternative=alternative)
    return RankSum(float(found.pvalue), float(found.statistic) / (len(x) * len(y)))


def auroc(scores: np.ndarray, positive: np.ndarray) -> float:
    """Area under the ROC curve: P(a positive's score > a negative's) + ½ P(equal), in [0, 1].

    scores: (n,), high for what should be positive, e.g. an uncertainty for wrong predictions; positive: (n,)
    booleans. NaN where all are positive or none is, for then there is no pair to order. InputError for NaN
    scores, or shapes that do not match.
    """
    scores, positive = _sample(scores, "AUROC"), np.asarray(positive)
    if positive.shape != scores.shape or not np.isin(positive, (0, 1)).all():
        raise InputError(f"AUROC needs one boolean per score, not {positive.shape} for {scores.shape}")
    positive = positive.astype(bool)
    n, m = positive.sum(), (~positive).sum()
    if not n or not m:
        return float("nan")
    return float((rankdata(scores)[positive].sum() - n * (n + 1) / 2) / (n * m))


def _sample(values, what: str) -> np.ndarray:
    values = np.asarray(values, np.float64)
    if values.ndim != 1 or not values.size or np.isnan(values).any():
        raise InputError(f"{what} needs a list of numbers without NaN, not an array of shape {values.shape}")
    return values
