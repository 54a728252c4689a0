"""Statistics of the analyses. All take arrays; scipy and statsmodels do the tests.

binomial: the detailed tables' test. ranks: what depends on order alone. intervals: of means, and how often
they hold what they should.
"""

from .binomial import LEVEL, binomial_p_value, binomial_star
from .intervals import coverage, mean_and_std, t_interval
from .ranks import RankSum, auroc, rank_sum

__all__ = [
    "LEVEL",
    "RankSum",
    "auroc",
    "binomial_p_value",
    "binomial_star",
    "coverage",
    "mean_and_std",
    "rank_sum",
    "t_interval",
]
