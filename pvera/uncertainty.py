"""Monte Carlo inference (Sections 3.3 and 4.3): several forward passes, each with its own z."""

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
    """Sample softmax scores.

    The model's mode and its training noise stay as they are. Average probabilities over samples,
    not logits. Beyond the scores, memory does not grow with k.

    Args:
        model: The adapted model.
        images: A batch of images or texts (see `adapt`).
        k: Number of samples.
        seed: The samples follow from it and from the whole batch: equal batches have equal samples.

    Returns:
        (k, batch, classes), or (k, members, batch, classes) of a grid.

    Raises:
        InputError: The method has no distribution.
        RuntimeError: The model is merged.
    """
    require_adapted(model, "sample")
    for m in model.active:
        require_finite(model.members[m].trainable_tensors(), "sample()")
    with model.sampling(seed), model.without_kl():
        return torch.stack([model(images).float().softmax(-1) for _ in range(k)])


#: Types in which result files store `Estimates`; fp16's relative precision suits widths near 0.
STORED: dict[str, type[np.generic]] = {
    "sd": np.float16,
    "accuracy": np.float16,
    "predicted": np.int16,
    "centre": np.float16,
    "width": np.float16,
}


@dataclass(frozen=True)
class Estimates:
    """Statistics of k samples for each of n images; every field is (n,)."""

    labels: np.ndarray
    #: Standard deviation (k − 1) of the highest softmax score, whichever class has it (Algorithm
    #: 1).
    sd: np.ndarray
    #: Share of the samples whose highest score is the label's (Algorithm 1).
    accuracy: np.ndarray
    #: The class that most samples predict (appendix); among equals, the one with the highest mean
    #: score.
    predicted: np.ndarray
    #: Centre of the 95 % t-interval of the mean softmax score of `predicted` (`t_interval`).
    centre: np.ndarray
    #: Width of that interval.
    width: np.ndarray

    @property
    def most_are_correct(self) -> np.ndarray:
        """Whether more than half of the samples predict the label.

        So does Algorithm 1, which swaps the names of its lists.
        """
        return self.accuracy > 0.5

    @property
    def predicts_label(self) -> np.ndarray:
        """Whether the predicted class is the label, by which intervals are split.

        Half of the samples or fewer can be enough for it.
        """
        return self.predicted == self.labels


def estimate(probabilities: np.ndarray | Tensor, labels: np.ndarray) -> Estimates:
    """Compute `Estimates`.

    Args:
        probabilities: Softmax scores (k, n, classes), as `sample` returns them.
        labels: (n,).

    Raises:
        InputError: As `summarise`, or labels are impossible.
    """
    statistics = summarise(probabilities)
    low = statistics["low"]
    high = statistics["high"]
    votes, labels = metrics.checked(statistics["votes"], labels)
    return Estimates(
        labels=labels,
        sd=statistics["sd"],
        accuracy=votes[np.arange(len(labels)), labels],
        predicted=statistics["predicted"],
        centre=(low + high) / 2,
        width=high - low,
    )


def summarise(probabilities: np.ndarray | Tensor) -> dict[str, np.ndarray]:
    """Compute what needs no labels.

    Args:
        probabilities: Softmax scores (k, n, classes).

    Returns:
        `sd` and `predicted` as in `Estimates`; `low` and `high`, the bounds of its interval; and
        `votes` (n, classes), the share of samples that predict each class.

    Raises:
        InputError: There are fewer than two samples, or the scores are no probabilities.
    """
    if isinstance(probabilities, Tensor):
        probabilities = probabilities.detach().double().cpu()
    probabilities = np.asarray(probabilities, np.float64)
    k = len(probabilities)
    if k < 2:
        raise InputError("one sample has no spread: use k = 2 or more")
    metrics.require_probabilities(probabilities)

    classes = np.arange(probabilities.shape[2])
    counts = (probabilities.argmax(2)[..., None] == classes).sum(0)  # (n, classes)
    # Half a mean is below one, so it decides among equal counts alone.
    predicted = (counts + 0.5 * probabilities.mean(0)).argmax(1)
    scores = np.take_along_axis(probabilities, predicted[None, :, None], 2)[..., 0]  # (k, n)
    low, high = t_interval(scores)
    return {
        "sd": probabilities.max(2).std(0, ddof=1),
        "predicted": predicted,
        "low": low,
        "high": high,
        "votes": counts / k,
    }


def t_interval(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return low and high (...) of the 95 % t-interval of the *mean* of k samples (k, ...).

        mean ± t(k − 1) · s / √k

    The interval is for the mean of infinitely many samples, so its width falls as 1/√k; it does
    not describe the scatter of single samples. It assumes a normal distribution. Softmax scores
    near 0 and 1 are skewed, and the bounds are not clipped: they may lie outside [0, 1]. Equal
    samples give a width of zero up to rounding.
    """
    samples = np.asarray(samples, np.float64)
    k = len(samples)
    mean = samples.mean(0)
    # Imported here: the library needs no SciPy.
    quantile = import_extra("scipy.stats", "study").t.ppf(0.975, k - 1)
    half = quantile * samples.std(0, ddof=1) / np.sqrt(k)
    return mean - half, mean + half
