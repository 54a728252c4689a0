"""Measure images per second of training and evaluation, and derive a profile's hours on this device.

    python experiments/benchmark_throughput.py --profile paper --precision bfloat16

Each backbone, with random weights, trains the profile's grid of PVeRA members with the code that trains the runs.
Images are random numbers; an image that three members see counts three times. The hours cover all runs of the profile,
one after the other. They assume that each member trains for --epochs epochs, that every seed searches its grid, and
that every adapter is as fast as PVeRA. Linear probing computes the backbone's features once.

Writes <output>/throughput_<device>_<precision>.csv, a row per backbone and experiment, and prints it.
"""

import re
import time
from collections.abc import Callable

import numpy as np
import pandas as pd
import torch
from options import Parser
from profile_options import read_profile
from tqdm import tqdm

from pvera import adapt, backbones
from pvera.backbones import Backbone
from pvera.data import image_folders, tasks, vtab
from pvera.files import require_writable, write_atomically
from pvera.study import training
from pvera.study.experiments import list_runs, named, of_profile
from pvera.study.plan import SEARCHED
from pvera.study.protocol import CORRECTED
from pvera.study.runs import Run, environment
from pvera.study.script import run
from pvera.study.training import EVALUATION_BATCH, PRECISIONS, TrainingConfig

CLASSES = 100


def main() -> None:
    parser = Parser(__doc__)
    parser.profile("paper")
    parser.add_argument("--precision", default="bfloat16", choices=PRECISIONS, help="(%(default)s)")
    parser.device("cuda")
    parser.number("--epochs", default=100, help="assumed epochs of every training (%(default)s)")
    parser.number("--batches", default=50, help="timed training batches (%(default)s)")
    parser.output()
    options = parser.parse_args()
    profile = read_profile(options.profile).with_(precision=options.precision)
    require_writable(options.output)
    # Runs that wait for a search are listed as if it had ended.
    settled = profile.with_(beta=profile.beta[:1], alpha=profile.alpha[:1], search_once=False)
    runs = []
    for name in of_profile(profile, "train"):
        runs += list_runs(profile if name in SEARCHED else settled, name, options.output)
    rates = {}
    for name in tqdm(profile.backbones, "measuring", unit="backbone"):
        benchmark = list_runs(settled, "benchmark", options.output)
        grid = next(one for one in benchmark if one.backbone == name and one.method == "pvera")
        rates[name] = measure(grid, options.device, options.batches)
    table = hours(runs, rates, options.epochs)
    where = environment(options.device)["device"]
    name = re.sub(r"\W+", "_", f"throughput_{where}_{options.precision}".lower())
    write_atomically(options.output / f"{name}.csv", table.to_csv(index=False, float_format="%.5g").encode())
    print(table.to_string(index=False, float_format="{:,.1f}".format))
    print(f"\nAll of {profile.name} on one {where}, {profile.precision}: {table.hours.sum():,.1f} hours")


def measure(grid: Run, device: str, batches: int) -> dict[str, float]:
    """Return images per second and member: in training, in evaluation of the grid, and in testing one member.

    Test images lie in the computer's memory, as in `runs.Run.execute`.
    """
    frozen = backbones.load(grid.backbone, pretrained=False)
    frozen.model.to(device)
    size, members, ends = grid.training.batch_size, len(grid.candidates), []
    few, train = images(frozen, device, 1), images(frozen, device, size * batches)
    evaluated, tested = (
        images(frozen, device, max(EVALUATION_BATCH, size * batches // 4), in_memory) for in_memory in (True, False)
    )
    model = adapt(frozen.model, [c.method for c in grid.candidates], CLASSES)
    rates, betas = [(c.adapter_lr, c.head_lr) for c in grid.candidates], [0.0] * members
    config = TrainingConfig(batch_size=size, epochs=3)
    with training.autocast(device, grid.precision):
        # The first epoch warms up; each later time includes all of the epoch's work.
        training.fit(model, train, few, rates, betas, config, CORRECTED, 0, lambda _: ends.append(time.perf_counter()))
        model.active = list(range(members))
        validated = seconds(lambda: training.evaluate(model, model, evaluated, CORRECTED))
        model.active = [0]
        predicted = seconds(lambda: training.predict(model, tested))
    model.unload()
    return {
        "train": 2 * members * len(train) / (ends[-1] - ends[0]),
        "validate": members * len(evaluated) / validated,
        "test": len(tested) / predicted,
    }


def images(frozen: Backbone, device: str, count: int, in_memory: bool = True) -> image_folders.ImageData:
    """Return random images with random labels."""
    source = np.random.default_rng(0)
    pixels = source.integers(256, size=(count, frozen.image_size, frozen.image_size, 3), dtype=np.uint8)
    split = image_folders.ImageSplit(pixels, source.integers(CLASSES, size=count), [])
    return split.data(frozen, torch.device(device), in_memory)


def seconds(function: Callable) -> float:
    """Return the seconds of the second of two calls, until its result is on the CPU."""
    function()
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def hours(runs: list[Run], rates: dict[str, dict[str, float]], epochs: int) -> pd.DataFrame:
    """Return a row per backbone and experiment: rates, runs, members and hours."""
    train, validation = vtab.TRAINING["train800"], vtab.TRAINING["val200"]
    rows = []
    for one in runs:
        rate, members = rates[one.backbone], len(one.candidates)
        tested = tasks.task(one.dataset).test_images / rate["test"]
        trained = members * epochs * (train / rate["train"] + validation / rate["validate"])
        if one.method == "linear":  # its features are computed once
            trained = (train + validation) / rate["test"]
        experiment = named(one.experiment).name
        rows.append({"backbone": one.backbone, "experiment": experiment, "runs": 1, "members": members}
                    | {"hours": (trained + tested) / 3600})  # fmt: skip
    table = pd.DataFrame(rows).groupby(["backbone", "experiment"], sort=False).sum().reset_index()
    for key in ("train", "validate", "test"):
        table.insert(2, f"{key}_images_per_second", [rates[name][key] for name in table.backbone])
    return table


if __name__ == "__main__":
    run(main)
