"""Monte Carlo inference (Sections 3.3 and 4.3): several forward passes, each with its own draw of z."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pvera import metrics
from pvera.adapters.base import require_finite
from pvera.errors import InputError, import_extra
from pvera.model import AdaptedModel, require_adapted


@torch.no_grad()
def sample(
    model: AdaptedModel, images: Tensor | Mapping[str, Tensor], k: int, seed: int = 0
) -> Tensor:
    """Return the softmax scores (k, batch, classes) of k draws for images or text (see `adapt`).

    The draws follow from `seed` and the whole batch: equal batches have equal draws. The model's mode and its training
    noise stay as they are. Average probabilities over draws, not logits. Beyond the scores, memory does not grow with
    k. InputError for a method without a distribution or k < 1, RuntimeError for a merged model.
    """
    require_adapted(model, "sample")
    if type(k) is not int or k < 1:
        raise InputError(f"k must be a positive integer, not {k!r}")
    for member in model.active:
        require_finite(model.members[member].trained(), "sample()")
    with model.sampling(seed), model.without_kl():
        return torch.stack([model(images).float().softmax(-1) for _ in range(k)])


#: Stored types of `Estimates`; fp16's relative precision suits widths near zero.
STORED: dict[str, type[np.generic]] = dict.fromkeys(
    ("sd", "accuracy", "predicted", "centre", "width"), np.float16
)
STORED |= {"predicted": np.int16}


@dataclass(frozen=True)
class Estimates:
    """Statistics of k draws for each of n images; every field is (n,).

    sd: sample standard deviation (k − 1) of the highest softmax score, whichever class has it (Algorithm 1).
    accuracy: share of the draws whose highest score is the label's (Algorithm 1).
    predicted: the class that most draws predict (appendix); among equals, the one with the highest mean score.
    centre, width: 95 % t-interval of the mean softmax score of `predicted` (`t_interval`).
    """

    labels: np.ndarray
    sd: np.ndarray
    accuracy: np.ndarray
    predicted: np.ndarray
    centre: np.ndarray
    width: np.ndarray

    @property
    def correct(self) -> np.ndarray:
        """Whether more than half of the draws predict the label (Algorithm 1, which swaps its lists' names)."""
        return self.accuracy > 0.5

    @property
    def right(self) -> np.ndarray:
        """Whether the predicted class is the label; intervals are split by it. Unlike `correct`, half of the draws or
        fewer can be enough."""
        return self.predicted == self.labels


def estimate(probabilities: np.ndarray | Tensor, labels: np.ndarray) -> Estimates:
    """Compute `Estimates` from softmax scores (k, n, classes), as `sample` returns them, and labels (n,).

    InputError as `summarise`.
    """
    statistics, labels = summarise(probabilities), np.asarray(labels)
    low, high, votes = (statistics.pop(name) for name in ("low", "high", "votes"))
    metrics.require_labels(labels, votes.shape[1])
    accuracy = votes[np.arange(len(labels)), labels]
    return Estimates(
        labels, accuracy=accuracy, centre=(low + high) / 2, width=high - low, **statistics
    )


def summarise(probabilities: np.ndarray | Tensor) -> dict[str, np.ndarray]:
    """Compute what needs no labels of softmax scores (k, n, classes): `sd` and `predicted` as in `Estimates`; `low` and
    `high`, the bounds of its interval; and `votes` (n, classes), the share of draws that predict each class.

    InputError for fewer than two draws, which have no spread, and for scores that are no probabilities, such as logits.
    """
    probabilities = np.asarray(probabilities, np.float64)
    if len(probabilities) < 2:
        raise InputError("one draw has no spread: take k = 2 or more")
    metrics.require_probabilities(probabilities)
    counts = (probabilities.argmax(2)[..., None] == np.arange(probabilities.shape[2])).sum(0)
    # A mean is at most one, so it decides among equal counts alone.
    predicted = (counts + 0.5 * probabilities.mean(0)).argmax(1)
    low, high = t_interval(np.take_along_axis(probabilities, predicted[None, :, None], 2)[..., 0])
    spread = probabilities.max(2).std(0, ddof=1)
    return {
        "sd": spread,
        "predicted": predicted,
        "low": low,
        "high": high,
        "votes": counts / len(probabilities),
    }


def t_interval(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return low and high (...) of the 95 % t-interval of the *mean* of k draws (k, ...): mean ± t(k − 1) · s / √k.

    The interval is for the mean of infinitely many draws, so its width falls as 1/√k; it does not describe the scatter
    of single draws. It assumes normal draws. Softmax scores near 0 and 1 are skewed, and the bounds are not clipped:
    they may lie outside [0, 1]. Equal draws give a width of zero up to rounding.
    """
    samples = np.asarray(samples, np.float64)
    k, mean = len(samples), samples.mean(0)
    half = (
        import_extra("scipy.stats", "study").t.ppf(0.975, k - 1)
        * samples.std(0, ddof=1)
        / np.sqrt(k)
    )
    return mean - half, mean + half
