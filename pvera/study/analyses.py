"""Analyses of trained adapters: Monte Carlo uncertainty, out-of-distribution values, latent maps.

An `Analysis` leaves one record, with its arrays beside it. Its configuration holds hashes of the adapter's file and of
the test images; the adapter's stands in its training's record, so only computing needs the file.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pvera import checkpoint, latents, metrics, uncertainty
from pvera.adapters.base import derive
from pvera.data import inputs, suite
from pvera.data.image_folders import ImageData
from pvera.errors import InputError
from pvera.study import results
from pvera.study.runs import Job, Run
from pvera.study.training import batches, predict


@dataclass(frozen=True, kw_only=True)
class Analysis(Job):
    """One analysis of adapters that trainings have left.

    trained: the trainings; an adapter lies beside the record of each.
    function: (model with the first adapter, analysis, test data by name) -> arrays.
    tested: data sets whose test images it is given.   settings: whatever else influences the numbers.
    """

    trained: tuple[Run, ...]
    function: Callable
    tested: tuple[str, ...]
    settings: dict = field(hash=False)

    @classmethod
    def build(
        cls, trained: Sequence[Run], experiment: str, function: Callable, tested=(), **settings
    ) -> "Analysis":
        """Build the analysis of the adapters that runs left; it stands under the first of them.

        tested: by default the data set of the training.
        """
        first = trained[0]
        shared = {name: getattr(first, name) for name in Job.__dataclass_fields__} | {
            "experiment": experiment
        }
        tested = tuple(tested) or (first.dataset,)
        return cls(
            **shared, trained=tuple(trained), function=function, tested=tested, settings=settings
        )

    @property
    def adapters(self) -> list[Path]:
        """The adapters' files. InputError for one that is gone or was changed."""
        return [results.beside(run.path, results.ADAPTER) for run in self.trained]

    def specified(self) -> dict:
        return super().specified() | {
            "seed": self.seed,
            "adapter_sha256": [
                results.recorded_sha256(run.path, results.ADAPTER) for run in self.trained
            ],
            "tested": self.tested,
            "precision": self.precision,
            "batch": ImageData.evaluation_batch,  # images that share the noise of a draw
            "images": self.images,
            **self.settings,
        }

    def measured(self) -> dict:
        return super().measured() | {
            "data_sha256": inputs.data_sha256(self, self.tested, ("test",)),
        }

    def compute(self, device: str, on_step: Callable[[int, int], None]) -> tuple[dict, dict]:
        """Return the record and the arrays. InputError where an adapter is missing, does not fit, or was trained on
        other splits than lie there now: its test images may then be those that it was trained on."""
        records = [results.read(run.path) for run in self.trained]
        for run, record in zip(self.trained, records, strict=True):
            config = record["config"]
            if config["images"] == self.images and config["data_sha256"] != inputs.data_sha256(
                self
            ):
                raise InputError(
                    f"{run.path}: was trained on other images or splits of {self.dataset} than {self.data_root} holds: "
                    "restore them, or train again with --replace"
                )
        first, *_ = self.adapters
        frozen, tests = inputs.for_run(self, device, self.tested, ("test",))
        data = dict(zip(self.tested, tests, strict=True))
        with checkpoint.load(frozen.model, first).eval() as model:
            arrays = self.function(model, self, data)
        origin = {name: records[0].get(name) for name in ("category", "protocol", "data_copy")}
        return origin | {"config": self.config()}, {"arrays": arrays}


def draw(model, test, k: int, seed: int) -> Iterator[np.ndarray]:
    """Yield the softmax scores (k, images, classes) of k draws of a split, batch by batch."""
    for part in batches(test):
        yield (
            uncertainty.sample(model, test[part], k, derive(seed, "uncertainty", part.start))
            .cpu()
            .numpy()
        )


def uncertainties(model, analysis: Analysis, tests) -> dict[str, np.ndarray]:
    """Compute one pass with the mean, and the `Estimates` of all test images for each number of samples.

    Few samples are the first of the many (Algorithm 1, appendix C).
    """
    test, draws = tests[analysis.dataset], analysis.settings["draws"]
    labels = test.labels.cpu().numpy()
    single_pass = predict(model, test)
    scores = np.concatenate(list(draw(model, test, max(draws), analysis.seed)), 1)
    estimates = {k: uncertainty.estimate(scores[:k], labels) for k in draws}

    arrays = {
        "draws": np.array(draws, np.int16),
        "labels": labels.astype(np.int16),
        "single_confidence": single_pass.max(axis=1).astype(np.float16),
        "single_predicted": single_pass.argmax(axis=1).astype(np.int16),
    }
    for name, kind in uncertainty.STORED.items():
        of_draws = [getattr(each, name) for each in estimates.values()]
        arrays[name] = np.stack(of_draws).astype(kind)
    if analysis.settings["pictures"]:
        arrays |= examples(test, scores, estimates[max(draws)])
    return arrays


def examples(
    test: ImageData, scores: np.ndarray, estimates: uncertainty.Estimates
) -> dict[str, np.ndarray]:
    """Return pixels and scores of an image that is right and of one that is wrong, with intervals of median width.

    scores: (samples, images, classes).
    """
    by_width = np.argsort(estimates.width, kind="stable")
    sides = [by_width[estimates.predicts_label[by_width] == right] for right in (True, False)]
    shown = [images[(len(images) - 1) // 2] for images in sides if len(images)]
    return {
        "example_images": np.array(shown, np.int32),
        "example_pixels": test.images[shown],
        "example_scores": scores[:, shown].swapaxes(0, 1).astype(np.float16),
    }


def out_of_distribution(model, analysis: Analysis, tests) -> dict[str, np.ndarray]:
    """Compute `latents.adaptation` of every test image of each data set: "<data set>_<mean or norm>_steps", (N,).

    `from_steps` returns the values. Nothing pairs them, so they are sorted: a sixth of the space.
    """
    values_of: dict[str, list[np.ndarray]] = {}
    for name, test in tests.items():
        for part in batches(test):
            for kind, values in latents.adaptation(model, test[part]).items():
                values_of.setdefault(f"{name}_{kind}_steps", []).append(values.cpu().numpy())
    return {name: to_steps(np.concatenate(parts)) for name, parts in values_of.items()}


def to_steps(values: np.ndarray) -> np.ndarray:
    """Return sorted values (N,) in fp16, the bits of each less those of the one before: (N,) uint16."""
    return np.diff(np.sort(values).astype(np.float16).view(np.uint16), prepend=np.uint16(0))


def from_steps(steps: np.ndarray) -> np.ndarray:
    """Return the sorted values (N,) of `to_steps`."""
    return np.cumsum(steps, dtype=np.uint16).view(np.float16).astype(np.float64)


def focus(model, analysis: Analysis, tests) -> dict[str, np.ndarray]:
    """Compute how well the length of μ_q finds the patches of an image's object: AUROC per test image, NaN without any.

    A patch is the object's where it covers a tenth of it or more, and another where it covers none of it.
    adapted: with the trained adapter. frozen: with d = 1 and b = 0, which leaves x A on the frozen backbone.
    """
    test, masks = tests[analysis.dataset], suite.RECIPES[analysis.dataset].draw("test").masks
    arrays = {}
    for name in ("adapted", "frozen"):
        for adapter in model.members[0].layers if name == "frozen" else ():
            adapter.d.data.fill_(1.0)
            adapter.b.data.zero_()
        lengths = np.concatenate(
            [latents.lengths(model, test[part]).cpu().numpy() for part in batches(test)]
        )
        n, height, width = lengths.shape
        pixels = n, height, masks.shape[1] // height, width, masks.shape[2] // width
        aurocs = []
        for length, share in zip(lengths, masks[:n].reshape(pixels).mean((2, 4)), strict=True):
            used = (share >= 0.1) | (share == 0)
            aurocs.append(metrics.auroc(length[used], share[used] > 0))
        arrays[name] = np.array(aurocs, np.float32)
    return arrays


def latent_maps(model, analysis: Analysis, tests) -> dict[str, np.ndarray]:
    """Compute `latents.maps` of the first test images of classes that lie evenly among all that occur."""
    settings, test = analysis.settings, tests[analysis.dataset]
    labels = test.labels.cpu().numpy()
    classes, first = np.unique(labels, return_index=True)
    images = first[
        np.linspace(0, len(classes) - 1, min(settings["shown"], len(classes))).round().astype(int)
    ]
    maps = latents.maps(model, test[images], settings["draws"], analysis.seed)
    return {
        "shown": images.astype(np.int32),
        "labels": labels[images].astype(np.int16),
        "pixels": test.images[images],
        "mu": maps.mu.astype(np.float32),
        "draws": maps.draws.astype(np.float32),
        "explained": np.float64(maps.explained),
    }
