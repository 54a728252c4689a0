"""Your own pictures as a data set: checked, split, and written as lists that `image_folders` reads.

    install("data/own", "pets", "/home/me/pets")    # any form that `listings` knows

writes <root>/<name>/: `images`, a link to the pictures, which stay where they are; `train800.txt`, `val200.txt` and
`test.txt` (VTAB-1k's names, whatever the counts); and the description that `tasks.manifest` returns.

Checked are names, counts per class and split, files that are missing, pictures with two labels and pictures in two
splits, by path and by content. Damaged pictures are named when the store decodes them.
"""

import hashlib
import json
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from pvera import files
from pvera.data import listings, store
from pvera.data.image_folders import SPLIT_OF
from pvera.data.listings import PARTS, Listing
from pvera.data.tasks import MANIFEST, TASKS, manifest
from pvera.errors import InputError, writing
from pvera.processes import cores

VERSION = 4  # raised whenever `install` writes other files for the same pictures
#: Shares of a class's distinct pictures that are drawn; VTAB-1k's validation split is a fifth of its training images.
SHARES = {"test": 0.2, "validation": 0.16}
SHARE_OF_TRAINING = 0.2
RECORDED = ("split", "classes", "pictures_sha256")  # parts of the description that result files repeat
SHOWN = 5  # names in an error


def install(
    root: str | Path, name: str, source: str | Path, seed: int | None = None, whole: Sequence[str] | None = None
) -> dict:
    """Write the lists of a data set below `root`, and return its description (`tasks.manifest`).

    seed: draws the splits that `source` does not give, per class, by content: neither the names of files nor other
    classes matter, and copies of a picture stay together. None: the seed of the lists that lie there, else 0.
    whole: the classes of a trained adapter, [] where they are not known; all pictures are then test images, of some of
    these classes.
    What lies there is kept while neither pictures nor options have changed. InputError for all that is wrong.
    """
    folder = _folder(root, name)
    listing = listings.read(source)
    described = manifest(root, name)
    if seed is None:
        seed = drawn_from(described) or 0
    stamp = _stamp(listing, seed, whole)
    if described and described.get("stamp") == stamp:
        return described
    # In the order of the contents, which the names of files and classes do not change: the published program trains in
    # the order of the lists, and `--images` takes their first images.
    pictures = listing.pictures.assign(content=_contents(listing))
    pictures = pictures.sort_values(["content", "path"], ignore_index=True)
    of_splits = zip(pictures.content, pictures.label, pictures.part, strict=True)
    pictures_sha256 = files.digest(sorted([content, label, part or ""] for content, label, part in of_splits))
    _check_labels(source, pictures)
    if whole is not None:
        classes = list(whole) or listings.classes(pictures.label)
        split = {"given": [], "test": "all pictures"}
        pictures["part"] = "test"
        if unknown := sorted(set(pictures.label) - set(classes)):
            known = ", ".join(classes)
            raise InputError(f"{source} has {_some('label', unknown)} that the adapter does not know: {known}")
    else:
        classes = listings.classes(pictures.label)
        pictures["part"], split = _parts(pictures, seed)
        _check_parts(source, pictures, classes)
    described = {
        "source": str(Path(source).absolute()),
        "classes": classes,
        "images": {part: int((pictures.part == part).sum()) for part in PARTS},
        "split": split,
        "pictures_sha256": pictures_sha256,
        "left_out": listing.left_out,
        "stamp": stamp,
    }
    _write(folder, listing.folder, pictures, described)
    return described


def describe(name: str, described: dict) -> str:
    """Return one line about a data set from its description."""
    counts = ", ".join(f"{count} {part}" for part, count in described["images"].items() if count)
    line = f"{name}: {len(described['classes'])} classes; images: {counts}; {describe_split(described['split'])}"
    if described["left_out"]:
        line += f"; left out for want of an image's suffix: {described['left_out']}"
    return line


def describe_split(split: dict) -> str:
    """Return words for the splits that a description says: given, or drawn from which seed."""
    if "test" in split:
        return "all pictures are test images"
    if not split["drawn"]:
        return "splits as given"
    shares = ", ".join(f"{share:.0%} {part}" for part, share in split["drawn"].items())
    given = f"{' and '.join(split['given'])} as given, " if split["given"] else ""
    return f"{given}stratified split from seed {split['seed']}: {shares}"


def drawn_from(described: dict | None) -> int | None:
    """Return the seed of the split that a description or a record's `own_data` says; None without one."""
    return (described or {}).get("split", {}).get("seed")


def provenance(root: str | Path, name: str) -> dict:
    """Return what a result file says of your own data set, {} for the known ones: splits, classes, pictures."""
    described = manifest(root, name)
    return {"own_data": {key: described[key] for key in RECORDED if key in described}} if described else {}


def _folder(root: str | Path, name: str) -> Path:
    """Return the folder of the data set. InputError for a name that is taken or cannot name a folder of results."""
    if name in TASKS:
        raise InputError(f"{name!r} is the name of a data set that is known already; choose another name for yours")
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise InputError(f"{name!r} cannot name a data set: use letters, digits, '_', '-' and '.'")
    folder = Path(os.path.abspath(root)) / name
    if folder.exists() and not (folder / MANIFEST).exists():
        raise InputError(f"{folder} exists and is no data set that --data-set wrote: remove it, or choose another name")
    return folder


def _stamp(listing: Listing, seed: int, whole: Sequence[str] | None) -> str:
    """Return the SHA-256 of all that the lists depend on; files count by size and times.

    InputError names files that are missing, and those whose names no list can hold.
    """
    digest = hashlib.sha256(repr((VERSION, str(listing.folder), seed, whole and list(whole))).encode())
    paths = list(listing.pictures.path)
    if odd := [ascii(path) for path in paths if not _can_stand_in_a_list(path)]:
        raise InputError(f"{listing.folder}: rename {_some('picture', odd)}: line break, space at an end, or no UTF-8")
    lost = []
    for picture in listing.pictures.itertuples(index=False):
        try:
            digest.update(repr((*picture, store.state(listing.folder / picture.path))).encode())
        except (OSError, ValueError):
            lost.append(picture.path)
    if lost:
        raise InputError(f"{listing.folder} lacks {_some('picture', lost)} of the list")
    return digest.hexdigest()


def _can_stand_in_a_list(path: str) -> bool:
    """Return whether a line of a split file can hold the path."""
    utf_8 = path.encode(errors="replace").decode() == path
    return utf_8 and bool(re.fullmatch(r"\S|\S[^\r\n]*\S", path))


def _contents(listing: Listing) -> list[str]:
    """Return the SHA-256 of each file."""

    def read(path: str) -> str:
        try:
            return files.sha256(listing.folder / path)
        except OSError as error:
            raise InputError(f"image {listing.folder / path} cannot be read: {error.strerror or error}") from None

    paths = list(listing.pictures.path)
    with ThreadPoolExecutor(cores()) as pool:
        return list(tqdm(pool.map(read, paths), "checking", len(paths), unit="image", leave=False, delay=5))


def _some(what: str, names: Sequence[str]) -> str:
    """Return a number and a few names."""
    shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    return f"{len(names)} {what}{'s' if len(names) > 1 else ''} ({shown})"


def _check_labels(source, pictures: pd.DataFrame) -> None:
    """Raise InputError for pictures that stand twice in the lists, or have two labels."""
    if twice := list(pictures.path[pictures.path.duplicated()].unique()):
        raise InputError(f"{source} lists {_some('picture', twice)} more than once")
    if pairs := _unequal(pictures, "label"):
        raise InputError(f"{source} has {_some('equal picture', pairs)} with different labels: keep one of each")


def _check_parts(source, pictures: pd.DataFrame, classes: list[str]) -> None:
    """Raise InputError for fewer than two classes, a class without training pictures, and splits that overlap."""
    if len(classes) < 2:
        raise InputError(f"{source} has one class, {classes[0]!r}; a classifier needs two or more")
    if untrained := [label for label in classes if label not in set(pictures.label[pictures.part == "train"])]:
        raise InputError(f"{source} has {_some('class', untrained)} without a training picture")
    if pairs := _unequal(pictures, "part"):
        raise InputError(f"{source} has {_some('equal picture', pairs)} in two splits: keep one of each")


def _unequal(pictures: pd.DataFrame, column: str) -> list[str]:
    """Return pairs of pictures with equal content that differ in `column`."""
    first = pictures.groupby("content")[["path", column]].transform("first")
    unequal = pictures[column] != first[column]
    return [f"{one} and {other}" for one, other in zip(first.path[unequal], pictures.path[unequal], strict=True)]


def _parts(pictures: pd.DataFrame, seed: int) -> tuple[list[str], dict]:
    """Return the split of each picture, and what a description says of the splits."""
    given = set(pictures.part) - {None}
    if "validation" in given:
        return list(pictures.part), {"given": list(PARTS), "drawn": {}}
    shares = {"validation": SHARE_OF_TRAINING} if given else SHARES
    to_split = pictures[pictures.part != "test"]
    drawn: dict[str, str] = {}
    for label, contents in to_split.groupby("label").content:
        drawn |= _draw(label, sorted(set(contents)), shares, seed)
    parts = ["test" if part == "test" else drawn[c] for part, c in zip(pictures.part, pictures.content, strict=True)]
    return parts, {"given": [part for part in PARTS if part in given], "drawn": dict(shares), "seed": seed}


def _draw(label: str, contents: list[str], shares: dict[str, float], seed: int) -> dict[str, str]:
    """Draw the split of each distinct picture of a class: at least one for each of `shares`, the rest for training."""
    if len(contents) <= len(shares):
        raise InputError(
            f"class {label!r} has {len(contents)} distinct pictures to split, and needs {len(shares) + 1} at least"
        )
    order = np.random.default_rng([seed, *label.encode()]).permutation(len(contents))
    parts = dict.fromkeys(contents, "train")
    for part, share in shares.items():
        count = max(1, round(share * len(contents)))
        parts |= dict.fromkeys((contents[index] for index in order[:count]), part)
        order = order[count:]
    return parts


def _write(folder: Path, pictures_folder: Path, pictures: pd.DataFrame, described: dict) -> None:
    """Write link, lists and description, the last one last."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        link = folder / "images"
        link.unlink(missing_ok=True)
        link.symlink_to(pictures_folder.resolve(), target_is_directory=True)
    for part, split in SPLIT_OF.items():
        of_part = pictures[pictures.part == part]
        labels = (described["classes"].index(label) for label in of_part.label)
        lines = "".join(f"images/{path} {label}\n" for path, label in zip(of_part.path, labels, strict=True))
        files.write_atomically(folder / f"{split}.txt", lines.encode())
    content = json.dumps(described, indent=1, ensure_ascii=False) + "\n"
    files.write_atomically(folder / MANIFEST, content.encode())
