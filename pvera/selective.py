"""Selective classification: how well an uncertainty tells incorrect predictions from correct ones.

A *selective classifier* answers the share of images with the lowest uncertainty, its *coverage*, and declines the rest.
Its *selective risk* is the share of incorrect predictions among those that it answers.
"""

import numpy as np

from pvera.errors import InputError, optional


def auroc(uncertainty: np.ndarray, wrong: np.ndarray) -> float:
    """Return the area under the ROC curve: P(a wrong one's uncertainty > a correct one's) + ½ P(equal), in [0, 1].

    uncertainty: (N,). wrong: (N,), whether each prediction is incorrect. NaN where all are correct or all incorrect,
    since there is no pair to order. InputError for NaN or shapes that do not match.
    """
    uncertainty, wrong = _checked(uncertainty, wrong)
    if wrong.all() or not wrong.any():
        return float("nan")
    return float(optional("sklearn.metrics", "study").roc_auc_score(wrong, uncertainty))


def selective_risk(uncertainty: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return the selective risk (N,) at the coverages 1/N, 2/N, ..., 1.

    uncertainty: (N,), low for what is answered first. wrong: (N,), whether each prediction is incorrect. Images of
    equal uncertainty have no order: each counts as their mean. InputError for NaN or shapes that do not match.
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
    """Return the accuracy on the `answered` images, those with the lowest uncertainty."""
    risk = selective_risk(uncertainty, wrong)
    return float(1 - risk[answered(coverage, len(risk)) - 1])


def answered(coverage: float, images: int) -> int:
    """Return how many of `images` a coverage answers, rounded up. InputError for a coverage outside (0, 1]."""
    if not 0 < coverage <= 1:
        raise InputError(f"a coverage lies above 0 and up to 1, not at {coverage}")
    return int(np.ceil(coverage * images - 1e-9))


def _wrong_in_order(uncertainty: np.ndarray, wrong: np.ndarray) -> np.ndarray:
    """Return `wrong` (N,) in order of uncertainty, the mean among equals."""
    uncertainty, wrong = _checked(uncertainty, wrong)
    _, tied, counts = np.unique(uncertainty, return_inverse=True, return_counts=True)
    return np.repeat(np.bincount(tied, wrong) / counts, counts)


def _checked(uncertainty: np.ndarray, wrong: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    uncertainty, wrong = np.asarray(uncertainty, np.float64), np.asarray(wrong)
    if uncertainty.ndim != 1 or wrong.shape != uncertainty.shape or not wrong.size:
        raise InputError(f"uncertainties {uncertainty.shape} and answers {wrong.shape} are not (N,) and (N,)")
    if np.isnan(uncertainty).any() or not np.isin(wrong, (0, 1)).all():
        raise InputError("an uncertainty is a number, and a prediction is incorrect (1) or correct (0)")
    return uncertainty, wrong
