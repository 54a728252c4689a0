"""A backbone, precision and device, with the steps and passes that benchmark_speed.py times in pairs."""

import pvera  # isort: skip  # noqa: F401  before timm

import copy
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import numpy as np
import timm
import torch
from benchmark_throughput import CLASSES
from profile_options import read_profile
from torch import Tensor

from pvera import adapt, backbones, sample
from pvera.adapters import Method
from pvera.hooks import cast_once, training_attention
from pvera.study import training
from pvera.study.protocol import protocol
from pvera.study.speed import Measurement
from pvera.study.training import PRECISIONS, TrainingConfig

BATCH, DRAWS = 16, (2, 8)


class Bench:
    """A frozen backbone with random weights in one precision, models on top of it, and paired clocks."""

    def __init__(self, backbone: str, precision: str, device: str, repeats: int, keys: Sequence[str], **options):
        self.backbone, self.precision, self.device = backbone, precision, device
        self.repeats, self.keys = repeats, keys
        name, arguments = backbones.architecture(backbone)
        with backbones.seeded(0):
            vit = timm.create_model(name, num_classes=0, **arguments | options)
        self.vit = vit.eval().requires_grad_(False).to(device)
        self.plain = copy.deepcopy(self.vit).to(PRECISIONS[precision])  # cast weights: the fastest bound
        source = torch.Generator().manual_seed(0)
        self.images = torch.randn(BATCH, 3, *vit.patch_embed.img_size, generator=source).to(device)
        self.labels = torch.randint(CLASSES, (BATCH,), generator=source).to(device)

    def row(self, part: str, what: str, bound: str, values: Sequence[float], target=None) -> Measurement:
        """Return a row of the record; values: those of `paired`, or without the quartiles."""
        value, bound_value, ratio, *quartiles = values
        return Measurement(
            part, self.backbone, self.precision, what, bound, value, bound_value, ratio, target, *quartiles
        )

    def methods(self, *keys: str) -> list[Method]:
        """Return the methods `keys` (default: all measured ones) with the profile's most chosen hyperparameters."""
        profile = read_profile("mini" if self.backbone == "tiny" else "paper")
        runs = profile.with_(
            protocol="corrected",
            backbones=[self.backbone],
            fixed_grid=[self.backbone],
            datasets=profile.datasets[:1],
            seeds=[0],
        ).runs("benchmark", "")
        return [one.candidates[0].method for one in runs if one.method in (keys or self.keys)]

    def paired(self, function: Callable, bound: Callable, repeats: int | None = None, warm: bool = True):
        """Time pairs, in which both take turns. Return the median seconds of each, and their ratio: the median, and
        for two pairs or more the quartiles."""
        if warm:
            bound(), function()
        pairs = []
        for _ in range(repeats or self.repeats):
            pairs.append((self.seconds(function), self.seconds(bound)))
        first, second = zip(*pairs, strict=True)
        ratios = [a / b for a, b in pairs]
        quartiles = map(float, np.quantile(ratios, [0.25, 0.75])) if len(ratios) > 1 else ()
        return statistics.median(first), statistics.median(second), statistics.median(ratios), *quartiles

    def seconds(self, function: Callable) -> float:
        self.finish()
        start = time.perf_counter()
        function()
        self.finish()
        return time.perf_counter() - start

    def finish(self) -> None:
        if self.device.startswith("cuda"):
            torch.cuda.synchronize()

    def frozen_step(self, members: int = 1) -> Callable:
        """Return forward and backward of the frozen backbone, to its input."""
        images = self.images.repeat(members, 1, 1, 1).to(PRECISIONS[self.precision])
        return lambda: self.plain(images.requires_grad_()).float().sum().backward()

    def frozen_pass(self, images: Tensor | None = None) -> Callable:
        images = (self.images if images is None else images).to(PRECISIONS[self.precision])
        return torch.inference_mode()(lambda: self.plain(images))

    @contextmanager
    def step(self, methods: list[Method], compiled: bool = False) -> Iterator[Callable]:
        """Yield a step of `training.fit`, which returns loss and KL term; compiled: its passes by `torch.compile`."""
        model = adapt(self.vit, methods, CLASSES, list(range(len(methods)))).train()
        model.last_mlp_on_class_token = True
        optimizers = [training.make_optimizer(member, 1e-4, 1e-4, TrainingConfig()) for member in model.members]
        beta, rules = torch.full((len(methods),), 1e-6, device=self.device), protocol("corrected")
        forward = torch.compile(model) if compiled else model

        def function():
            with self.autocast():
                return training.step(model, forward, self.images, self.labels, beta, optimizers, scaler, rules)

        with self.under_autocast(cast_once, training_attention):
            with self.autocast():
                scaler = training.make_scaler(self.device)
            yield function
        model.unload()

    @contextmanager
    def draws(self, k: int) -> Iterator[Callable]:
        """Yield k draws of PVeRA."""
        (method,) = self.methods("pvera")
        model = adapt(self.vit, method, CLASSES).eval()
        model.last_mlp_on_class_token = True

        def function():
            with self.autocast():
                sample(model, self.images, k)

        yield function
        model.unload()

    def autocast(self):
        return training.autocast(self.device, self.precision)

    @contextmanager
    def under_autocast(self, *contexts: Callable) -> Iterator[None]:
        """Enter the backbone's `contexts` under autocast, which they check when they begin, and leave autocast.

        The bound is timed inside too, without autocast.
        """
        with ExitStack() as stack:
            with self.autocast():
                for context in contexts:
                    stack.enter_context(context(self.vit))
            yield
