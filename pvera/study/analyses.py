"""Analyses of trained adapters: uncertainty, and what latents say of images and their objects.

An `Analysis` leaves one record, with its arrays. Its configuration holds hashes of the adapter's
file and of the test images. That of the adapter stands in its training's record, so only computing
needs the file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pvera import checkpoint, latents, metrics, uncertainty
from pvera.data import inputs, suite
from pvera.data.image_splits import ImageData
from pvera.errors import InputError
from pvera.model import AdaptedModel
from pvera.seeds import derive
from pvera.study import results
from pvera.study.jobs import Job, Run
from pvera.study.prediction import batches, predict

#: Test data by name of the data set.
TestSets = Mapping[str, ImageData]
#: A function from the model with the first adapter, the analysis and its `TestSets` to arrays by
#: name.
ComputeArrays = Callable[..., dict[str, np.ndarray]]


@dataclass(frozen=True, kw_only=True)
class Analysis(Job):
    """One analysis of adapters that trainings have left."""

    #: The trainings whose adapters it reads.
    runs: tuple[Run, ...]
    function: ComputeArrays
    #: Data sets whose test images the function is given.
    tested: tuple[str, ...]
    #: Whatever else influences the numbers. Committed records and arrays call samples "draws".
    settings: dict = field(hash=False)  # a dictionary has no hash; equality compares it

    @property
    def adapters(self) -> list[Path]:
        """The adapters' files. InputError for one that is gone or was changed."""
        return [results.kept_file(run.path, results.ADAPTER_SUFFIX) for run in self.runs]

    def known_config(self) -> dict:
        """Add the adapters' hashes and the settings."""
        hashes = [results.recorded_sha256(run.path, results.ADAPTER_SUFFIX) for run in self.runs]
        config = {
            "seed": self.seed,
            "adapter_sha256": hashes,
            "tested": self.tested,
            "precision": self.precision,
            "batch": ImageData.evaluation_batch,  # images that share the noise of a sample
            "images": self.images,
        }
        return super().known_config() | config | self.settings

    def data_config(self) -> dict:
        """Add the hash of the test images."""
        test_sha256 = inputs.data_sha256(self.data_key(self.tested, ("test",)))
        return super().data_config() | {"data_sha256": test_sha256}

    def compute(self, device: str) -> tuple[dict, dict]:
        """Return this analysis' part of the record, and {"arrays": ...} with what it computed.

        Raises:
            InputError: An adapter is missing, does not fit, or was trained on other splits than
                the data set has: the test images may then be those that it was trained on.
        """
        for run in self.runs:
            self._require_same_splits(run)
        first, *_ = self.adapters
        frozen, tests = inputs.load_for_job(self.data_key(self.tested, ("test",)), device)
        with checkpoint.load(frozen.model, first).eval() as model:
            arrays = self.function(model, self, dict(zip(self.tested, tests, strict=True)))

        record = results.read_record(self.runs[0].path)
        described = {
            "category": record.category,
            "protocol": record.protocol,
            "data_copy": record.data_copy,
            "config": self.config(),
        }
        return described, {"arrays": arrays}

    def _require_same_splits(self, run: Run) -> None:
        config = results.read_record(run.path).config
        if config["data_sha256"] != inputs.data_sha256(self.data_key()):
            raise InputError(
                f"{run.path}: was trained on other images or splits of {self.dataset} than "
                f"{self.data_root} holds: restore them, or train again with --replace"
            )


def analysis_of(
    runs: Sequence[Run],
    name: str,
    function: ComputeArrays,
    tested: Sequence[str] | None = None,
    **settings,
) -> Analysis:
    """Build an analysis of the adapters that runs left, in a folder named after both.

    Args:
        runs: The trainings. The analysis has data set, method and seed of the first.
        name: Key of the analysis; its folder is "<name>_<folder of the runs>", and without that of
            the benchmark.
        function: Computes the arrays.
        tested: Data sets; by default that of the runs.
        settings: Whatever else influences the numbers.
    """
    first = runs[0]
    folder = name if first.folder == "benchmark" else f"{name}_{first.folder}"
    shared = {key: getattr(first, key) for key in Job.__dataclass_fields__}
    return Analysis(
        **shared | {"folder": folder},
        runs=tuple(runs),
        function=function,
        tested=tuple(tested or [first.dataset]),
        settings=settings,
    )


# Uncertainty


def sample_scores(model: AdaptedModel, test: ImageData, samples: int, seed: int) -> np.ndarray:
    """Return the softmax scores (samples, images, classes) of a split."""
    scores = []
    for part in batches(test):
        batch_seed = derive(seed, "uncertainty", part.start)
        scores.append(uncertainty.sample(model, test[part], samples, batch_seed).cpu().numpy())
    return np.concatenate(scores, axis=1)


def compute_uncertainty(
    model: AdaptedModel, analysis: Analysis, tests: TestSets
) -> dict[str, np.ndarray]:
    """Compute one pass with the mean, and the `Estimates` for each number of samples.

    Few samples are the first of the many (Algorithm 1, Appendix C).
    """
    test = tests[analysis.dataset]
    labels = test.labels.cpu().numpy()
    sample_counts = analysis.settings["draws"]  # ascending
    single_pass = predict(model, test)
    scores = sample_scores(model, test, sample_counts[-1], analysis.seed)
    estimates = [uncertainty.estimate(scores[:count], labels) for count in sample_counts]

    arrays = {
        "draws": np.array(sample_counts, np.int16),
        "labels": labels.astype(np.int16),
        "single_confidence": single_pass.max(axis=1).astype(np.float16),
        "single_predicted": single_pass.argmax(axis=1).astype(np.int16),
    }
    for name, kind in uncertainty.STORED.items():
        arrays[name] = np.stack([getattr(each, name) for each in estimates]).astype(kind)
    if analysis.settings["pictures"]:
        arrays |= pick_examples(test, scores, estimates[-1])
    return arrays


def pick_examples(
    test: ImageData, scores: np.ndarray, estimates: uncertainty.Estimates
) -> dict[str, np.ndarray]:
    """Return pixels and scores of a correct and of an incorrect prediction, if there are any.

    Args:
        test: The images.
        scores: (samples, images, classes).
        estimates: Estimates of all samples. The width of each example's interval is the median of
            its kind.
    """
    by_width = np.argsort(estimates.width, kind="stable")  # indices of images
    shown = []
    for is_correct in (True, False):
        indices = by_width[estimates.predicts_label[by_width] == is_correct]
        if len(indices):
            shown.append(indices[(len(indices) - 1) // 2])
    return {
        "example_images": np.array(shown, np.int32),
        "example_pixels": _pixels(test, shown),
        "example_scores": scores[:, shown].swapaxes(0, 1).astype(np.float16),
    }


def _pixels(test: ImageData, indices: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return images (N, size, size, 3) uint8 of a split that is not in memory."""
    pixels: Any = test.images
    return pixels[indices]


# Latents


def compute_out_of_distribution(
    model: AdaptedModel, analysis: Analysis, tests: TestSets
) -> dict[str, np.ndarray]:
    """Compute `latents.adaptation` of every test image of each data set.

    Returns:
        `to_steps` of the values of each data set and kind, as "<data set>_<kind>_steps".
    """
    batch_values: dict[str, list[np.ndarray]] = {}
    for name, test in tests.items():
        for part in batches(test):
            for kind, values in latents.adaptation(model, test[part]).items():
                batch_values.setdefault(f"{name}_{kind}_steps", []).append(values.cpu().numpy())
    return {name: to_steps(np.concatenate(parts)) for name, parts in batch_values.items()}


def to_steps(values: np.ndarray) -> np.ndarray:
    """Pack values (N,) whose order does not matter into a sixth of the space.

    Returns:
        The sorted values in fp16, the bits of each less those of the one before: (N,) uint16.
    """
    bits = np.sort(values).astype(np.float16).view(np.uint16)
    return np.diff(bits, prepend=np.uint16(0))


def from_steps(steps: np.ndarray) -> np.ndarray:
    """Return the sorted values (N,) of `to_steps`."""
    return np.cumsum(steps, dtype=np.uint16).view(np.float16).astype(np.float64)


def compute_focus(
    model: AdaptedModel, analysis: Analysis, tests: TestSets
) -> dict[str, np.ndarray]:
    """Compute how well the length of μ_q finds the patches of an image's object, its focus.

    A patch is the object's where it covers a tenth of it or more, and another where it covers
    none of it.

    Returns:
        The AUROC of each test image, NaN without an object. "adapted": of the trained adapter.
        "frozen": with d = 1 and b = 0, which leaves x A on the frozen backbone.
    """
    test = tests[analysis.dataset]
    masks = suite.SYNTHETIC_TASKS[analysis.dataset].draw("test").masks
    assert masks is not None, "tasks with objects have masks"
    arrays = {"adapted": _aurocs(model, test, masks)}
    adapter: Any
    # The trained vectors become ones and zeros, so A and the backbone alone are left.
    for adapter in model.members[0].adapters:
        adapter.d.data.fill_(1.0)
        adapter.b.data.zero_()
    arrays["frozen"] = _aurocs(model, test, masks)
    return arrays


def _aurocs(model: AdaptedModel, test: ImageData, masks: np.ndarray) -> np.ndarray:
    """Return the AUROC of each test image.

    Args:
        model: The model.
        test: The test images.
        masks: (N, side, side), the objects' pixels.

    Raises:
        InputError: The patches do not divide the masks.
    """
    parts = [latents.lengths(model, test[part]).cpu().numpy() for part in batches(test)]
    lengths = np.concatenate(parts)  # (N, rows, columns) of patches
    count, rows, columns = lengths.shape
    side, rest = divmod(masks.shape[1], rows)
    if rest:
        raise InputError("image_size: the patches do not divide the masks of the objects")
    # (N, rows, height of a patch, columns, width of a patch)
    pixels = masks[:count].reshape(count, rows, side, columns, side)

    aurocs = []
    for length, share in zip(lengths, pixels.mean(axis=(2, 4)), strict=True):
        is_counted = (share >= 0.1) | (share == 0)
        aurocs.append(metrics.auroc(length[is_counted], share[is_counted] > 0))
    return np.array(aurocs, np.float32)


def compute_latents(
    model: AdaptedModel, analysis: Analysis, tests: TestSets
) -> dict[str, np.ndarray]:
    """Compute `latents.maps` of the first test images of classes, spread over all classes."""
    settings, test = analysis.settings, tests[analysis.dataset]
    labels = test.labels.cpu().numpy()
    classes, first = np.unique(labels, return_index=True)
    count = min(settings["shown"], len(classes))
    indices = first[np.linspace(0, len(classes) - 1, count).round().astype(int)]
    maps = latents.maps(model, test[indices], settings["draws"], analysis.seed)
    return {
        "shown": indices.astype(np.int32),
        "labels": labels[indices].astype(np.int16),
        "pixels": _pixels(test, indices),
        "mu": maps.mu.astype(np.float32),
        "draws": maps.samples.astype(np.float32),
        "explained": np.float64(maps.explained),
    }
