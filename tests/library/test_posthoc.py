"""Temperature scaling against scikit-learn, last-layer Laplace against the exact Hessian, entropies against SciPy."""

import numpy as np
import torch
from scipy.stats import entropy
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from torch.nn import functional as F

from pvera import metrics, posthoc, uncertainty


def test_temperature_against_scikit_learn():
    source = np.random.default_rng(3)
    images = source.normal(size=(300, 6))
    labels = np.arange(300) % 3
    images[np.arange(300), labels] += 1
    model = LogisticRegression(C=100).fit(images[:40], labels[:40])
    calibrated = CalibratedClassifierCV(FrozenEstimator(model), method="temperature").fit(images[40:], labels[40:])
    probabilities = model.predict_proba(images[40:])
    T = posthoc.temperature(probabilities, labels[40:])
    np.testing.assert_allclose(posthoc.scaled(probabilities, T), calibrated.predict_proba(images[40:]), atol=1e-3)


def test_temperature_of_scores_that_are_zero():
    """A label of probability zero has a finite loss, and the order of classes is kept."""
    probabilities = np.array([[1.0, 0, 0], [0.2, 0.8, 0], [0.5, 0, 0.5]])
    T = posthoc.temperature(probabilities, [1, 1, 0])
    assert np.isfinite(T) and (posthoc.scaled(probabilities, T).argmax(1) == [0, 1, 0]).all()


def head(alike: bool):
    """Return a head of 3 classes on 4 features, and training features, optionally all with the same prediction."""
    source = torch.Generator().manual_seed(0)
    features = torch.randn(30, 4, generator=source, dtype=torch.float64)
    weight = torch.zeros(3, 4, dtype=torch.float64) if alike else torch.randn(3, 4, generator=source).double()
    return weight, torch.tensor([0.5, -1.0, 0.2], dtype=torch.float64), features


def test_laplace_against_the_exact_hessian():
    """With one prediction for all images, or with one image, the Kronecker product is exact."""
    for alike, count in ((True, 30), (False, 1)):
        weight, bias, features = head(alike)
        features = features[:count]
        labels = torch.zeros(count, dtype=torch.long)

        def loss(parameters):
            full = parameters.view(3, 5)
            return F.cross_entropy(F.linear(features, full[:, :4], full[:, 4]), labels, reduction="sum")

        parameters = torch.cat([weight, bias[:, None]], 1).flatten()
        hessian = torch.autograd.functional.hessian(loss, parameters)  # a softmax's Hessian does not depend on labels
        prior = 0.7
        covariance = torch.linalg.inv(hessian + prior * torch.eye(15))
        test = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)).double()
        jacobian = torch.einsum("cd,ni->ncdi", torch.eye(3).double(), F.pad(test, (0, 1), value=1.0)).flatten(2)
        expected = torch.einsum("ncp,pq,ncq->nc", jacobian, covariance, jacobian)
        posterior = posthoc.LastLayer.fit(weight, bias, features)
        mean, variance = posterior.logits(test, prior)
        torch.testing.assert_close(variance, expected)
        torch.testing.assert_close(mean, F.linear(test, weight, bias))
        expected = (mean / (1 + np.pi / 8 * variance).sqrt()).softmax(1)
        np.testing.assert_allclose(posterior.predict(test, prior), expected)


def test_the_prior_is_the_one_of_the_lowest_loss():
    weight, bias, features = head(alike=False)
    posterior = posthoc.LastLayer.fit(5 * weight, bias, features)
    labels = np.arange(30) % 3  # arbitrary labels, so the head is overconfident
    prior = posterior.choose_prior(features, labels)
    losses = {tau: metrics.nll(posterior.predict(features, tau), labels) for tau in posthoc.PRIOR_PRECISIONS}
    assert losses[prior] == min(losses.values()) and prior < max(losses)


def test_entropies_against_scipy():
    drawn = np.random.default_rng(0).dirichlet(np.ones(4), (6, 10))
    drawn[0, 0] = [1, 0, 0, 0]
    parts = uncertainty.decompose(drawn)
    np.testing.assert_allclose(parts["total"], entropy(drawn.mean(0), axis=1))
    np.testing.assert_allclose(parts["expected"], entropy(drawn, axis=2).mean(0))
    divergences = entropy(drawn, drawn.mean(0), axis=2)  # mutual information is the mean KL from the mean
    np.testing.assert_allclose(parts["mutual"], divergences.mean(0), atol=1e-12)
    assert (uncertainty.decompose(drawn[:1])["mutual"] == 0).all()
