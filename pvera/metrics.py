"""Accuracy, calibration and proper scores of class probabilities (N, C) against labels (N,).

The *confidence* of a prediction is its highest probability. Both calibration errors sum over bins of the predictions
by confidence, n_b of N in bin b: Σ_b n_b/N · |accuracy(b) − confidence(b)|, in [0, 1] (Section 4.3; top label, L1).
"""

import numpy as np

from pvera.errors import InputError, import_extra

BINS = 15
DRAWS = 200  # of labels, for the errors of a calibrated model
TOLERANCE = 5e-3  # of the sum over classes: stored probabilities are fp16, each with a relative error of up to 5e-4


def evaluate(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float | int]:
    """Return every metric of this module but `matthews`, and the numbers of images and of correct predictions."""
    correct = int(top_label(probabilities, labels)[1].sum())
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
    """Return the Matthews correlation of the most probable class with the label, in [−1, 1]; 0 if one is constant."""
    probabilities, labels = _check(probabilities, labels)
    return float(
        import_extra("sklearn.metrics", "study").matthews_corrcoef(labels, probabilities.argmax(1))
    )


def ece(probabilities: np.ndarray, labels: np.ndarray, bins: int = BINS) -> float:
    """Return the expected calibration error (Naeini et al., 2015): bins of equal width, see `calibration_error`."""
    return calibration_error(*top_label(probabilities, labels), bins)


def ace(probabilities: np.ndarray, labels: np.ndarray, bins: int = BINS) -> float:
    """Return the adaptive calibration error of the top label: bins of equal mass, see `calibration_error`.

    Mukhoti et al. (2020) call it adaptive ECE. Others use the name ACE for a mean over all classes.
    """
    return calibration_error(*top_label(probabilities, labels), bins, adaptive=True)


def calibration_error(
    confidence: np.ndarray, correct: np.ndarray, bins: int = BINS, adaptive: bool = False
) -> float:
    """Return the calibration error of predictions with these confidences (N,); `correct` (N,) holds 1 or 0 for each.

    Bins have equal width over [0, 1]. Each holds its lower edge, the last one also 1. `adaptive` bins have equal mass:
    `numpy.array_split` of the predictions in order of confidence, so that sizes differ by one at most. Where an edge
    parts predictions of equal confidence, both sides get the same share of correct ones, whatever their order.
    """
    confidence, correct = np.asarray(confidence, np.float64), np.asarray(correct)
    if adaptive:
        _, tied = np.unique(confidence, return_inverse=True)
        correct = (np.bincount(tied, correct) / np.bincount(tied))[tied]
    gaps = np.bincount(
        _bins(confidence, bins, adaptive), correct - confidence
    )  # n_b (accuracy(b) − confidence(b))
    return float(np.abs(gaps).sum() / len(confidence))


def _bins(confidence: np.ndarray, bins: int, adaptive: bool) -> np.ndarray:
    """Return the bin of each prediction (N,), see `calibration_error`."""
    if not adaptive:
        return np.searchsorted(np.linspace(0, 1, bins + 1)[1:-1], confidence, side="right")
    bin_of = np.empty(len(confidence), np.int64)
    for b, members in enumerate(np.array_split(np.argsort(confidence, kind="stable"), bins)):
        bin_of[members] = b
    return bin_of


def calibrated_errors(
    confidence: np.ndarray, bins: int = BINS, draws: int = DRAWS
) -> dict[str, np.ndarray]:
    """Return the ECE and the ACE (draws,) of labels that are drawn from the model's own scores.

    Such a model is perfectly calibrated, yet on N images its errors are not zero: their mean is the floor below which
    a measured error says nothing. confidence: (N,); a drawn label is the predicted class with that probability.
    """
    confidence = np.asarray(confidence, np.float64)
    values, tied, counts = np.unique(confidence, return_inverse=True, return_counts=True)
    share = {}  # (values, bins): a part of the N predictions; equal confidences share their correct answers
    for name, adaptive in (("ece", False), ("ace", True)):
        share[name] = np.zeros((len(values), bins))
        np.add.at(share[name], (tied, _bins(confidence, bins, adaptive)), 1 / len(confidence))
    rng, errors = np.random.default_rng(0), {name: np.empty(draws) for name in share}
    for draw in range(draws):
        gap = rng.binomial(counts, np.minimum(values, 1)) / counts - values
        for name in share:
            errors[name][draw] = np.abs(gap @ share[name]).sum()
    return errors


def top_label(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the confidence (N,) of the most probable class (the first of equals), and whether it is the label."""
    probabilities, labels = _check(probabilities, labels)
    return probabilities.max(1), probabilities.argmax(1) == labels


def nll(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean negative log-likelihood in nats, of probabilities clipped at fp64's epsilon (2.2e-16)."""
    probabilities, labels = _check(probabilities, labels)
    true = probabilities[np.arange(len(labels)), labels]
    return float(-np.log(np.clip(true, np.finfo(np.float64).eps, 1)).mean())


def brier(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the mean squared distance of the probabilities from the label's one-hot vector, in [0, 2]."""
    probabilities, labels = _check(probabilities, labels)
    true = probabilities[np.arange(len(labels)), labels]
    return float(((probabilities**2).sum(1) - 2 * true + 1).mean())


def _check(probabilities: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return (N, C) in fp64 and (N,) in int64. InputError for impossible shapes, labels or rows."""
    probabilities, labels = np.asarray(probabilities, np.float64), np.asarray(labels)
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1] or not probabilities.size:
        raise InputError(
            f"probabilities {probabilities.shape} and labels {labels.shape} are not (N, C) and (N,)"
        )
    require_labels(labels, probabilities.shape[1])
    require_probabilities(probabilities)
    return probabilities, labels.astype(np.int64)


def require_labels(labels: np.ndarray, classes: int) -> None:
    """Raise InputError unless labels (N,) are whole numbers from 0 to `classes` − 1."""
    if labels.min() < 0 or labels.max() >= classes or np.any(labels % 1):
        raise InputError(
            f"labels {labels.min()} to {labels.max()} are not the indices of {classes} classes"
        )


def require_probabilities(probabilities: np.ndarray) -> None:
    """Raise InputError unless the last axis of (..., C) holds probabilities."""
    if not (probabilities.min() >= 0 and np.allclose(probabilities.sum(-1), 1, atol=TOLERANCE)):
        raise InputError(
            "probabilities must be finite, non-negative and sum to one over the classes"
        )


def auroc(uncertainty: np.ndarray, wrong: np.ndarray) -> float:
    """Return how well an uncertainty tells incorrect predictions from correct ones: the area under the ROC curve.

    It is P(a wrong one's uncertainty > a correct one's) + ½ P(equal), in [0, 1].

    uncertainty: (N,). wrong: (N,), whether each prediction is incorrect. NaN where all are correct or all incorrect,
    since there is no pair to order.
    """
    if np.all(wrong) or not np.any(wrong):
        return float("nan")

    # The Mann-Whitney statistic, from ranks: scikit-learn's checks take milliseconds, however few images there are.
    ranks = import_extra("scipy.stats", "study").rankdata(uncertainty)
    of_wrong = ranks[np.asarray(wrong, bool)]
    n = len(of_wrong)
    pairs_in_order = of_wrong.sum() - n * (n + 1) / 2
    return float(pairs_in_order / (n * (len(ranks) - n)))
