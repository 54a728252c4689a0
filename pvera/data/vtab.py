"""Checks of VTAB-1k on disk: which of the two circulating copies it is, and whether it is complete."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from pvera import files
from pvera.data.image_folders import SPLITS, Entry, read_split_file
from pvera.data.tasks import TASKS, Task
from pvera.errors import InputError

RECORD = "vtab-1k.json"
NAMES = tuple(task.name for task in TASKS.values() if task.suite == "vtab")
TRAINING = {"train800": 800, "val200": 200}  # images
#: Classes without any training image, in every copy.
ABSENT = {"sun397": 1}
#: Data sets whose originals are stored without loss. Originals of the others are JPEG files, as in both copies.
LOSSLESS_ORIGINALS = (
    "cifar",
    "svhn",
    "patch_camelyon",
    "clevr_count",
    "clevr_dist",
    "dsprites_loc",
    "dsprites_ori",
    "kitti",
    "smallnorb_azi",
    "smallnorb_ele",
)
DIFFERS = "differs from VTAB-1k"


# Which copy


def copy_name(root: str | Path, name: str | None = None) -> str | None:
    """Return "lossy" where data sets with lossless originals are JPEG files, "lossless" where they are not.

    "mixed" where both occur, None where no such data set is there. The content of each split's first image decides.
    The name adds what `RECORD` says: test splits shortened for a trial, data accepted although it differs from
    VTAB-1k. With `name`, this data set alone decides, unless the copies agree in it.
    """
    record = read_record(root)
    names = [name] if name in LOSSLESS_ORIGINALS else LOSSLESS_ORIGINALS
    kinds = {kind for each in names for kind in _kinds(Path(root) / each)}
    copy = [kinds.pop() if len(kinds) == 1 else "mixed"] if kinds else []
    if record["test_images"]:
        copy.append(f"{record['test_images']} test images")
    if any("differs" in entry for each, entry in record["datasets"].items() if name in (None, each)):
        copy.append(DIFFERS)
    return ", ".join(copy) or None


def _kinds(folder: Path) -> Iterator[str]:
    for split in SPLITS:
        try:
            files.status(folder / f"{split}.txt")
            with open(folder / f"{split}.txt", encoding="utf-8-sig") as lines:
                path = next(lines).rsplit(maxsplit=1)[0]
            files.status(folder / path)
            with Image.open(folder / path) as image:
                yield "lossy" if image.format in ("JPEG", "MPO") else "lossless"
        except (OSError, ValueError, IndexError, StopIteration):
            continue  # `check` reports it


# What is known about it


def read_record(root: str | Path) -> dict:
    """Read `RECORD` in `root`.

    datasets: per name its source (origin), and accepted differences from VTAB-1k (differs).
    test_images: number of images of shortened test splits, or None.
    """
    try:
        record = json.loads((Path(root) / RECORD).read_text())
        return {"datasets": dict(record["datasets"]), "test_images": record["test_images"]}
    except FileNotFoundError:
        return {"datasets": {}, "test_images": None}
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{Path(root) / RECORD} is damaged ({reason}): remove it to record anew") from None


def write_record(root: Path, record: dict) -> None:
    """Write `RECORD` in `root`. InputError where the system refuses."""
    files.write_atomically(root / RECORD, (json.dumps(record, indent=1) + "\n").encode())


# Whether it is whole


@dataclass(frozen=True)
class Verdict:
    """The result of checking one data set: findings, why it is not VTAB-1k's.

    readable: each split file was read, so that it could train.   accepted: it may train with these findings.
    """

    name: str
    findings: list[str]
    readable: bool = True
    accepted: bool = False

    @property
    def usable(self) -> bool:
        return self.accepted or not self.findings

    def accept(self) -> Verdict:
        """Return the verdict with its findings accepted, unless a split file cannot be read."""
        return replace(self, accepted=bool(self.findings) and self.readable)


def require(data: Iterable[tuple[str | Path, str]]) -> None:
    """Raise InputError unless each (root, data set) of VTAB-1k has VTAB-1k's lists of images, or is accepted as it
    is. Other data sets pass."""
    for root, name in dict.fromkeys(data):
        if name not in NAMES:
            continue
        verdict = check(root, name, read_record(root), images=False)
        if not verdict.usable:
            raise InputError(
                f"{Path(root) / name} is not VTAB-1k's {TASKS[name].title}: {verdict.findings[0]}; `python "
                f"experiments/prepare_vtab.py --root {root} --datasets {name}` lists all differences, with --replace "
                "puts VTAB-1k's in its place, with --accept uses it as it is, and results then say so"
            )


def check(root: str | Path, name: str, record: dict, images: bool = True) -> Verdict:
    """Compare the data set `name` below `root` with VTAB-1k. Decodes nothing.

    record: as `read_record` returns it.   images: look for the image files too.
    """
    task, folder = TASKS[name], Path(root) / name
    if not folder.is_dir():
        return Verdict(name, ["no such folder"], readable=False)
    splits: dict[str, list[Entry]] = {}
    findings = []
    for split in SPLITS:
        try:
            splits[split] = read_split_file(folder, split, task.classes)
        except InputError as error:
            findings.append(f"{split}: {str(error).replace(f'{folder}{os.sep}', '')}")
    findings += _counts(task, splits, record["test_images"])
    paths = {split: {os.path.normpath(entry.path) for entry in entries} for split, entries in splits.items()}
    for one, other in (("test", "train800"), ("test", "val200"), ("val200", "train800")):
        if shared := paths.get(one, set()) & paths.get(other, set()):
            findings.append(f"{one}: {len(shared)} images are {other} images as well, one is {min(shared)}")
    if images:
        for split, of_split in paths.items():
            if missing := [path for path in of_split if not _is_file(folder / path)]:
                findings.append(f"{split}: {len(missing)} images do not exist as files, one is {min(missing)}")
    accepted = set(findings) <= set(record["datasets"].get(name, {}).get("differs", ()))
    verdict = Verdict(name, findings, readable=len(splits) == len(SPLITS))
    return verdict.accept() if accepted else verdict


def _counts(task: Task, splits: dict[str, list[Entry]], test_images: int | None) -> Iterator[str]:
    """Yield what is wrong with numbers of images and classes."""
    for split, entries in splits.items():
        expected = TRAINING.get(split) or test_images or task.test_images
        if len(entries) != expected:
            shortened = f", to which {RECORD} shortens" if split == "test" and test_images else ""
            yield f"{split}: {len(entries)} images, not {expected}{shortened}"
    training = [entry for split in TRAINING for entry in splits.get(split, ())]
    if absent := max(0, task.classes - len({entry.label for entry in training}) - ABSENT.get(task.name, 0)):
        yield f"training: no image of {absent} of {task.classes} classes"
    absent = task.classes - len({entry.label for entry in splits.get("test", ())})
    if absent and not test_images:
        yield f"test: no image of {absent} of {task.classes} classes"


def _is_file(path: Path) -> bool:
    try:
        files.status(path)
    except (OSError, ValueError):
        return False
    return True
