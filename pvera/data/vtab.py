"""Checks of VTAB-1k on disk: which of the two circulating copies it is, and whether it is complete."""

import os
import shlex
from contextlib import suppress
from itertools import product
from pathlib import Path

from PIL import Image

from pvera import files
from pvera.data.split_files import SPLITS, read_split_file
from pvera.data.tasks import TASKS
from pvera.errors import InputError

#: Data sets that are used although they differ from VTAB-1k, with the findings that were accepted.
RECORD = "vtab-1k.json"
NAMES = tuple(task.name for task in TASKS.values() if task.suite == "vtab")
TRAINING = {"train800": 800, "val200": 200}  # images
#: Classes that the 1,000 images show where these are not all: SUN397 has 309 in train800 and 136 in val200.
SHOWN = {"sun397": 325}
#: Data sets whose originals are stored without loss. Originals of the others are JPEG files, as in both copies.
LOSSLESS_ORIGINALS = ("cifar", "svhn", "patch_camelyon", "clevr_count", "clevr_dist", "dsprites_loc", "dsprites_ori",
                      "kitti", "smallnorb_azi", "smallnorb_ele")  # fmt: skip
DIFFERS = "differs from VTAB-1k"


def copy_name(root: str | Path, name: str | None = None) -> str | None:
    """Return "lossy" where data sets with lossless originals are JPEG files, "lossless" where they are not.

    "mixed" where both occur, None where no such data set is there. The content of each split's first image decides.
    With `name`, this data set alone decides, unless the copies agree in it. One that was accepted although it differs
    from VTAB-1k is of neither copy: `DIFFERS`.
    """
    accepted = {each for each, findings in read_record(root).items() if findings}
    if name in accepted:
        return DIFFERS
    names = [name] if name in LOSSLESS_ORIGINALS else LOSSLESS_ORIGINALS
    kinds = set()
    for folder, split in product(
        (Path(root) / each for each in names if each not in accepted), SPLITS
    ):
        with suppress(OSError, ValueError, IndexError):  # `check` reports it
            path = files.read_text(folder / f"{split}.txt").splitlines()[0].rsplit(maxsplit=1)[0]
            with Image.open(folder / path) as image:
                kinds.add("lossy" if image.format in ("JPEG", "MPO") else "lossless")
    return kinds.pop() if len(kinds) == 1 else "mixed" if kinds else None


def provenance(root: str | Path, name: str) -> dict:
    """Return what a result file says of the data set `name`: the copy; and what differs, where that was accepted."""
    findings = read_record(root).get(name)
    return {"data_copy": copy_name(root, name)} | ({"data_differs": findings} if findings else {})


def read_record(root: str | Path) -> dict[str, list[str]]:
    """Read `RECORD` in `root`: the accepted findings of data sets."""
    file = Path(root) / RECORD
    return files.read_json(file, "remove it to record anew") if file.exists() else {}


def require(root: str | Path, name: str) -> None:
    """Raise InputError for a data set of `NAMES` without VTAB-1k's lists of images, unless it is accepted as it is."""
    findings = check(root, name, images=False) if name in NAMES else []
    if set(findings) <= set(read_record(root).get(name, ())):
        return
    folder = Path(root) / name
    words = ["python", "experiments/prepare_vtab.py", "--root", str(root), "--datasets", name]
    command = shlex.join(words)
    advice = (
        f"`{command}` lists all differences; with --accept it is used as it is, and results say so"
    )
    if not folder.exists():
        advice = (
            f"`{command}` installs it from the hub, with --source COPY from an archive or a folder"
        )
    raise InputError(f"{folder} is not VTAB-1k's {TASKS[name].title}: {findings[0]}; {advice}")


def check(root: str | Path, name: str, images: bool = True) -> list[str]:
    """Return how the data set `name` below `root` differs from VTAB-1k. Decodes nothing.

    images: look for the image files too.
    """
    task, folder = TASKS[name], Path(root) / name
    if not folder.is_dir():
        return ["no such folder"]
    splits: dict[str, dict[str, int]] = {}
    findings = []
    for split in SPLITS:
        try:
            splits[split] = read_split_file(folder, split, task.classes)
        except InputError as error:
            findings.append(f"{split}: {str(error).replace(f'{folder}{os.sep}', '')}")
            continue
        expected = TRAINING.get(split, task.test_images)
        if len(splits[split]) != expected:
            findings.append(f"{split}: {len(splits[split])} images, not {expected}")
    classes = {
        "training": (TRAINING, SHOWN.get(name, task.classes)),
        "test": (["test"], task.classes),
    }
    for part, (names, expected) in classes.items():
        labels = {label for split in names for label in splits.get(split, {}).values()}
        if len(labels) < expected:
            findings.append(f"{part}: images of {len(labels)} classes, not {expected}")
    for split, label_of in splits.items() if images else ():
        if missing := [path for path in label_of if not (folder / path).is_file()]:
            findings.append(
                f"{split}: {len(missing)} images do not exist as files, one is {min(missing)}"
            )
    return findings
