"""Accuracy, calibration and proper scores of class probabilities (N, C) against labels (N,).

The *confidence* of a prediction is its highest probability. Both calibration errors sum over
bins of the predictions by confidence, n_b of N in bin b (Section 4.3; top label, L1):

    Σ_b n_b/N · |accuracy(b) − confidence(b)|, in [0, 1]
"""

import numpy as np

from pvera.errors import InputError, import_extra

BINS = 15
#: Deviation of the sum over classes from one: stored probabilities are fp16, with a relative error
#: of up to 5e-4 each.
TOLERANCE = 5e-3


def evaluate(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float | int]:
    """Return accuracy, `ece`, `ace`, `nll` and `brier`, and how many predictions are correct.

    Args:
        probabilities: (N, C).
        labels: (N,).

    Raises:
        InputError: Shapes, labels or rows are impossible; so for every metric of probabilities
            and labels here.
    """
    _, is_correct = top_label(probabilities, labels)
    correct = int(is_correct.sum())
    return {
        "images": len(labels),
        "correct": correct,
        "accuracy": correct / len(labels),
        "ece": ece(probabilities, labels),
        "ace": ace(probabilities, labels),
        "nll": nll(probabilities, labels),
        "brier": brier(probabilities, labels),
        "bins": BINS,
    }


def matthews(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the Matthews correlation of prediction and label, in [−1, 1]; 0 if one is constant."""
    probabilities, labels = checked(probabilities, labels)
    sklearn_metrics = import_extra("sklearn.metrics", "study")
    return float(sklearn_metrics.matthews_corrcoef(labels, probabilities.argmax(1)))


def ece(probabilities: np.ndarray, labels: np.ndarray, bins: int = BINS) -> float:
    """Return the expected calibration error (Naeini et al., 2015), with bins of equal width."""
    return calibration_error(*top_label(probabilities, labels), bins)


def ace(probabilities: np.ndarray, labels: np.ndarray, bins: int = BINS) -> float:
    """Return the adaptive calibration error of the top label, with bins of equal mass.

    Mukhoti et al. (2020) call it adaptive ECE. Others use the name ACE for a mean over all classes.
    """
    return calibration_error(*top_label(probabilities, labels), bins, adaptive=True)


def calibration_error(
    confidence: np.ndarray, correct: np.ndarray, bins: int = BINS, adaptive: bool = False
) -> float:
    """Return a calibration error.

    Args:
        confidence: (N,).
        correct: (N,), 1 or 0 for each prediction.
        bins: Number of bins.
        adaptive: False: bins have equal width over [0, 1], and hold their lower edge; the last one
            holds also 1. True: they have equal mass, `numpy.array_split` of the predictions in
            order of confidence. If an edge parts predictions of equal confidence, both sides get
            the same share of correct ones, whatever their order.
    """
    confidence = np.asarray(confidence, np.float64)
    correct = np.asarray(correct)
    if adaptive:
        # Equal confidences share their correct answers.
        _, tied = np.unique(confidence, return_inverse=True)
        shares = np.bincount(tied, correct) / np.bincount(tied)
        correct = shares[tied]
    # n_b (accuracy(b) − confidence(b))
    gaps = np.bincount(_bins(confidence, bins, adaptive), correct - confidence)
    return float(np.abs(gaps).sum() / len(confidence))


def _bins(confidence: np.ndarray, bins: int, adaptive: bool) -> np.ndarray:
    """Return the bin of each prediction (N,), see `calibration_error`."""
    if not adaptive:
        return np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence, side="right")
    # A stable order: the result follows from the predictions alone.
    bin_of = np.empty(len(confidence), np.int64)
    for b, members in enumerate(np.array_split(np.argsort(confidence, kind="stable"), bins)):
        bin_of[members] = b
    return bin_of


def top_label(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the confidence (N,) of the most probable class, and whether it is the label (N,)."""
    probabilities, labels = checked(probabilities, labels)
    return probabilities.max(1), probabilities.argmax(1) == labels


def nll(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean negative log-likelihood in nats, clipped at fp64's epsilon (2.2e-16)."""
    probabilities, labels = checked(probabilities, labels)
    true = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.clip(true, np.finfo(np.float64).eps, 1)).mean())


def brier(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean squared distance from the label's one-hot vector, in [0, 2]."""
    probabilities, labels = checked(probabilities, labels)
    true = probabilities[np.arange(len(labels)), labels]
    # Σ (p − one-hot)² = Σ p² − 2 p_label + 1
    return float(((probabilities**2).sum(1) - 2 * true + 1).mean())


def checked(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (N, C) in fp64 and (N,) in int64. InputError for impossible ones."""
    probabilities = np.asarray(probabilities, np.float64)
    labels = np.asarray(labels)
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1] or not probabilities.size:
        raise InputError(
            f"probabilities {probabilities.shape} and labels {labels.shape} are not (N, C) and (N,)"
        )
    classes = probabilities.shape[1]
    if labels.min() < 0 or labels.max() >= classes or np.any(labels % 1):
        raise InputError(
            f"labels {labels.min()} to {labels.max()} are not the indices of {classes} classes"
        )
    require_probabilities(probabilities)
    return probabilities, labels.astype(np.int64)


def require_probabilities(probabilities: np.ndarray) -> None:
    """Raise InputError unless the last axis of (..., C) holds probabilities."""
    if not (probabilities.min() >= 0 and np.allclose(probabilities.sum(-1), 1, atol=TOLERANCE)):
        raise InputError(
            "probabilities must be finite, non-negative and sum to one over the classes"
        )


def auroc(uncertainty: np.ndarray, wrong: np.ndarray) -> float:
    """Return how well an uncertainty tells incorrect predictions from correct ones.

    That is the area under the ROC curve, in [0, 1]: P(a wrong one's uncertainty > a correct one's)
    + ½ P(equal).

    Args:
        uncertainty: (N,).
        wrong: (N,), whether each prediction is incorrect.

    Returns:
        NaN if all are correct or all incorrect, since there is no pair to order.
    """
    if np.all(wrong) or not np.any(wrong):
        return float("nan")

    # The Mann-Whitney statistic: scikit-learn's checks take milliseconds, however few images.
    ranks = import_extra("scipy.stats", "study").rankdata(uncertainty)
    ranks_of_wrong = ranks[np.asarray(wrong, bool)]
    n = len(ranks_of_wrong)
    pairs_in_order = ranks_of_wrong.sum() - n * (n + 1) / 2
    return float(pairs_in_order / (n * (len(ranks) - n)))
