"""The work of trainings in counted multiply-adds, and the hours that follow from a speed.

A training step counts twice its forward pass: the frozen weights have no gradient, so the backward pass has one product
where the forward pass has one; those of trained weights are left out. Validation and test count once. Linear probing
computes the backbone's features once.
"""

import time
from datetime import timedelta
from functools import cache

import numpy as np
import torch
from torch import nn

from pvera import adapt, backbones, cost
from pvera.adapters import Method
from pvera.data import tasks, vtab
from pvera.data.image_folders import ImageSplit
from pvera.errors import InputError
from pvera.study.markdown import table
from pvera.study.runs import Run
from pvera.study.training import TrainingConfig, autocast, fit

EPOCHS = 100  # of a training, assumed
#: Multiply-adds per second of dense bf16 products with fp32 sums: half of the operations in the makers' data sheets.
PEAKS = {"H100 SXM": 494.5e12, "A100": 156.0e12, "RTX 4090": 82.6e12}
SHARES = (0.4, 0.3)  # of the peak, assumed
PASS = 1 / 3  # of a training step: the share of its forward pass


@cache
def frozen(backbone: str, image_size: int | None) -> tuple[nn.Module, int] | None:
    """Return the shapes of a backbone and its multiply-adds for one image; None for texts, which differ in length."""
    try:
        vit = backbones.shapes(backbone, image_size)
        return vit, cost.multiply_adds(vit, cost.one_image(vit))
    except (InputError, AttributeError):
        return None


def images(one: Run) -> tuple[int, int, int]:
    """Return the number of images that a run trains on, validates on and tests."""
    described, task = tasks.manifest(one.data_root, one.dataset), tasks.task(one.dataset, one.data_root)
    train, validation = vtab.TRAINING["train800"], vtab.TRAINING["val200"]
    if described:
        train, validation = described["images"]["train"], described["images"]["validation"]
    return tuple(min(count, one.images or count) for count in (train, validation, task.test_images))


@cache
def forward(backbone: str, image_size: int | None, method: Method, sampled: bool) -> int:
    """Return the multiply-adds of one image."""
    vit, bare = frozen(backbone, image_size)
    return bare + cost.adapter_multiply_adds(vit, method, sampled)


def epoch(one: Run) -> float:
    """Return the multiply-adds of an epoch, 0 for linear probing; for texts the number of members."""
    if frozen(one.backbone, one.image_size) is None:
        return float(len(one.candidates))
    if one.method == "linear":
        return 0.0
    train, validation, _ = images(one)
    total = 0
    for candidate in one.candidates:
        total += 2 * train * forward(one.backbone, one.image_size, candidate.method, True)
        total += validation * forward(one.backbone, one.image_size, candidate.method, False)
    return float(total)


def work(one: Run) -> float:
    """Return the multiply-adds of a training with `EPOCHS` epochs, and of the test of the chosen member."""
    passes = [forward(one.backbone, one.image_size, candidate.method, False) for candidate in one.candidates]
    tested = images(one) if one.method == "linear" else images(one)[2:]
    trained = min(EPOCHS, one.training.epochs) * epoch(one)
    return trained + sum(tested) * sum(passes) / len(passes)  # the mean over what may be chosen


def calculated(runs: list[Run]) -> str:
    """Return a table of the hours of trainings on three cards, by calculation."""
    first = runs[0].backbone
    benchmark = [one for one in runs if one.experiment == "benchmark"]
    parts = {
        f"Table 1: benchmark on {first}": [one for one in benchmark if one.backbone == first],
        "benchmark on all backbones": benchmark,
        "all trainings of images": runs,
    }
    lines = []
    for name, part in parts.items():
        total = sum(work(one) for one in part)
        spans = [[total / (share * peak) / 3600 for share in SHARES] for peak in PEAKS.values()]
        lines.append([name, str(len(part)), *("{:,.0f} to {:,.0f}".format(*span) for span in spans)])
    return table(["Hours, by calculation", "Runs", *PEAKS], lines, "lr" + "r" * len(PEAKS))


def epoch_seconds(one: Run, device: str) -> float:
    """Return the seconds of an epoch, by the seconds that all members train on a batch, on random weights and black
    images."""
    frozen = backbones.load(one.backbone, pretrained=False, image_size=one.image_size)
    size, count = one.training.batch_size, len(one.candidates)
    frozen.model.to(device)
    pixels = np.zeros((size, frozen.image_size, frozen.image_size, 3), np.uint8)
    train, validation = (ImageSplit(pixels[:n], np.arange(n), []).data(frozen, torch.device(device)) for n in (size, 1))
    model = adapt(frozen.model, [candidate.method for candidate in one.candidates], size)
    rates, betas, config, ends = [(1e-4, 1e-4)] * count, [0.0] * count, TrainingConfig(batch_size=size, epochs=2), []
    with autocast(device, one.precision):  # the first epoch warms up
        fit(model, train, validation, rates, betas, config, one.protocol, 0, lambda _: ends.append(time.perf_counter()))
    trained, validated, _ = images(one)
    return (trained + PASS * validated) * (ends[1] - ends[0]) / (size + PASS)


def duration(epoch: float, config: TrainingConfig, trainings: int = 1) -> str:
    """Return how long trainings take whose epochs take `epoch` seconds: if nothing improves after the first epoch, and
    if patience never runs out."""
    epochs = min(config.patience + 1, config.epochs), config.epochs
    least, most = (timedelta(seconds=round(trainings * count * epoch)) for count in epochs)
    return f"{least} to {most} (h:mm:ss), as patience ends them"
