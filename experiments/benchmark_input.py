"""Measure what reading images costs: processor time in an epoch, time to prepare a data set, and memory.

    python experiments/benchmark_input.py

share         the share of an epoch's processor time that reads batches from the store
preparation   the speed-up of decoding photographs on all cores over one core
memory        the memory of a run on the largest data set (dSprites, 73 728 test images, 11 GB in the store) beyond
              that of a run on 16 images; the backbone is so small that its activations hardly count

The script writes the data sets to a temporary folder (--folder, up to 12 GB) and removes them. It writes
<output>/input.csv and .md, and keeps there the rows of parts that it does not measure again. The exit code is 1 if a
bound does not hold. Other work on the machine slows preparation down, and hardly the rest.
"""

import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
import safetensors.torch
import torch
from options import Parser
from PIL import Image

from pvera import backbones
from pvera.adapters import PVeRA
from pvera.data import image_folders, store, tasks
from pvera.model import adapt
from pvera.processes import cores
from pvera.study import markdown, results, training
from pvera.study.profiles import Profile
from pvera.study.protocol import protocol
from pvera.study.runs import environment
from pvera.study.scheduler import run_all
from pvera.study.script import run
from pvera.study.training import TrainingConfig

PARTS = ("share", "preparation", "memory")
SHARE, SPEED_UP, MEMORY = 0.02, 0.75, 1024  # bounds: of an epoch, per core, MiB
LARGEST = "dsprites_loc"
DISTINCT = 64  # images of a split; the rest are links to them


def name_stand_in() -> None:
    """Name a backbone of 17 tokens of width 64 and 6 layers."""
    backbones.NAMES["stand_in"] = ("test_vit", {"img_size": 224, "patch_size": 56})


def main() -> None:
    parser = Parser(__doc__)
    parser.several("--parts", choices=PARTS, default=PARTS, help="only these parts")
    parser.add_argument("--folder", help="folder of the temporary files (default: the system's)")
    parser.output()
    options = parser.parse_args()
    name_stand_in()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        os.environ[store.VARIABLE] = str(folder / "cache")
        measure = {
            "share": lambda: [share(folder, "tiny", 800), share(folder, "dinov2_s", 32)],
            "preparation": lambda: [preparation(folder, 4000)],
            "memory": lambda: [memory(folder, tasks.task(LARGEST).test_images)],
        }
        made_by = environment("cpu")
        about = {"machine": f"{made_by['device']}, {cores()} cores, torch {made_by['torch']}"}
        rows = [{"part": part, **row, **about} for part in options.parts for row in measure[part]()]
    table = merge(options.output / "input.csv", pd.DataFrame(rows))
    results.write_atomically(options.output / "input.csv", table.to_csv(index=False).encode())
    text = describe(table)
    results.write_atomically(options.output / "input.md", text.encode())
    print(text)
    if not table.holds.all():
        sys.exit(1)


def merge(file: Path, measured: pd.DataFrame) -> pd.DataFrame:
    """Join the measured rows with those of other parts in the file, in the order of the parts."""
    earlier = pd.read_csv(file) if file.exists() else measured.head(0)
    table = pd.concat([earlier[~earlier.part.isin(measured.part)], measured], ignore_index=True)
    return table.sort_values("part", key=lambda part: part.map(PARTS.index), kind="stable", ignore_index=True)


def share(folder: Path, backbone: str, images: int) -> dict:
    """Measure the share of reading in an epoch's processor time: three PVeRA members, one thread."""
    frozen = backbones.load(backbone, pretrained=False)
    name, counts = f"{backbone}_data", {"train800": images, "val200": images // 4}
    write(folder / name / LARGEST, counts, (64, 64), "png")
    train, validation = (
        image_folders.load_split(folder / name, LARGEST, split, frozen.image_size).data(frozen, torch.device("cpu"))
        for split in counts
    )
    config, ends = TrainingConfig(epochs=3), []
    model = adapt(frozen.model, [PVeRA(rank=64)] * 3, tasks.task(LARGEST).classes, [0, 1, 2])
    training.fit(
        model,
        train,
        validation,
        [(1e-4, 1e-4)] * 3,
        [0.0] * 3,
        config,
        protocol("published"),
        0,
        on_epoch=lambda _: ends.append(time.process_time()),
    )
    epoch = min(np.diff(ends))

    def read() -> float:
        start = time.process_time()
        for batch in torch.arange(len(train)).split(config.batch_size):
            train[batch]
        for batch in torch.arange(len(validation)).split(training.EVALUATION_BATCH):
            validation[slice(int(batch[0]), int(batch[-1]) + 1)]
        return time.process_time() - start

    part = min(read() for _ in range(5)) / epoch
    what = f"share of an epoch on {backbone} at {frozen.image_size} pixels"
    return row(what, f"{100 * part:.3f} %", f"under {100 * SHARE:.0f} %", part < SHARE)


def preparation(folder: Path, images: int) -> dict:
    """Measure the speed-up of decoding photographs (500 x 375 pixels) in one process per core over a single one.

    Both take turns; the best of five counts.
    """
    root = folder / "photographs"
    write(root / LARGEST, {"test": images}, (500, 375), "jpg")

    def seconds(processes: int) -> float:
        store.clear()
        start = time.perf_counter()
        image_folders.load_split(root, LARGEST, "test", 224, processes=processes)
        return time.perf_counter() - start

    seconds(1)  # starts the fork server
    turns = [(seconds(1), seconds(cores())) for _ in range(5)]
    one, all_cores = map(min, zip(*turns, strict=True))
    bound = SPEED_UP * cores()
    what = f"speed-up of preparation with {cores()} processes"
    value = f"{one / all_cores:.2f} ({images / all_cores:.0f} images per second)"
    return row(what, value, f"over {bound:.2f}", one / all_cores > bound)


def memory(folder: Path, images: int) -> dict:
    """Measure the peak memory of a run on `images` test images beyond that of a run on 16; each has its own process."""
    write(folder / "largest" / LARGEST, {"train800": 800, "val200": 200, "test": images}, (64, 64), "png")
    weights = folder / "stand_in.safetensors"
    safetensors.torch.save_file(backbones.load("stand_in", pretrained=False).model.state_dict(), weights)
    profile = Profile(
        name="memory",
        data=str(folder / "largest"),
        backbones=["stand_in"],
        datasets=[LARGEST],
        seeds=[0],
        protocol="published",
        methods={"pvera": {"rank": 64, "grid": {"learning_rate": [1e-3, 1e-4, 1e-5]}}},
        training=TrainingConfig(epochs=1),
        weights={"stand_in": str(weights)},
    )
    image_folders.prepare(folder / "largest", LARGEST, 224)
    peaks = []
    for few in (16, None):
        runs = profile.with_(images=few).runs("benchmark", folder / f"results{few}")
        run_all(runs, f"{few or 'all'} images")
        peaks.append(results.read(runs[0].path)["cost"]["peak_memory_mb"])
    beyond = peaks[1] - peaks[0]
    what = f"memory of a run on {images} test images, beyond one on 16"
    return row(what, f"{beyond} MiB", f"under {MEMORY} MiB", beyond < MEMORY)


def row(what: str, value: str, bound: str, holds: bool) -> dict:
    return {"what": what, "value": value, "bound": bound, "holds": holds}


def write(folder: Path, counts: dict[str, int], size: tuple[int, int], suffix: str) -> None:
    """Write splits of `counts` images of `size` pixels: smooth noise, which compresses like photographs."""
    classes = tasks.task(folder.name).classes
    for split, count in counts.items():
        (folder / split).mkdir(parents=True)
        source = np.random.default_rng([*split.encode()])
        for i in range(count):
            file = folder / split / f"{i}.{suffix}"
            if i < DISTINCT:
                coarse = source.integers(256, size=(24, 32, 3), dtype=np.uint8)
                Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(file)
            else:
                os.link(folder / split / f"{i % DISTINCT}.{suffix}", file)
        lines = "".join(f"{split}/{i}.{suffix} {i % classes}\n" for i in range(count))
        (folder / f"{split}.txt").write_text(lines)


def describe(table: pd.DataFrame) -> str:
    """Format the table as Markdown, with the machines."""
    rows = ([row.what, row.value, row.bound, "yes" if row.holds else "no"] for row in table.itertuples())
    machines = "; ".join(table.machine.unique())
    page = markdown.table(["", "measured", "bound", "holds"], rows)
    return f"{page}\n\n{machines}. Measured by experiments/benchmark_input.py.\n"


if __name__ == "__mp_main__":  # in a worker process
    name_stand_in()
if __name__ == "__main__":
    run(main)
