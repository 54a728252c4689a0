"""What is computed of trained adapters: Monte Carlo uncertainty, out-of-distribution values, latent maps.

An `Analysis` goes the way of a `runs.Run`: it hashes, travels to worker processes and leaves one record, with
its arrays beside it. Its configuration holds hashes of the adapter's file and of the test images.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch

from pvera import checkpoint, latents, uncertainty
from pvera.data import image_folders
from pvera.errors import InputError
from pvera.files import sha256
from pvera.seeding import derive
from pvera.study import results, runs, training
from pvera.study.runs import Run

BATCH = 256  # images that share the noise of a draw

Report = Callable[[float], None]  # takes the share of the work that is done


@dataclass(frozen=True)
class Analysis(Run):
    """One experiment of `results.ANALYSES` on one adapter of the benchmark.

    tested: data sets whose test images it is given.   settings: what else influences the numbers.
    """

    tested: tuple[str, ...] = ()
    settings: dict = field(default_factory=dict, hash=False)

    @classmethod
    def of(cls, run: Run, experiment: str, tested: tuple[str, ...], **settings) -> "Analysis":
        """Of the adapter that `run`, one of the benchmark's, leaves."""
        return cls(**vars(run) | {"experiment": experiment}, tested=tuple(tested), settings=settings)

    steps: ClassVar[int] = 100
    waits: ClassVar[bool] = False

    @property
    def trained(self) -> Path:
        """The record of the training; the adapter lies beside it."""
        return replace(self, experiment="benchmark").path

    @property
    def adapter(self) -> Path:
        """The adapter's file. InputError says what makes it."""
        if not self.trained.exists():
            raise InputError(
                f"there is no adapter {self.trained.with_suffix(results.ADAPTER)}: first run "
                f"python experiments/train.py --profile {self.profile}"
            )
        return results.beside(self.trained, results.ADAPTER)

    def state(self) -> str:
        """'missing', 'done', or 'different': of another adapter, other data or settings. InputError without
        an adapter."""
        return self.adapter and super().state()

    def config(self) -> dict:
        frozen = self.frozen()
        shortened = {} if self.images is None else {"images": self.images}
        return {
            "seed": self.seed,
            "adapter_sha256": sha256(self.adapter),
            "weights_sha256": frozen.weights_sha256,
            "image_size": frozen.image_size,
            "tested": self.tested,
            "data_sha256": image_folders.digest(_tests(self.data_root, self.tested, frozen.image_size, self.images)),
            "precision": self.precision,
            "batch": BATCH,
            **self.settings,
            **shortened,
        }

    def execute(self, device: str = "cpu", on_step: Callable[[int], None] = lambda step: None) -> None:
        """Compute, and write the result. InputError where the adapter is missing or does not fit."""
        started = time.perf_counter()
        config = self.config()
        source = results.read(self.trained)
        frozen = self.frozen()
        frozen.model.to(device)
        splits = _tests(self.data_root, self.tested, frozen.image_size, self.images)
        tests = {
            name: split.data(frozen, torch.device(device), in_memory=False)
            for name, split in zip(self.tested, splits, strict=True)
        }
        model = checkpoint.load(frozen.model, self.adapter).eval()
        try:
            compute = {"uncertainty": _uncertainty, "out_of_distribution": _values, "latents": _latents}
            with training.deterministic(self.deterministic), training.autocast(device, self.precision):
                found = compute[self.experiment](model, self, tests, lambda share: on_step(round(share * self.steps)))
                environment = runs.environment(device)
        finally:
            model.unload()
        results.write(
            self.path,
            {
                "schema": results.SCHEMA,
                **{name: getattr(self, name) for name in results.IDENTITY},
                **{name: source.get(name) for name in ("category", "protocol", "data_copy")},
                "config": config,
                "config_hash": results.config_hash(config),
                "environment": environment,
                "cost": {
                    "wall_seconds": round(time.perf_counter() - started, 2),
                    "peak_memory_mb": runs.peak_memory(device),
                },
            },
            arrays=found,
        )


def _uncertainty(model, analysis: Analysis, tests, report: Report) -> dict[str, np.ndarray]:
    """For each number of draws the `Estimates` of all test images, and on some of them whether the interval
    holds the mean of many further draws; of an image that is right and one that is wrong, pixels and all
    scores.

    Few draws are the first of the many. The two images are those with the interval of median width.
    """
    settings, test = analysis.settings, tests[analysis.dataset]
    labels, draws = test.labels.cpu().numpy(), settings["draws"]
    starts = range(0, len(test), BATCH)
    scores = []
    for start in starts:
        part = slice(start, min(start + BATCH, len(test)))
        drawn = uncertainty.sample(model, test[part], max(draws), derive(analysis.seed, "uncertainty", start))
        scores.append(drawn.cpu().numpy())
        report((start / BATCH + 1) / (len(starts) + 1))
    estimates = {
        k: uncertainty.concatenate(
            [
                uncertainty.estimate(drawn[:k], labels[start : start + BATCH])
                for start, drawn in zip(starts, scores, strict=True)
            ]
        )
        for k in draws
    }
    of_truth = np.unique(np.linspace(0, len(test) - 1, settings["truth_images"]).round().astype(int))
    many = uncertainty.sample(model, test[of_truth], settings["truth_draws"], derive(analysis.seed, "truth"))
    truth = many.double().mean(0).cpu().numpy()
    covered = []
    for found in estimates.values():
        of_class = truth[np.arange(len(of_truth)), found.predicted[of_truth]]
        covered.append((found.low[of_truth] <= of_class) & (of_class <= found.high[of_truth]))
    most = estimates[max(draws)]
    examples = [image for image in (_median(most, right) for right in (True, False)) if image is not None]
    return {
        "draws": np.array(draws, np.int16),
        "labels": labels.astype(np.int16),
        **{
            name: np.stack([getattr(found, name) for found in estimates.values()]).astype(kind)
            for name, kind in uncertainty.STORED.items()
        },
        "truth_images": of_truth.astype(np.int32),
        "covered": np.stack(covered),
        "example_images": np.array(examples, np.int32),
        "example_pixels": test.images[examples],
        "example_scores": np.stack([scores[i // BATCH][:, i % BATCH] for i in examples]).astype(np.float16),
    }


def _median(found: uncertainty.Estimates, right: bool) -> int | None:
    """The image of median interval width among those that are right, or wrong; None where there is none."""
    images = np.flatnonzero(found.right == right)
    if not len(images):
        return None
    return int(images[np.argsort(found.width[images], kind="stable")[(len(images) - 1) // 2]])


def _values(model, analysis: Analysis, tests, report: Report) -> dict[str, np.ndarray]:
    """`latents.adaptation` of every test image of each data set: "<data set>_<mean or norm>", (N,)."""
    found: dict[str, list[np.ndarray]] = {}
    total, done = sum(len(test) for test in tests.values()), 0
    for name, test in tests.items():
        for start in range(0, len(test), BATCH):
            part = slice(start, min(start + BATCH, len(test)))
            for kind, values in latents.adaptation(model, test[part]).items():
                found.setdefault(f"{name}_{kind}", []).append(values.cpu().numpy())
            done += part.stop - part.start
            report(done / total)
    return {name: np.concatenate(parts) for name, parts in found.items()}


def _latents(model, analysis: Analysis, tests, report: Report) -> dict[str, np.ndarray]:
    """`latents.maps` of the first test images of classes that lie evenly among all that occur, and their
    pixels."""
    settings, test = analysis.settings, tests[analysis.dataset]
    labels = test.labels.cpu().numpy()
    classes, first = np.unique(labels, return_index=True)
    images = first[np.linspace(0, len(classes) - 1, min(settings["shown"], len(classes))).round().astype(int)]
    found = latents.maps(model, test[images], settings["draws"], analysis.seed)
    report(1.0)
    return {
        "shown": images.astype(np.int32),
        "labels": labels[images].astype(np.int16),
        "pixels": test.images[images],
        "mu": found.mu.astype(np.float32),
        "draws": found.draws.astype(np.float32),
        "explained": np.float64(found.explained),
    }


@lru_cache(maxsize=1)
def _tests(root: str, names: tuple[str, ...], size: int, images: int | None) -> tuple[image_folders.ImageSplit, ...]:
    """The test splits of `names`."""
    return tuple(image_folders.load_split(root, name, "test", size).first(images) for name in names)


# How notebooks read it
