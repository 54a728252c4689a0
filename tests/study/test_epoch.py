"""The numbers that one epoch records."""

import numpy as np
import pytest
import torch
from tiny import make_vit
from torch.nn import functional as F

import pvera
from pvera import LoRA, PVeRA
from pvera.backbones import Backbone
from pvera.data.image_folders import ImageSplit
from pvera.study import training
from pvera.study.protocol import CORRECTED
from pvera.study.training import TrainingConfig

CLASSES = 3


@pytest.fixture
def data():
    """Twenty images with labels, which make a batch of sixteen and one of four."""
    source = np.random.default_rng(0)
    split = ImageSplit(
        source.integers(256, size=(20, 32, 32, 3), dtype=np.uint8), source.integers(CLASSES, size=20), []
    )
    return split.data(Backbone(make_vit(), "test", 32, (0.5,) * 3, (0.25,) * 3, "hash"), torch.device("cpu"))


def fit(model, data, rate: float, beta: float = 0.0):
    config = TrainingConfig(epochs=2)
    assert config.batch_size == 16
    (history,) = training.fit(model, data, data, [(rate, rate)], [beta], config, CORRECTED, 0)
    return history


def test_the_training_loss_is_that_of_all_images_whatever_the_size_of_the_last_batch(data):
    model = pvera.adapt(make_vit(), [LoRA(rank=2)], CLASSES)
    with torch.no_grad():
        model.members[0].head.weight.normal_(generator=torch.Generator().manual_seed(0))
        expected = F.cross_entropy(model(data[slice(0, 20)])[0], data.labels)
        halves = [F.cross_entropy(model(data[part])[0], data.labels[part]) for part in (slice(0, 16), slice(16, 20))]
    assert abs(sum(halves) / 2 - expected) > 1e-2, "the mean over batches is another number"
    history = fit(model, data, rate=0.0)
    assert history.train_loss[0] == pytest.approx(float(expected), abs=1e-5)
    assert history.validation_loss[0] == pytest.approx(float(expected), abs=1e-5)


def test_a_kl_term_that_is_not_finite_ends_a_member(data, monkeypatch):
    """Even where the loss is finite: its β may be tiny."""
    model = pvera.adapt(make_vit(), [PVeRA(rank=4)], CLASSES)
    assert fit(model, data, rate=1e-3, beta=1e-6).status == "epoch limit"
    finite = training.step

    def step(*arguments):
        loss, kl = finite(*arguments)
        return torch.stack([loss, kl + torch.inf])

    monkeypatch.setattr(training, "step", step)
    history = fit(pvera.adapt(make_vit(), [PVeRA(rank=4)], CLASSES), data, rate=1e-3, beta=1e-6)
    assert history.status == "diverged" and history.epochs == 1 and not history.best_state
    assert np.isfinite(history.train_loss + history.validation_loss).all()
