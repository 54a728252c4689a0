"""A model on all samples of a split: losses and accuracies of a grid, scores of one member."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from pvera.adapters.base import full_precision
from pvera.data.image_splits import ImageData
from pvera.data.inputs import Data
from pvera.model import AdaptedModel
from pvera.study.optimization import classification_loss
from pvera.study.protocol import Protocol
from pvera.study.stopping import EpochNumbers


class Features:
    """Precomputed class tokens (N, dim) instead of images, for linear probing."""

    evaluation_batch = ImageData.evaluation_batch

    def __init__(self, model: AdaptedModel, data: Data):
        with torch.inference_mode():
            parts = [model.features(data[part])[0] for part in batches(data)]
        # Cloned outside inference mode, so that autograd may read them.
        self.features = full_precision(torch.cat(parts)).clone()
        self.labels = data.labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index) -> Tensor:
        return self.features[index]


#: A split that can be evaluated: labels (N,), and `data[index]` is a batch.
DataOrFeatures = Data | Features


def autocast(device: str, precision: str) -> torch.autocast:
    """Return a context for trainings and predictions that computes in a precision.

    Nothing is cached, as the trained weights change inside.
    """
    kind, dtype = torch.device(device).type, getattr(torch, precision)
    return torch.autocast(kind, dtype, enabled=dtype != torch.float32, cache_enabled=False)


@torch.inference_mode()
def validate(
    model: AdaptedModel, forward: Callable[..., Tensor], data: DataOrFeatures, protocol: Protocol
) -> EpochNumbers:
    """Return loss and accuracy of every active member on a split, PVeRA with its mean."""
    model.eval()
    device = data.labels.device
    loss = torch.zeros(len(model.active), device=device)
    correct = torch.zeros(len(model.active), dtype=torch.int64, device=device)
    with model.without_kl():
        for part in batches(data):
            logits, labels = forward(data[part]), data.labels[part]
            loss += len(labels) * classification_loss(logits, labels, protocol)
            correct += (logits.argmax(-1) == labels).sum(1)
    return {
        "validation_loss": (loss / len(data)).tolist(),
        "validation_accuracy": (correct / len(data)).tolist(),
    }


def predict(model: AdaptedModel, data: Data) -> np.ndarray:
    """Return softmax scores (N, classes), fp32, of the one active member.

    It is merged first where it can be.
    """
    with model.inference():
        scores = [model(data[part]).float().softmax(-1) for part in batches(data)]
    # A grid has a dimension of members: (1, N, classes).
    joined = torch.cat(scores, dim=-2)
    return (joined[0] if model.has_member_axis else joined).cpu().numpy()


def batches(data: DataOrFeatures) -> list[slice]:
    """Return the parts of a split that are evaluated one after the other."""
    size = data.evaluation_batch
    return [slice(start, start + size) for start in range(0, len(data), size)]
