"""Selective classification: how well an uncertainty tells incorrect predictions from correct ones.

A *selective classifier* answers the share of images with the lowest uncertainty, its *coverage*, and declines the rest.
Its *selective risk* is the share of incorrect predictions among those that it answers.
"""

import numpy as np

from pvera.errors import optional


def auroc(uncertainty: np.ndarray, wrong: np.ndarray) -> float:
    """Return the area under the ROC curve: P(a wrong one's uncertainty > a correct one's) + ½ P(equal), in [0, 1].

    uncertainty: (N,). wrong: (N,), whether each prediction is incorrect. NaN where all are correct or all incorrect,
    since there is no pair to order.
    """
    if np.all(wrong) or not np.any(wrong):
        return float("nan")

    # The Mann-Whitney statistic, from ranks: scikit-learn's checks take milliseconds, however few images there are.
    ranks = optional("scipy.stats", "study").rankdata(uncertainty)
    of_wrong = ranks[np.asarray(wrong, bool)]
    n = len(of_wrong)
    pairs_in_order = of_wrong.sum() - n * (n + 1) / 2
    return float(pairs_in_order / (n * (len(ranks) - n)))


def selective_risk(uncertainty: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return the selective risk (N,) at the coverages 1/N, 2/N, ..., 1.

    uncertainty: (N,), low for what is answered first. wrong: (N,), whether each prediction is incorrect. Images of
    equal uncertainty have no order: each counts as their mean.
    """
    return np.cumsum(_wrong_in_order(uncertainty, wrong)) / np.arange(1, len(wrong) + 1)


def aurc(uncertainty: np.ndarray, wrong: np.ndarray) -> float:
    """Return the area under the risk-coverage curve (Geifman et al., ICLR 2019), the mean of `selective_risk`."""
    return float(selective_risk(uncertainty, wrong).mean())


def augrc(uncertainty: np.ndarray, wrong: np.ndarray) -> float:
    """Return the area under the generalised risk-coverage curve (Traub et al., NeurIPS 2024), in [0, 1/2].

    The generalised risk at a coverage is the share of all images that are answered and incorrect. The area is the
    trapezoidal one from coverage zero.
    """
    risk = np.cumsum(_wrong_in_order(uncertainty, wrong)) / len(wrong)
    return float(np.trapezoid(np.concatenate([[0], risk]), dx=1 / len(risk)))


def selective_accuracy(uncertainty: np.ndarray, wrong: np.ndarray, coverage: float = 0.8) -> float:
    """Return the accuracy on the images with the lowest uncertainty; their number is rounded up."""
    answered = int(np.ceil(coverage * len(wrong) - 1e-9))
    return float(1 - selective_risk(uncertainty, wrong)[answered - 1])


def _wrong_in_order(uncertainty: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return `wrong` (N,) in order of uncertainty, the mean among equals."""
    _, tied, counts = np.unique(uncertainty, return_inverse=True, return_counts=True)
    return np.repeat(np.bincount(tied, wrong) / counts, counts)
