"""Statistics of the analyses. All take arrays; scipy, statsmodels and scikit-learn do the tests.

binomial: the detailed tables' test, and corrections for many tests. ranks: tests and effect sizes of order alone.
intervals: means, their intervals, and coverage. bootstrap: resamples of data sets. paired: intervals of paired
differences over data sets and over test images.
"""

from pvera.report.statistics.binomial import LEVEL, binomial_p_value, binomial_star, corrected
from pvera.report.statistics.bootstrap import averages, percentile_interval, probability_of_improvement, resample
from pvera.report.statistics.intervals import coverage, mean_and_std, seed_error
from pvera.report.statistics.paired import Effect, cluster_interval, detectable, smallest, standard_error
from pvera.report.statistics.ranks import Friedman, RankSum, friedman, nemenyi_difference, rank_sum, signed_rank
from pvera.selective import auroc
from pvera.uncertainty import t_interval

__all__ = [
    "LEVEL",
    "Effect",
    "Friedman",
    "RankSum",
    "auroc",
    "averages",
    "binomial_p_value",
    "binomial_star",
    "cluster_interval",
    "corrected",
    "coverage",
    "detectable",
    "friedman",
    "mean_and_std",
    "nemenyi_difference",
    "percentile_interval",
    "probability_of_improvement",
    "rank_sum",
    "resample",
    "seed_error",
    "signed_rank",
    "smallest",
    "standard_error",
    "t_interval",
]
