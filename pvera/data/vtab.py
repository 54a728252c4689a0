"""Checks of VTAB-1k on disk: which of the two circulating copies it is, and whether it is complete."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path

from PIL import Image

from pvera import files
from pvera.data.image_folders import SPLITS, Entry, read_split_file
from pvera.data.tasks import TASKS, Task
from pvera.errors import InputError
from pvera.files import sha256, write_atomically

RECORD = "vtab-1k.json"
NAMES = tuple(task.name for task in TASKS.values() if task.suite == "vtab")
TRAINING = {"train800": 800, "val200": 200, "train800val200": 1000}  # images
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
    return _name(root, read_record(root), name)


def _name(root: str | Path, record: dict, name: str | None = None) -> str | None:
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
    """Read `RECORD` in `root`, without the name of the copy, which only people read.

    datasets: per name its source (origin), the checksum of each split at first use (checksums), and accepted
    differences from VTAB-1k (differs).
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
    """Write `RECORD` in `root`, with the name of the copy. InputError where the system refuses."""
    record = {"copy": _name(root, record)} | record
    write_atomically(root / RECORD, (json.dumps(record, indent=1) + "\n").encode())


def known_checksums(copy: str | None) -> dict[str, dict[str, str]]:
    """Return the known checksums of a published copy, per data set and split."""
    return json.loads((resources.files(__package__) / "vtab_checksums.json").read_text()).get(copy, {})


# Whether it is whole


@dataclass
class Verdict:
    """The result of checking one data set.

    states: "right", "wrong" or "missing" per split.
    findings: why a split is not right.   notes: further remarks.
    checksums: SHA-256 of the lines "path label" of each readable split.
    accepted: the record accepts the data set with these findings.
    """

    name: str
    states: dict[str, str] = field(default_factory=lambda: dict.fromkeys(SPLITS, "right"))
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checksums: dict[str, str] = field(default_factory=dict)
    accepted: bool = False

    @property
    def right(self) -> bool:
        return set(self.states.values()) == {"right"}

    @property
    def usable(self) -> bool:
        return self.right or self.accepted

    def wrong(self, split: str, why: str, state: str = "wrong") -> None:
        self.states[split] = state
        self.findings.append(f"{split}: {why}")


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
    verdict, task, folder = Verdict(name), TASKS[name], Path(root) / name
    if not folder.is_dir():
        verdict.states = dict.fromkeys(SPLITS, "missing")
        verdict.findings.append("no such folder")
        return verdict
    entry = record["datasets"].get(name, {"checksums": {}})
    recorded, known = entry["checksums"], known_checksums(_name(root, record, name)).get(name, {})
    splits = {}
    for split in SPLITS:
        if not (folder / f"{split}.txt").exists():
            verdict.wrong(split, f"{split}.txt does not exist", "missing")
            continue
        try:
            splits[split] = read_split_file(folder, split, task.classes)
        except InputError as error:
            verdict.wrong(split, str(error).replace(f"{folder}{os.sep}", ""))
            continue
        lines = "".join(f"{path} {label}\n" for path, label, _ in splits[split])
        verdict.checksums[split] = checksum = hashlib.sha256(lines.encode()).hexdigest()
        if checksum != known.get(split, checksum):
            verdict.wrong(split, "names and labels are not those of the published copy")
        if checksum != recorded.get(split, checksum):
            verdict.wrong(split, f"names and labels have changed since they were recorded in {RECORD}")
        _check_counts(verdict, task, split, splits[split], record["test_images"])
    paths = {split: {os.path.normpath(entry.path) for entry in entries} for split, entries in splits.items()}
    _check_overlap(verdict, paths)
    if images:
        _check_images(verdict, folder, paths)
    verdict.accepted = bool(verdict.findings) and set(verdict.findings) <= set(entry.get("differs", ()))
    return verdict


def _check_counts(verdict: Verdict, task: Task, split: str, entries: list[Entry], test_images: int | None) -> None:
    expected = TRAINING.get(split) or test_images or task.test_images
    if len(entries) != expected:
        shortened = f", to which {RECORD} shortens" if split == "test" and test_images else ""
        verdict.wrong(split, f"{len(entries)} images, not {expected}{shortened}")
    # Smaller splits need not have an image of every class.
    absent = task.classes - len({entry.label for entry in entries})
    if not absent or split not in ("train800val200", "test") or split == "test" and test_images:
        return
    if split == "train800val200" and absent <= ABSENT.get(task.name, 0):
        verdict.notes.append(f"{split}: no image of {absent} of {task.classes} classes, as in every copy")
    else:
        verdict.wrong(split, f"no image of {absent} of {task.classes} classes")


def _check_overlap(verdict: Verdict, paths: dict[str, set[str]]) -> None:
    """Find images that two splits share."""
    train, validation = (paths.get(split, set()) for split in ("train800", "val200"))
    training = train | validation | paths.get("train800val200", set())
    for split, others, title in (("test", training, "training"), ("val200", train, "train800")):
        if shared := paths.get(split, set()) & others:
            verdict.wrong(split, f"{len(shared)} images are {title} images as well, one is {min(shared)}")
    if "train800val200" in paths and train | validation and training != train | validation:
        verdict.notes.append("train800val200: not the images of train800 and val200 (no run reads it)")


def _check_images(verdict: Verdict, folder: Path, paths: dict[str, set[str]]) -> None:
    """Find images that do not exist, and test images that equal a training image."""
    sizes = {}
    for split in paths:
        missing = []
        for path in paths[split] - sizes.keys():
            try:
                sizes[path] = files.status(folder / path).st_size
            except (OSError, ValueError):
                missing.append(path)
        if missing:
            verdict.wrong(split, f"{len(missing)} images do not exist as files, one is {min(missing)}")

    # Equal files have equal sizes, so few have to be read.
    training = set().union(*(paths.get(split, set()) for split in TRAINING))
    twins = {sizes.get(path) for path in training} - {None}
    contents = {_content(folder / path) for path in training if path in sizes} - {None}
    test = paths.get("test", set()) - training
    copies = [path for path in test if sizes.get(path) in twins and _content(folder / path) in contents]
    if copies:
        verdict.notes.append(f"test: {len(copies)} images equal a training image byte for byte, one is {min(copies)}")


def _content(file: Path) -> str | None:
    """Return the SHA-256 of a file, None where it cannot be read."""
    with suppress(OSError):
        return sha256(file)
