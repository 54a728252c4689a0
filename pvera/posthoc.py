"""Uncertainty of a finished classifier, without another training: temperature scaling and last-layer Laplace."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from pvera.errors import optional

#: Temperatures that `temperature` chooses from, and prior precisions that are tried for `LastLayer`.
TEMPERATURES = 1e-2, 1e2
PRIOR_PRECISIONS = tuple(10.0**e for e in range(-4, 5))


def temperature(probabilities: np.ndarray, labels: np.ndarray) -> float:
    """Return the temperature T > 0 with the lowest negative log-likelihood of `scaled` (Guo et al., ICML 2017).

    probabilities: (N, C) of a validation split, a softmax or a mean of several; labels: (N,).
    """
    log_p, target = torch.from_numpy(_logs(probabilities)), torch.from_numpy(np.asarray(labels, np.int64))

    def loss(log_temperature: float) -> float:
        return F.cross_entropy(log_p / np.exp(log_temperature), target).item()

    # The loss is convex in 1/T, so it falls and then rises in log T.
    minimise = optional("scipy.optimize", "study").minimize_scalar
    return float(np.exp(minimise(loss, bounds=np.log(TEMPERATURES), method="bounded", options={"xatol": 1e-6}).x))


def scaled(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Return the softmax of log p / T, of probabilities (N, C); it keeps the order of the classes.

    For a softmax this divides the logits by T; of draws it scales the mean.
    """
    if temperature == 1:
        return np.asarray(probabilities, np.float64)
    return torch.from_numpy(_logs(probabilities) / temperature).softmax(1).numpy()


def _logs(probabilities: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(np.asarray(probabilities, np.float64), np.finfo(np.float64).tiny))


@dataclass(frozen=True)
class LastLayer:
    """A Laplace approximation of a linear head's posterior (Daxberger et al., NeurIPS 2021).

    The Hessian of the cross entropy over N images is approximated by a Kronecker product (Ritter et al., ICLR 2018):

        A = Σ φ φᵀ,  φ the head's input with a one appended       (D + 1, D + 1)
        G = 1/N Σ (diag p − p pᵀ)                                 (C, C)

    The posterior's covariance is (A ⊗ G + τ I)⁻¹, τ the precision of the prior. A and G are kept as eigenvalues and
    eigenvectors, so each τ has a closed form.
    """

    weight: Tensor
    bias: Tensor
    values_A: Tensor
    vectors_A: Tensor
    values_G: Tensor
    vectors_G: Tensor

    @classmethod
    def fit(cls, weight: Tensor, bias: Tensor, features: Tensor) -> "LastLayer":
        """Fit the approximation of a head, weight (C, D) and bias (C,), to the training images' features (N, D)."""
        weight, bias, features = (tensor.detach().double() for tensor in (weight, bias, features))
        inputs = F.pad(features, (0, 1), value=1.0)
        p = F.linear(features, weight, bias).softmax(-1)
        values_A, vectors_A = torch.linalg.eigh(inputs.T @ inputs)
        values_G, vectors_G = torch.linalg.eigh((torch.diag(p.sum(0)) - p.T @ p) / len(p))
        return cls(weight, bias, values_A.clamp(min=0), vectors_A, values_G.clamp(min=0), vectors_G)

    def logits(self, features: Tensor, prior_precision: float) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance of the logits, (N, C) each, of features (N, D)."""
        features = features.double()
        squares = (F.pad(features, (0, 1), value=1.0) @ self.vectors_A).square()  # (N, D + 1)
        inverse = 1 / (torch.outer(self.values_A, self.values_G) + prior_precision)  # (D + 1, C)
        return F.linear(features, self.weight, self.bias), squares @ inverse @ self.vectors_G.square().T

    def predict(self, features: Tensor, prior_precision: float) -> np.ndarray:
        """Return the predictive probabilities (N, C): softmax of mean / √(1 + π/8 · variance) (MacKay, 1992)."""
        mean, variance = self.logits(features, prior_precision)
        return (mean / (1 + torch.pi / 8 * variance).sqrt()).softmax(-1).cpu().numpy()

    def choose_prior(self, features: Tensor, labels: np.ndarray) -> float:
        """Return the prior precision of the lowest negative log-likelihood on validation features (N, D)."""
        rows = np.arange(len(labels))
        logs = {tau: _logs(self.predict(features, tau))[rows, labels].mean() for tau in PRIOR_PRECISIONS}
        return max(logs, key=logs.__getitem__)
