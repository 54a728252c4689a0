"""Accuracy, calibration and proper scores of class probabilities (N, C) against labels (N,).

The *confidence* of a prediction is its highest probability. Both calibration errors sum over bins b, each of
n_b of the N predictions: Σ_b n_b/N · |accuracy(b) − confidence(b)|, in [0, 1] (Section 4.3; top label, L1).
"""

import numpy as np

from .errors import InputError

BINS = 15


def evaluate(probabilities: np.ndarray, labels: np.ndarray, bins: int = BINS) -> dict[str, float | int]:
    """All metrics of this module, and the numbers of images and of correct answers behind them."""
    probabilities, labels = _check(probabilities, labels)
    correct = int((probabilities.argmax(1) == labels).sum())
    return {
        "images": len(labels),
        "correct": correct,
        "accuracy": correct / len(labels),
        "ece": ece(probabilities, labels, bins),
        "ace": ace(probabilities, labels, bins),
        "nll": nll(probabilities, labels),
        "brier": brier(probabilities, labels),
        "bins": bins,
    }


def accuracy(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Share of images whose most probable class (the first of equals) is the label, in [0, 1]."""
    probabilities, labels = _check(probabilities, labels)
    return float((probabilities.argmax(1) == labels).mean())


def matthews(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Matthews correlation of the most probable class with the label, in [−1, 1]; 0 where either is constant."""
    from sklearn.metrics import matthews_corrcoef

    probabilities, labels = _check(probabilities, labels)
    return float(matthews_corrcoef(labels, probabilities.argmax(1)))


def ece(probabilities: np.ndarray, labels: np.ndarray, bins: int = BINS) -> float:
    """Expected calibration error (Naeini et al., 2015): bins of equal width over [0, 1].

    A bin holds its lower edge; the last one also holds 1.
    """
    probabilities, labels = _check(probabilities, labels)
    confidence = probabilities.max(1)
    inner_edges = np.linspace(0, 1, bins + 1)[1:-1]
    return _calibration_error(
        probabilities, labels, np.searchsorted(inner_edges, confidence, side="right"), bins
    )


def ace(probabilities: np.ndarray, labels: np.ndarray, bins: int = BINS) -> float:
    """Adaptive calibration error: bins of equal mass along the sorted confidence, of the top label.

    Bins are the ranks split as `numpy.array_split` does (sizes differ by one at most), weighted by size.
    Equal confidences keep the order of the images, also where a bin's edge parts them.
    """
    probabilities, labels = _check(probabilities, labels)
    ranks = np.argsort(probabilities.max(1), kind="stable")
    bin_of = np.empty(len(labels), np.int64)
    for b, members in enumerate(np.array_split(ranks, bins)):
        bin_of[members] = b
    return _calibration_error(probabilities, labels, bin_of, bins)


def nll(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean negative log-likelihood in nats, in fp64, of probabilities clipped at fp64's epsilon (2.2e-16)."""
    probabilities, labels = _check(probabilities, labels)
    true = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.clip(true, np.finfo(np.float64).eps, 1)).mean())


def brier(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Mean squared distance of the probabilities from the label's one-hot vector, in [0, 2]."""
    probabilities, labels = _check(probabilities, labels)
    true = probabilities[np.arange(len(labels)), labels]
    return float(((probabilities**2).sum(1) - 2 * true + 1).mean())


def _calibration_error(probabilities, labels, bin_of, bins) -> float:
    correct = probabilities.argmax(1) == labels
    # n_b |accuracy(b) − confidence(b)| = |Σ correct − Σ confidence| over the bin, so empty bins need no care.
    gap = np.bincount(bin_of, correct - probabilities.max(1), minlength=bins)
    return float(np.abs(gap).sum() / len(labels))


def _check(probabilities, labels) -> tuple[np.ndarray, np.ndarray]:
    """(N, C) in fp64 and (N,) in int64. InputError for shapes, labels or rows that cannot be."""
    probabilities, labels = np.asarray(probabilities, np.float64), np.asarray(labels, np.int64)
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1] or not probabilities.size:
        raise InputError(
            f"probabilities {probabilities.shape} and labels {labels.shape} are not (N, C) and (N,)"
        )
    if labels.min() < 0 or labels.max() >= probabilities.shape[1]:
        raise InputError(f"labels {labels.min()} to {labels.max()} of {probabilities.shape[1]} classes")
    # Stored probabilities are fp16, which are off by up to 5e-4 relative each.
    if not (probabilities.min() >= 0 and np.allclose(probabilities.sum(1), 1, atol=5e-3)):
        raise InputError("probabilities must be finite, non-negative and sum to one over the classes")
    return probabilities, labels
