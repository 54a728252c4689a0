"""Time training, evaluation and sampling against the bounds that a frozen backbone sets.

    python experiments/benchmark_speed.py                  # ViT-S, ten minutes on two cores
    python experiments/benchmark_speed.py --device cuda --backbones dinov2_s dinov2_b dinov2_l

Each part and its bound take turns, after a warm-up; a ratio is the median over these pairs. Weights
are random.

    step       a training step   forward and backward of the frozen backbone
    evaluate   a merged model    one frozen pass
    sample     k samples         k frozen passes

Writes <output>/speed_<device>.csv, a row per measurement: medians of the seconds of part and bound,
and the median of their ratio with its quartiles. OMP_NUM_THREADS sets the threads of a CPU; another
--output keeps their times apart.
"""

import copy
import re
import time
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from options import RESULTS, Parser, read_profile

from pvera import adapt, backbones, cost, sample
from pvera.adapters import Method
from pvera.errors import InputError, run_script
from pvera.features import input_shape, pooled
from pvera.files import require_writable, write_atomically
from pvera.study import optimization, prediction
from pvera.study.jobs import environment
from pvera.study.profiles import PRECISIONS
from pvera.study.protocol import CORRECTED
from pvera.study.run_settings import build_method, default_values
from pvera.study.training import training_attention

CLASSES, BATCH, SAMPLES = 100, 16, 8
MEMBERS = 3  # of the timed grid of PVeRA
BETA = 1e-6


def main() -> None:
    """Measure what the command line asks for, and print all ratios."""
    parser = Parser(__doc__)
    parser.add_argument(
        "--backbones", nargs="+", default=["dinov2_s"], metavar="B", help="backbones (dinov2_s)"
    )
    parser.add_argument(
        "--precisions", nargs="+", choices=PRECISIONS, default=list(PRECISIONS), help="(both)"
    )
    parser.add_device("cpu")
    parser.add_count("--repeats", default=5, help="timed pairs (%(default)s)")
    output = RESULTS / "performance"
    parser.add_argument("--output", type=Path, default=output, help="(%(default)s)")
    options = parser.parse_args()

    require_writable(options.output)
    made_by = environment(options.device)
    machine = {name: made_by[name] for name in ("device", "threads", "torch", "timm")}
    device = re.sub(r"\W+", "_", machine["device"].lower()).strip("_")
    path = options.output / f"speed_{device}.csv"
    if path.exists():
        raise InputError(f"{path} exists: choose another folder with --output, or remove it")

    rows: list[dict[str, Any]] = []
    for backbone, precision in product(options.backbones, options.precisions):
        print(f"{backbone}, {precision}", flush=True)
        bench = Bench(backbone, precision, options.device, options.repeats)
        with prediction.autocast(options.device, precision):
            time_steps(bench)
            time_evaluation(bench)
            time_samples(bench)
        rows += [machine | row for row in bench.rows]
        table = pd.DataFrame(rows)
        write_atomically(path, table.to_csv(index=False, float_format="%.6g"))
    shown = ["part", "backbone", "precision", "what", "ratio", "low", "high"]
    print(table[shown].to_string(index=False))


class Bench:
    """A frozen backbone with random weights in one precision, and the times measured on it."""

    def __init__(self, backbone: str, precision: str, device: str, repeats: int):
        self.backbone = backbone
        self.precision = precision
        self.device = device
        self.repeats = repeats
        #: The measurements, by column of the CSV file.
        self.rows: list[dict[str, Any]] = []
        self.vit = backbones.load(backbone, pretrained=False).model.to(device)
        # Cast weights are the fastest bound.
        self.cast = copy.deepcopy(self.vit).to(getattr(torch, precision))
        source = torch.Generator().manual_seed(0)
        self.images = torch.randn(BATCH, *input_shape(self.vit), generator=source).to(device)
        self.labels = torch.randint(CLASSES, (BATCH,), generator=source).to(device)
        profile = read_profile("synthetic" if backbone == "tiny" else "paper")
        #: The adapters with the profile's default hyperparameters, by key.
        self.methods = {
            key: build_method(key, profile.methods[key] | default_values(profile, key))
            for key in profile.methods
            if key != "linear"
        }

    def compare(
        self,
        part: str,
        what: str,
        function: Callable,
        bound: str,
        frozen: Callable,
        factor: float = 1.0,
    ) -> None:
        """Time a function and its bound in turn, after a warm-up, and add the row.

        Args:
            part: step, evaluate or sample.
            what: What the function does.
            function: What is timed.
            bound: What bounds it.
            frozen: A pass of the frozen backbone.
            factor: The bound is this multiple of the time of `frozen`.
        """
        frozen()
        function()
        values, bounds = [], []
        for _ in range(self.repeats):
            values.append(self.seconds(function))
            bounds.append(factor * self.seconds(frozen))
        low, ratio, high = np.quantile(np.divide(values, bounds), [0.25, 0.5, 0.75])
        self.rows.append(
            {
                "part": part,
                "backbone": self.backbone,
                "precision": self.precision,
                "what": what,
                "bound": bound,
                "value": np.median(values),
                "bound_value": np.median(bounds),
                "ratio": ratio,
                "low": low,
                "high": high,
            }
        )

    def seconds(self, function: Callable) -> float:
        """Return the seconds of a call, until the device has finished."""
        wait = torch.cuda.synchronize if self.device.startswith("cuda") else lambda: None
        wait()
        start = time.perf_counter()
        function()
        wait()
        return time.perf_counter() - start

    def frozen(self, members: int = 1, backward: bool = False) -> Callable:
        """Return a pass of the frozen backbone.

        Args:
            members: Copies of the batch.
            backward: Add the backward pass to the input.
        """
        images = self.images.repeat(members, 1, 1, 1).to(getattr(torch, self.precision))
        images.requires_grad_(backward)

        def function() -> None:
            with prediction.autocast(self.device, "float32"), torch.inference_mode(not backward):
                outputs = pooled(self.cast, self.cast(images))
                if backward:
                    outputs.float().sum().backward()

        return function


def title(method: Method) -> str:
    """Name the row of a method."""
    sizes = {"r": getattr(method, "rank", None), "ratio": getattr(method, "ratio", None)}
    parts = [f"{name} = {value}" for name, value in sizes.items() if value]
    return ", ".join([method.title, *parts])


def time_steps(bench: Bench) -> None:
    """Time a step of `training.fit` with each method, and with a grid of PVeRA."""
    grids = [[method] for method in bench.methods.values()]
    grids.append([bench.methods["pvera"]] * MEMBERS)
    for grid in grids:
        what, bound, factor = title(grid[0]), "frozen forward and backward", 1.0
        if len(grid) > 1:
            what += f", grid of {len(grid)}"
        counted = cost.count_cost(bench.vit, grid[0])
        if counted.merged is None:
            factor = counted.inference / counted.backbone_multiply_adds
            bound += ", and its own products"
        with adapt(bench.vit, grid, CLASSES, 0) as model, training_attention(bench.vit):
            model.train().last_mlp_on_class_token = True
            optimizers = [
                optimization.make_optimizer(member, 1e-4, 1e-4, 1e-4) for member in model.members
            ]
            batch = bench.images, bench.labels, [BETA] * len(grid)
            function = partial(optimization.step, model, model, *batch, optimizers, CORRECTED)
            frozen = bench.frozen(members=len(grid), backward=True)
            bench.compare("step", what, function, bound, frozen, factor)


def time_evaluation(bench: Bench) -> None:
    """Time a pass of merged PVeRA; another merged method has the same layers."""
    method = bench.methods["pvera"]
    with adapt(bench.vit, method, CLASSES, 0) as model, torch.inference_mode():
        function = partial(model.eval().merge_(), bench.images)
        what = f"{title(method)}, merged"
        bench.compare("evaluate", what, function, "frozen forward", bench.frozen())


def time_samples(bench: Bench) -> None:
    """Time Monte Carlo inference of PVeRA."""
    method = bench.methods["pvera"]
    with adapt(bench.vit, method, CLASSES, 0) as model:
        model.eval().last_mlp_on_class_token = True
        function = partial(sample, model, bench.images, SAMPLES)
        what, bound = f"{title(method)}, {SAMPLES} draws", f"{SAMPLES} frozen passes"
        bench.compare("sample", what, function, bound, bench.frozen(), SAMPLES)


if __name__ == "__main__":
    run_script(main)
