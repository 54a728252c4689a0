"""A suite of twelve small synthetic tasks in VTAB-1k's folder format, drawn by programs.

Each VTAB-1k category has four tasks of 800 training, 200 validation and 2,000 test images, 32 x 32
pixels each. Nothing is downloaded, and the pinned versions give the same pixels on every run.

Each image is drawn on its own, from random numbers alone. Digits is the exception: 1,797
handwritten digits, which scikit-learn carries, are divided among the splits, and the 797 of the
test set are drawn two or three times each.
"""

import hashlib
import shutil
from pathlib import Path

from PIL import Image

from pvera.data.suite import natural, specialized, structured
from pvera.data.suite.drawing import COUNTS, SyntheticSplit, SyntheticTask
from pvera.errors import catch_os_errors

#: The tasks by name, in the order of tables.
SYNTHETIC_TASKS = {
    task.name: task for task in (*natural.TASKS, *specialized.TASKS, *structured.TASKS)
}

#: `pixels_sha256` of each task as published; other versions of the packages may give other pixels.
SHA256 = {
    "digits": "790c47d511235a2795dd985e1c1d8c109564e2aecf6474367fb6385bb53df91a",
    "textures": "6a3da52704884c3b550317eab95a880bc4f899bb1bc72f7e925212c89dc88885",
    "flowers": "5c0959a1fc90dcb2de50fa5cd9e5ea33cfc1732a26430c63267779f045dc60bd",
    "scenes": "24839dd738c7d98c83e638d52d901a9945e06ca67574570eab04f9db3611e699",
    "nuclei": "2070c0e1b4d8673d5fbba64d5c4118ef96116efbcb968c118b4c2ea3a791e159",
    "vessels": "b78bba807f3cf9659ddcd1c14048ae5d8f3541ca466cc923236d78fccbeb2396",
    "landcover": "1d0a4706f0ed5dbbdd2853161e077e97630e005aeab53f41180426d9b9ee9e1d",
    "blood": "7e7d521745d45a10ba0ca3395a195189385ba406eebd925cb26f3bb7adb954ae",
    "counting": "addea45bb4eec8750340b8fe9239facc7c166e445046d4b5987bc2b877de9a3d",
    "sprites": "9d58ade4ee4caf96ffb5265fbb3b2ff6524839a5b2c30328585d6ec786a673d3",
    "distance": "bb7105468e35c45446b34fa6fe3224b5e3ef9fa0ad74e3a76fef819bfed0c4bf",
    "azimuth": "6ac9b2ed3e366ba732323f1ffccf97a85d4bb90f2a86a4fe3893f2a16a751f55",
}

#: The tasks that are about an object; masks hold its pixels.
WITH_OBJECTS = (
    "digits",
    "flowers",
    "nuclei",
    "vessels",
    "blood",
    "counting",
    "sprites",
    "distance",
    "azimuth",
)


def _path(split_file: str, index: int) -> str:
    return f"images/{split_file}/{index:04d}.png"


def pixels_sha256(splits: dict[str, SyntheticSplit]) -> str:
    """Return the SHA-256 of the hashes of all splits, which are of paths, labels and pixels."""
    sums = ""
    for split_file, drawn in splits.items():
        sha = hashlib.sha256()
        for i, (image, label) in enumerate(zip(drawn.images, drawn.labels, strict=True)):
            sha.update(f"{_path(split_file, i)} {label}\n".encode())
            sha.update(image.tobytes())
        sums += sha.hexdigest()
    return hashlib.sha256(sums.encode()).hexdigest()


def write(task: SyntheticTask, root: Path) -> str:
    """Draw one task and write it to the new folder `<root>/<name>`, whole or not at all.

    Returns:
        Its `pixels_sha256`.

    Raises:
        InputError: The system refuses to write.
    """
    partial = root / f".{task.name}.partial"
    splits = {split_file: task.draw(split_file) for split_file in COUNTS}
    with catch_os_errors(root):
        # What a call left that was killed.
        shutil.rmtree(partial, ignore_errors=True)
        for split_file, drawn in splits.items():
            _write_split(partial, split_file, drawn)
        partial.rename(root / task.name)
    return pixels_sha256(splits)


def _write_split(folder: Path, split_file: str, drawn: SyntheticSplit) -> None:
    (folder / "images" / split_file).mkdir(parents=True)
    lines = []
    for i, (image, label) in enumerate(zip(drawn.images, drawn.labels, strict=True)):
        path = _path(split_file, i)
        Image.fromarray(image).save(folder / path, compress_level=1)
        lines.append(f"{path} {label}\n")
    (folder / f"{split_file}.txt").write_text("".join(lines))
