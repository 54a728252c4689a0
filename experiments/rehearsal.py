"""Rehearse the paper's experiment with stand-ins, without data, network or GPU.

`bash run_all.sh rehearsal` calls it:

    python experiments/rehearsal.py

The images of VTAB-1k are random pixels, and the ViT is small and random. They are installed from
files, as without network; then run_profile.py does all of the profile `rehearsal`, which has the
methods of `paper`. It starts again each time, in data/rehearsal and results/rehearsal. Options go
to run_profile.py.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import prepare_vtab
import safetensors.torch
from options import ROOT, Parser, read_profile
from PIL import Image

from pvera import backbones
from pvera.data import store, tasks, vtab
from pvera.errors import run_script

FOLDER = ROOT / "data/rehearsal"
TEST_IMAGES = 32


def write_vtab(
    root: Path,
    names: Iterable[str] = vtab.NAMES,
    test_images: int = TEST_IMAGES,
    suffix: str = "png",
    side: int = 8,
) -> None:
    """Write data sets of VTAB-1k's layout and training splits.

    Files are links to eight images per split; no training image equals a test image.

    Args:
        root: Their folder.
        names: Of the data sets.
        test_images: Number of them.
        suffix: Of the images' files.
        side: Pixels of an image's side.
    """
    counts = {"train800": 800, "val200": 200, "test": test_images}
    for name in names:
        for part, (split_file, count) in enumerate(counts.items()):
            folder = root / name / "images" / split_file
            folder.mkdir(parents=True)
            source = np.random.default_rng([part, *name.encode()])
            for i in range(min(count, 8)):
                pixels = source.integers(256, size=(side, side, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.{suffix}")
            for i in range(8, count):
                os.link(folder / f"{i % 8}.{suffix}", folder / f"{i}.{suffix}")
            # If there are more classes than images, each split starts at another class.
            labels = (np.arange(count) + 800 * part) % tasks.find_data_set(name).classes
            lines = [
                f"images/{split_file}/{i}.{suffix} {label}\n" for i, label in enumerate(labels)
            ]
            (root / name / f"{split_file}.txt").write_text("".join(lines))


def main() -> None:
    """Write the stand-ins and do the profile."""
    _, options = Parser(__doc__).parse_known_args()
    profile = read_profile("rehearsal")
    for folder in (FOLDER, ROOT / "results/rehearsal"):
        shutil.rmtree(folder, ignore_errors=True)
    write_vtab(FOLDER / "made", profile.datasets)
    archive = shutil.make_archive(str(FOLDER / "vtab-1k"), "zip", FOLDER / "made")
    (backbone,) = profile.backbones
    weights = backbones.load(backbone, pretrained=False).model.state_dict()
    safetensors.torch.save_file(weights, ROOT / profile.weights[backbone])

    # Accepted, as it has few images.
    data = ROOT / profile.data
    if not prepare_vtab.prepare(data, profile.datasets, Path(archive), accept_counts=True):
        sys.exit(1)
    environment = os.environ | {store.CACHE_VARIABLE: str(FOLDER / "cache"), "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "experiments/run_profile.py", profile.name, *options]
    sys.exit(subprocess.run(command, cwd=ROOT, env=environment).returncode)


if __name__ == "__main__":
    run_script(main)
