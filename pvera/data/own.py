"""One's own pictures as a data set: checked, split, and written as lists that `image_folders` reads.

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
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
from tqdm import tqdm

from pvera import files
from pvera.data import listings
from pvera.data.image_folders import SPLIT_OF
from pvera.data.listings import PARTS, Listing, Picture
from pvera.data.tasks import MANIFEST, TASKS, manifest
from pvera.errors import InputError, writing
from pvera.processes import cores

VERSION = 3  # raised whenever `install` writes other files for the same pictures
#: Shares of a class's distinct pictures that are drawn; VTAB-1k's validation split is a fifth of its training images.
SHARES = {"test": 0.2, "validation": 0.16}
SHARE_OF_TRAINING = 0.2
RECORDED = ("split", "classes", "pictures_sha256")  # parts of the description that result files repeat
SHOWN = 5  # names in an error


def install(
    root: str | Path,
    name: str,
    source: str | Path,
    seed: int | None = None,
    whole: Sequence[str] | None = None,
    check: Callable[[dict], None] = lambda described: None,
) -> dict:
    """Write the lists of a data set below `root`, and return its description (`tasks.manifest`).

    seed: draws the splits that `source` does not give, per class, by content: neither the names of files nor other
    classes matter, and copies of a picture stay together. None: the seed of the lists that lie there, else 0.
    whole: the classes of a trained adapter; all pictures are then test images, of some of these classes.
    check: is given the description before anything is written, and may raise InputError.
    What lies there is kept while neither pictures nor options have changed. InputError for all that is wrong.
    """
    folder = _folder(root, name)
    listing = listings.read(source)
    described = manifest(root, name)
    if seed is None:
        seed = drawn_from(described) or 0
    stamp = _stamp(listing, seed, whole)
    if described and described.get("stamp") == stamp:
        check(described)
        return described
    listing, contents = _by_content(listing, _contents(listing))
    _check_labels(source, listing, contents)
    classes = list(whole or listings.classes({picture.label for picture in listing.pictures}))
    if whole is not None:
        parts = ["test"] * len(listing.pictures)
        split = {"given": [], "test": "all pictures"}
        _check_known(source, listing, classes)
    else:
        parts, split = _parts(listing, contents, seed)
        _check_parts(source, listing, contents, parts, classes)
    described = {
        "source": str(Path(source).absolute()),
        "classes": classes,
        "images": {part: parts.count(part) for part in PARTS},
        "split": split,
        "pictures_sha256": _pictures_sha256(listing, contents),
        "left_out": len(listing.left_out),
        "stamp": stamp,
    }
    check(described)
    _write(folder, listing, parts, described)
    return described


def describe(name: str, described: dict) -> str:
    """Return one line about a data set from its description."""
    counts = ", ".join(f"{count} {part}" for part, count in described["images"].items() if count)
    line = f"{name}: {len(described['classes'])} classes; images: {counts}; {describe_split(described['split'])}"
    count = described["left_out"]
    return line + f"; {count} file{'s' * (count > 1)} without an image's suffix left out" * bool(count)


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


def other_seed(root: str | Path, name: str, seed: int | None) -> int | None:
    """Return the seed of the lists that lie below `root`, where it is not `seed`: trainings may read them."""
    drawn = drawn_from(manifest(root, name))
    return drawn if None not in (drawn, seed) and drawn != seed else None


def provenance(root: str | Path, name: str) -> dict:
    """Return what a result file says of one's own data set, {} for the known ones: splits, classes, pictures."""
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
    """Return the SHA-256 of all that the lists depend on; files count by size and time.

    InputError names files that are missing, and those whose names no list can hold.
    """
    digest = hashlib.sha256(repr((VERSION, str(listing.folder), seed, whole and list(whole))).encode())
    odd = [ascii(picture.path) for picture in listing.pictures if not _can_stand_in_a_list(picture.path)]
    if odd:
        raise InputError(f"{listing.folder}: rename {_some('picture', odd)}: line break, space at an end, or no UTF-8")
    lost = []
    for picture in listing.pictures:
        try:
            status = files.status(listing.folder / picture.path)
        except (OSError, ValueError):
            lost.append(picture.path)
        else:
            about = (picture.path, picture.label, picture.part, status.st_size, status.st_mtime_ns)
            digest.update(f"{about}\n".encode())
    if lost:
        raise InputError(f"{listing.folder} lacks {_some('picture', lost)} of the list")
    return digest.hexdigest()


def _can_stand_in_a_list(path: str) -> bool:
    """Return whether a line of a split file can hold the path."""
    utf_8 = path.encode(errors="replace").decode() == path
    return utf_8 and bool(re.fullmatch(r"\S|\S[^\r\n]*\S", path))


def _contents(listing: Listing) -> list[str]:
    """Return the SHA-256 of each file."""
    paths = [listing.folder / picture.path for picture in listing.pictures]

    def read(path: Path) -> str:
        try:
            return files.sha256(path)
        except OSError as error:
            raise InputError(f"image {path} cannot be read: {error.strerror or error}") from None

    with ThreadPoolExecutor(cores()) as pool:
        few = len(paths) <= 2000
        return list(tqdm(pool.map(read, paths), "checking", len(paths), unit="image", leave=False, disable=few))


def _by_content(listing: Listing, contents: list[str]) -> tuple[Listing, list[str]]:
    """Return pictures and contents in the order of the contents, which the names of files and classes do not change.

    The published program trains in the order of the lists, and `--images` takes their first images.
    """
    pairs = sorted(zip(contents, listing.pictures, strict=True), key=lambda pair: (pair[0], pair[1].path))
    return replace(listing, pictures=[picture for _, picture in pairs]), [content for content, _ in pairs]


def _pictures_sha256(listing: Listing, contents: list[str]) -> str:
    """Return the SHA-256 of all that splits are drawn from: contents, labels and given splits, not names or places."""
    pictures = zip(contents, listing.pictures, strict=True)
    return files.digest(sorted([content, picture.label, picture.part or ""] for content, picture in pictures))


def _some(what: str, names: Sequence[str]) -> str:
    """Return a number and a few names."""
    shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
    return f"{len(names)} {what}{'s' * (len(names) > 1)} ({shown})"


# Checks


def _check_labels(source, listing: Listing, contents: list[str]) -> None:
    """Raise InputError for pictures that stand twice in the lists, or have two labels."""
    paths = Counter(picture.path for picture in listing.pictures)
    if twice := [path for path, count in paths.items() if count > 1]:
        raise InputError(f"{source} lists {_some('picture', twice)} more than once")
    first: dict[str, Picture] = {}
    pairs = [
        f"{first[content].path} and {picture.path}"
        for picture, content in zip(listing.pictures, contents, strict=True)
        if first.setdefault(content, picture).label != picture.label
    ]
    if pairs:
        raise InputError(f"{source} has {_some('equal picture', pairs)} with different labels: keep one of each")


def _check_known(source, listing: Listing, classes: Iterable[str]) -> None:
    if unknown := sorted({picture.label for picture in listing.pictures} - set(classes)):
        raise InputError(f"{source} has {_some('label', unknown)} that the adapter does not know: {', '.join(classes)}")


def _check_parts(source, listing: Listing, contents: list[str], parts: list[str], classes: list[str]) -> None:
    """Raise InputError for fewer than two classes, a class without training pictures, and splits that overlap."""
    if len(classes) < 2:
        raise InputError(f"{source} has one class, {classes[0]!r}; a classifier needs two or more")
    trained = {picture.label for picture, part in zip(listing.pictures, parts, strict=True) if part == "train"}
    if untrained := [label for label in classes if label not in trained]:
        raise InputError(f"{source} has {_some('class', untrained)} without a training picture")
    first: dict[str, tuple[str, str]] = {}
    pairs = []
    for picture, content, part in zip(listing.pictures, contents, parts, strict=True):
        path, other = first.setdefault(content, (picture.path, part))
        if other != part:
            pairs.append(f"{path} in {other} and {picture.path} in {part}")
    if pairs:
        raise InputError(f"{source} has {_some('equal picture', pairs)} in two splits: keep one of each")


# Splits


def _parts(listing: Listing, contents: list[str], seed: int) -> tuple[list[str], dict]:
    """Return the split of each picture, and what a description says of the splits."""
    given = {picture.part for picture in listing.pictures} - {None}
    if "validation" in given:
        return [str(picture.part) for picture in listing.pictures], {"given": list(PARTS), "drawn": {}}
    shares = {"validation": SHARE_OF_TRAINING} if given else SHARES
    of_label: dict[str, set[str]] = {}
    for picture, content in zip(listing.pictures, contents, strict=True):
        if picture.part != "test":
            of_label.setdefault(picture.label, set()).add(content)
    drawn: dict[str, str] = {}
    for label, distinct in of_label.items():
        drawn |= _draw(label, sorted(distinct), shares, seed)
    parts = [
        "test" if picture.part == "test" else drawn[content]
        for picture, content in zip(listing.pictures, contents, strict=True)
    ]
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


# Writing


def _write(folder: Path, listing: Listing, parts: list[str], described: dict) -> None:
    """Write link, lists and description, the last one last."""
    labels = {label: index for index, label in enumerate(described["classes"])}
    lines: dict[str, list[str]] = {part: [] for part in PARTS}
    for picture, part in zip(listing.pictures, parts, strict=True):
        lines[part].append(f"images/{picture.path} {labels[picture.label]}\n")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        link = folder / "images"
        link.unlink(missing_ok=True)
        link.symlink_to(listing.folder.resolve(), target_is_directory=True)
    for part, split in SPLIT_OF.items():
        files.write_atomically(folder / f"{split}.txt", "".join(lines[part]).encode())
    content = json.dumps(described, indent=1, ensure_ascii=False) + "\n"
    files.write_atomically(folder / MANIFEST, content.encode())
