"""Time training, evaluation and sampling against their bounds, which a frozen backbone sets.

    python experiments/benchmark_speed.py                                 # ViT-S, ten minutes on two cores
    python experiments/benchmark_speed.py --device cuda --backbones dinov2_s dinov2_b dinov2_l

Each part and its bound take turns in one process, after a warm-up; a ratio is the median over these pairs, with
quartiles. Weights and images are random numbers. Memory is measured in a separate process, from before its first step
to its peak (on a GPU, as torch allocates it).

    part      measures                                                     against
    step      a training step: forward, loss, KL term, backward, AdamW     forward and backward of the frozen backbone
    evaluate  a merged model                                               the frozen backbone
    sample    k draws, and their memory                                    k frozen passes; the memory of two draws
    memory    the memory of a training step                                forward and backward of the frozen backbone

The backward pass of the frozen backbone goes to its input; its weights have the precision that is measured. Writes
<output>/speed_<device>.json (a separate file with --threads) and .md; rows of other parts, backbones and precisions
stay.
"""

import pvera  # isort: skip  # noqa: F401  before timm

import copy
import math
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext

import numpy as np
import timm
import torch
from options import Parser
from profile_options import read_profile
from torch import Tensor
from tqdm import tqdm

from pvera import adapt, backbones, cost, sample
from pvera.adapters import Method
from pvera.files import require_writable
from pvera.hooks import cast_once, training_attention
from pvera.study import speed, training
from pvera.study.experiments import list_runs
from pvera.study.protocol import protocol
from pvera.study.runs import environment
from pvera.study.script import run
from pvera.study.speed import GRID, Measurement
from pvera.study.training import PRECISIONS, TrainingConfig

CLASSES, BATCH, DRAWS = 100, 16, (2, 8)


def main() -> None:
    parser = Parser(__doc__)
    parser.several("--backbones", default=["dinov2_s"], metavar="B", help="backbones (dinov2_s)")
    parser.several("--precisions", choices=PRECISIONS, default=["float32", "bfloat16"], help="(both)")
    parser.several("--parts", choices=PARTS, default=list(PARTS), help="only these parts")
    parser.several("--methods", choices=speed.STEP, default=list(speed.STEP), help="only these methods")
    parser.device("cpu")
    parser.number("--threads", help="CPU threads (all; demo and mini train with one)")
    parser.number("--repeats", default=5, help="timed pairs (%(default)s)")
    parser.output()
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    require_writable(options.output)
    for name in options.backbones:
        backbones.architecture(name)
    made_by = environment(options.device)
    path = speed.record_path(options.output, made_by["device"], options.threads)
    work = [(b, p, part) for b in options.backbones for p in options.precisions for part in options.parts]
    for backbone, precision, part in tqdm(work, "measuring", unit="part"):
        bench = Bench(backbone, precision, options.device, options.repeats, options.methods)
        speed.update(path, made_by, PARTS[part](bench))
    print(path.with_suffix(".md").read_text(encoding="utf-8"))


class Bench:
    """A frozen backbone with random weights in one precision, models on top of it, and paired clocks."""

    def __init__(self, backbone: str, precision: str, device: str, repeats: int, keys: Sequence[str]):
        self.backbone, self.precision, self.device = backbone, precision, device
        self.repeats, self.keys = repeats, keys
        name, arguments = backbones.architecture(backbone)
        with backbones.seeded(0):
            vit = timm.create_model(name, num_classes=0, **arguments)
        self.vit = vit.eval().requires_grad_(False).to(device)
        self.plain = copy.deepcopy(self.vit).to(PRECISIONS[precision])  # cast weights: the fastest bound
        source = torch.Generator().manual_seed(0)
        self.images = torch.randn(BATCH, 3, *vit.patch_embed.img_size, generator=source).to(device)
        self.labels = torch.randint(CLASSES, (BATCH,), generator=source).to(device)

    def row(self, part: str, what: str, bound: str, values: Sequence[float], target: float) -> Measurement:
        """Return a row of the record; values: those of `paired`, or without the quartiles."""
        value, bound_value, ratio, *quartiles = values
        return Measurement(
            part, self.backbone, self.precision, what, bound, value, bound_value, ratio, target, *quartiles
        )

    def methods(self, *keys: str) -> list[Method]:
        """Return the methods `keys` (default: all measured ones) with the profile's most chosen hyperparameters."""
        profile = read_profile("mini" if self.backbone == "tiny" else "paper")
        runs = list_runs(
            profile.with_(
                protocol="corrected",
                backbones=[self.backbone],
                fixed_grid=[self.backbone],
                datasets=profile.datasets[:1],
                seeds=[0],
                beta=profile.beta[:1],  # without the searches that they wait for
                alpha=profile.alpha[:1],
            ),
            "benchmark",
            "",
        )
        return [one.candidates[0].method for one in runs if one.method in (keys or self.keys)]

    def paired(self, function: Callable, bound: Callable, repeats: int | None = None) -> tuple[float, ...]:
        """Time pairs, in which both take turns. Return the median seconds of each, and their ratio: the median, and
        for two pairs or more the quartiles."""
        bound(), function()
        pairs = [(self.seconds(function), self.seconds(bound)) for _ in range(repeats or self.repeats)]
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

    def frozen_pass(self) -> Callable[[], Tensor]:
        images = self.images.to(PRECISIONS[self.precision])
        return torch.inference_mode()(lambda: self.plain(images))

    @contextmanager
    def step(self, methods: list[Method]) -> Iterator[Callable]:
        """Yield a step of `training.fit`, which returns loss and KL term."""
        model = adapt(self.vit, methods, CLASSES, list(range(len(methods)))).train()
        model.last_mlp_on_class_token = True
        optimizers = [training.make_optimizer(member, 1e-4, 1e-4, TrainingConfig()) for member in model.members]
        beta, rules = torch.full((len(methods),), 1e-6, device=self.device), protocol("corrected")

        def function():
            with self.autocast():
                return training.step(model, model, self.images, self.labels, beta, optimizers, scaler, rules)

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


def step(bench: Bench) -> list[Measurement]:
    rows, shape = [], cost.Shape.of(bench.vit)
    for grid in filter(None, [*([method] for method in bench.methods()), bench.methods("pvera") * GRID]):
        bound, factor = "frozen forward and backward", 1.0
        if grid[0].key in ("bottleneck", "adaptformer"):
            factor += cost.adapter_multiply_adds(grid[0], shape) / cost.backbone_multiply_adds(shape)
            bound += ", and its own products"
        with bench.step(grid) as function:
            seconds, frozen_seconds, *ratios = bench.paired(function, bench.frozen_step(len(grid)))
        values = seconds, frozen_seconds * factor, *(ratio / factor for ratio in ratios)
        rows.append(bench.row("step", speed.title(grid), bound, values, speed.STEP[grid[0].key]))
    return rows


def evaluate(bench: Bench) -> list[Measurement]:
    rows = []
    for method in bench.methods():
        model = adapt(bench.vit, method, CLASSES).eval()

        @torch.inference_mode()
        def function():
            with bench.autocast():
                model(bench.images)

        if model.members[0].layers[0].mergeable:
            model.merge_()
            with bench.under_autocast(cast_once):
                values = bench.paired(function, bench.frozen_pass())
            rows.append(
                bench.row("evaluate", f"{speed.title([method])}, merged", "frozen forward", values, speed.EVALUATE)
            )
        model.unload()
    return rows


def draws(bench: Bench) -> list[Measurement]:
    (method,) = bench.methods("pvera")
    rows, plain = [], bench.frozen_pass()
    for k in DRAWS:
        with bench.draws(k) as function:
            values = bench.paired(function, lambda: [plain() for _ in range(k)], math.ceil(bench.repeats / 2))
        rows.append(
            bench.row("sample", f"{speed.title([method])}, {k} draws", f"{k} frozen passes", values, speed.SAMPLE)
        )
    least, most = (peak(bench, "draws", k) for k in DRAWS)
    what, bound = f"memory of {DRAWS[1]} draws", f"of {DRAWS[0]}"
    return [*rows, bench.row("sample", what, bound, (most, least, most / least), speed.SAMPLE_MEMORY)]


def memory(bench: Bench) -> list[Measurement]:
    rows, bound = [], peak(bench, "frozen", None)
    for method in bench.methods():
        used = peak(bench, "step", method)
        values, what = (used, bound, used / bound), "frozen forward and backward"
        rows.append(bench.row("memory", speed.title([method]), what, values, speed.MEMORY))
    return rows


def peak(bench: Bench, what: str, argument) -> float:
    """Return the bytes by which two calls raise the memory of a new process, at their peak."""
    # glibc then maps the memory of tensors and gives it back at once, so the peak is that of tensors.
    os.environ.setdefault("MALLOC_MMAP_THRESHOLD_", str(2**16))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_peak, (bench.backbone, bench.precision, bench.device, what, argument))


def _peak(backbone: str, precision: str, device: str, what: str, argument) -> float:
    bench = Bench(backbone, precision, device, 1, [])
    if what == "frozen":
        del bench.vit
        measured = nullcontext(bench.frozen_step())
    else:
        del bench.plain
        measured = bench.draws(argument) if what == "draws" else bench.step([argument])
    with measured as function:
        before = speed.memory(device, reset=True)
        function(), function()
        return speed.memory(device, reset=False) - before


PARTS = {"step": step, "evaluate": evaluate, "sample": draws, "memory": memory}


if __name__ == "__main__":
    run(main)
