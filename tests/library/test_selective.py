"""Risk and coverage by hand, against scikit-learn, and against the closed form of AUGRC."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from torch import tensor
from torchmetrics.functional.classification import binary_specificity_at_sensitivity

from pvera import selective
from pvera.study.baselines import ood_metrics

UNCERTAINTY, WRONG = [0.1, 0.4, 0.2, 0.9], [0, 1, 0, 1]


def test_by_hand():
    np.testing.assert_allclose(selective.selective_risk(UNCERTAINTY, WRONG), [0, 0, 1 / 3, 1 / 2])
    assert selective.aurc(UNCERTAINTY, WRONG) == pytest.approx((1 / 3 + 1 / 2) / 4)
    # Generalised risks 0, 0, 0, 1/4, 1/2: trapezia of width 1/4.
    assert selective.augrc(UNCERTAINTY, WRONG) == pytest.approx((1 / 8 + 3 / 8) / 4)
    assert selective.selective_accuracy(UNCERTAINTY, WRONG, 0.5) == 1
    assert selective.selective_accuracy(UNCERTAINTY, WRONG, 0.75) == pytest.approx(2 / 3)
    assert selective.selective_accuracy(UNCERTAINTY, WRONG, 0.6) == pytest.approx(2 / 3), "rounded up"
    assert selective.selective_accuracy(UNCERTAINTY, WRONG, 1) == 0.5


def test_equals_have_no_order():
    """For two equal images the result is the mean over both orders."""
    first, second = ([1, 2, 2, 3], [0, 1, 0, 0]), ([1, 2, 2, 3], [0, 0, 1, 0])
    for score in (selective.aurc, selective.augrc, selective.selective_accuracy):
        assert score(*first) == score(*second)
    orders = [selective.aurc([1, 2, 3, 4], wrong) for _, wrong in (first, second)]
    assert selective.aurc(*first) == pytest.approx(np.mean(orders))


SAMPLES = st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=2, max_size=60)


@given(SAMPLES)
def test_augrc_is_that_of_traub_et_al(sample):
    """Their closed form: (1 − AUROC) · accuracy · (1 − accuracy) + ½ (1 − accuracy)²."""
    uncertainty, wrong = (np.array(part) for part in zip(*sample))
    accuracy = 1 - wrong.mean()
    auroc = roc_auc_score(wrong, uncertainty) if 0 < accuracy < 1 else 0.5
    expected = (1 - auroc) * accuracy * (1 - accuracy) + (1 - accuracy) ** 2 / 2
    assert selective.augrc(uncertainty, wrong) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("coverage, images, number", [(0.8, 1043, 835), (0.07, 100, 7), (0.05, 1, 1), (1, 3, 3)])
def test_answered_images_are_rounded_up(coverage, images, number):
    wrong = np.arange(images) == number - 1  # the last that is answered is the only error
    accuracy = selective.selective_accuracy(np.arange(images), wrong, coverage)
    assert accuracy == pytest.approx(1 - 1 / number)


def test_specificity_at_sensitivity_against_torchmetrics():
    source = np.random.default_rng(1)
    inside, outside = source.normal(0, 1, 300), source.normal(1.5, 1, 200)
    scores = tensor(1 / (1 + np.exp(np.concatenate([inside, outside]))))
    accepted = tensor([1] * 300 + [0] * 200)
    specificity, _ = binary_specificity_at_sensitivity(scores, accepted, 0.95)
    result = ood_metrics(inside, outside)
    assert result["fpr"] == pytest.approx(1 - float(specificity))
    assert result["auroc"] == pytest.approx((outside[:, None] > inside).mean())
    assert ood_metrics(inside, inside + 100) == {"auroc": 1.0, "fpr": 0.0}
