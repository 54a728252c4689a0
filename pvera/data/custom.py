"""Your own pictures as a data set: listed, checked, split, and written as lists that `image_folders` reads.

    pets/cat/1.jpg           a folder per class
    pets/train/cat/1.jpg     folders train, val and test with a folder per class

`install` writes a folder of VTAB-1k's format: `images`, a link to the pictures, which stay where they are; lists with
VTAB-1k's names, whatever the counts; and the description that `tasks.read_manifest` returns.
"""

import hashlib
import json
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import PIL
from PIL import Image
from tqdm import tqdm

from pvera import files
from pvera.data import decoding, split_files, store
from pvera.data.decoding import list_first
from pvera.data.split_files import SPLIT_OF
from pvera.data.tasks import MANIFEST, TASKS, read_manifest
from pvera.errors import InputError, explained, writing

#: Names of the folders of splits.
PART_OF = {"train": "train", "training": "train", "test": "test"}
PART_OF |= dict.fromkeys(("val", "valid", "validation"), "validation")
#: Shares of a class's distinct pictures that are drawn; VTAB-1k's validation split is a fifth of its training images.
SHARES = {"test": 0.2, "validation": 0.16}
SEED = 0  # of the split
#: Folders, in small letters, of file servers (Synology, QNAP, NetApp), macOS, Windows and fsck:
#: thumbnails, copies of earlier days and what was deleted.
SYSTEM = {
    "@eadir",
    "#recycle",
    "#snapshot",
    "@tmp",
    "@recycle",
    "@recently-snapshot",
    "@__thumb",
    "~snapshot",
    "__macosx",
    "network trash folder",
    "temporary items",
    "$recycle.bin",
    "recycler",
    "system volume information",
    "lost+found",
}
#: Why files are left out.
HIDDEN = "hidden"
UNREAD = "in a format that Pillow does not read"
LOOSE = "outside the folders of classes"
#: Range of values, in each channel, of pictures of nearly one colour: 12 bits that are stored in 16
#: end at 16 of 255.
ONE_COLOUR = 16


def read(source: str | Path) -> tuple[pd.DataFrame, Counter[str]]:
    """List the pictures of a folder, and read their contents.

    Returns their table, and how many files are left out, by reason. Columns: path, label (its name), part (None: still
    to be drawn), content (SHA-256 of the file; of files with equal pixels, the smallest), and one_colour
    (whether nearly all of it is). Rows stand in the order of contents, which the names of files and
    classes do not change: the published program trains in the order of the lists, and `--images`
    takes their first images.
    InputError for what has none of the forms above, for files that are missing or cannot be decoded,
    and for names that no line of a list can hold.
    """
    source = Path(os.path.abspath(source))
    if not source.is_dir():
        raise InputError(f"{source} {'is no folder' if source.exists() else 'does not exist'}")
    part_of = {folder: PART_OF.get(folder.name.lower()) for folder in _folders(source)}
    classes: list[tuple[str | None, Path]] = [(None, folder) for folder in part_of]
    if "train" in part_of.values():
        if others := [folder.name for folder, part in part_of.items() if part is None]:
            raise InputError(
                f"{source} has folders of splits, so {others[0]!r} beside them cannot be a class"
            )
        classes = [
            (part, of_class) for folder, part in part_of.items() for of_class in _folders(folder)
        ]
        if "test" not in dict(classes):
            raise InputError(
                f"{source} has splits, but none is named test and has a folder per class; add it, or split none"
            )
    if not classes:
        raise InputError(f"{source} holds no pictures: it takes folders of classes")
    loose, left_out = find(source, besides=[of_class for _, of_class in classes])
    left_out[LOOSE] += len(loose)
    rows = []
    for part, of_class in classes:
        pictures, others = find(of_class)
        if not pictures:
            raise InputError(_why_empty(of_class))
        # The same é has a composed and a decomposed form, and systems write either.
        label = unicodedata.normalize("NFC", of_class.name)
        rows += [(file.relative_to(source).as_posix(), label, part) for file in pictures]
        left_out += others
    if odd := [ascii(path) for path, *_ in rows if not _fits_a_line(path)]:
        raise InputError(f"{source}: rename {list_first(odd)}: a line break, or no UTF-8")
    return _table(source, rows).sort_values(["content", "path"], ignore_index=True), left_out


def split(source: str | Path) -> tuple[pd.DataFrame, dict]:
    """Read pictures and draw the splits that `source` does not give, per class, by content.

    Copies of a picture stay together. Returns the table of `read`, with all splits, and their description.
    InputError as `read`, for fewer than two classes, a class without training pictures, and equal pictures with
    different labels or in two splits.
    """
    table, left_out = read(source)
    labels, parts = table.label, table.part.fillna("")
    given, numbers = set(parts) - {""}, all(re.fullmatch(r"-?[0-9]+", label) for label in labels)
    classes = sorted(set(labels), key=lambda label: (int(label) if numbers else 0, label))
    pictures_sha256 = _digest(table)
    if len(classes) < 2:
        raise InputError(f"{source} has one class, {classes[0]!r}; a classifier needs two or more")
    described = {"given": [part for part in SPLIT_OF if part in given], "drawn": {}}
    if "validation" not in given:
        shares = {"validation": 0.2} if given else SHARES
        drawn: dict[str, str] = {}
        for label, contents in table[parts != "test"].groupby("label").content:
            drawn |= _draw(str(label), sorted(set(contents)), shares)
        table["part"] = table.part.where(parts == "test", table.content.map(drawn))
        described |= {"drawn": shares, "seed": SEED}
    if untrained := sorted({*labels} - {*labels[table.part == "train"]}):
        raise InputError(f"{source} has no training picture of {list_first(untrained)}")
    for column, where in (("label", "with different labels"), ("part", "in two splits")):
        unequal = table.groupby("content")[column].transform("nunique") > 1
        if unequal.any():
            raise InputError(
                f"{source} has equal pictures {where} ({list_first([*table.path[unequal]])}): keep one of each"
            )
    return table, {
        "source": os.path.abspath(source),
        "classes": classes,
        "images": {part: int((table.part == part).sum()) for part in SPLIT_OF},
        "split": described,
        "pictures_sha256": pictures_sha256,
        "left_out": dict(left_out),
        "alike": len(table) - table.content.nunique(),
        "one_colour": int(table.one_colour.sum()),
    }


def install(root: str | Path, name: str, source: str | Path) -> dict:
    """Write the lists of a data set below `root`, and return its description (`tasks.read_manifest`).

    Lists that are right stay untouched. Of several processes one writes, and the others wait.
    InputError as `split`, and for a name that is taken or cannot name a folder of results.
    """
    if name in TASKS:
        raise InputError(
            f"{name!r} is the name of a data set that is known already; choose another name for yours"
        )
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise InputError(f"{name!r} cannot name a data set: use letters, digits, '_', '-' and '.'")
    folder = Path(root) / name
    with store.lock_data_set(folder):
        before = read_manifest(root, name)
        link = folder / "images"
        begun = link.is_symlink() and os.readlink(link) == os.path.abspath(source)
        if folder.exists() and not (before or begun):  # begun: by a process that was killed
            raise InputError(
                f"{folder} exists and is no data set that --data-set wrote: choose another name"
            )
        table, described = split(source)
        lists = _lists(table, described["classes"])
        described["lists_sha256"] = files.digest([described["source"], lists])
        if described != before:
            _write(folder, lists, described)
    return described


def _lists(table: pd.DataFrame, classes: list[str]) -> dict[str, str]:
    """Return the content of each list, by the name of its file."""
    lists = {}
    for part, of_part in table.groupby("part"):
        labels = of_part.label.map(classes.index)
        lines = [
            f"images/{path} {label}\n" for path, label in zip(of_part.path, labels, strict=True)
        ]
        lists[f"{SPLIT_OF[part]}.txt"] = "".join(lines)
    return lists


def _write(folder: Path, lists: dict[str, str], described: dict) -> None:
    """Write lists, the link to the pictures, and last the description: it says that all is there."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for written in (MANIFEST, "images"):
            (folder / written).unlink(missing_ok=True)
        (folder / "images").symlink_to(described["source"], target_is_directory=True)
    description = json.dumps(described, indent=1, ensure_ascii=False) + "\n"
    for file, content in (lists | {MANIFEST: description}).items():
        files.write_atomically(folder / file, content)


def current(root: str | Path, name: str) -> dict | None:
    """Return the `manifest` with the hash of the listed pictures as they are now: they may have been overwritten.

    InputError for a picture that is missing or cannot be decoded.
    """
    if (described := read_manifest(root, name)) is None:
        return None
    folder, classes, given = Path(root) / name, described["classes"], described["split"]["given"]
    rows = [
        (
            path.removeprefix("images/"),
            classes[label],
            part if part in given else "train" if given else None,
        )
        for part, split in SPLIT_OF.items()
        for path, label in split_files.read_split_file(folder, split, len(classes)).items()
    ]
    return described | {"pictures_sha256": _digest(_table(folder / "images", rows))}


def describe(name: str, described: dict) -> str:
    """Return one line about a data set from its description."""
    counts = ", ".join(f"{count} {part}" for part, count in described["images"].items())
    split, splits = described["split"], "splits as given"
    if split["drawn"]:
        shares = ", ".join(f"{share:.0%} {part}" for part, share in split["drawn"].items())
        given = f"{' and '.join(split['given'])} as given, " if split["given"] else ""
        splits = f"{given}stratified split: {shares}"
    line = f"{name}: {len(described['classes'])} classes ({list_first(described['classes'])}); images: {counts}; {splits}"
    found = {
        "left out": describe_left_out(described["left_out"]),
        "with the pixels of another": described["alike"],
        "nearly one colour": described["one_colour"],
    }
    return "; ".join([line, *(f"{what}: {count}" for what, count in found.items() if count)])


def describe_left_out(left_out: dict[str, int]) -> str:
    """Return words for the files that were left out."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))


def find(folder: Path, besides: Iterable[Path] = ()) -> tuple[list[Path], Counter[str]]:
    """Return the pictures below `folder`, and the number of files that are left out, by reason.

    Pictures have the suffix of a format that Pillow reads. Links to folders are followed, each folder once; hidden
    folders and those of `SYSTEM` are left out, and their pictures counted.
    besides: folders that are passed by.
    InputError for a folder that cannot be read.
    """
    suffixes = {
        suffix for suffix, form in Image.registered_extensions().items() if form in Image.OPEN
    }
    pictures, left_out, pending = [], Counter[str](), [(folder, False)]
    visited = {(passed.resolve(), False) for passed in besides}
    while pending:
        place, inside_hidden = pending.pop()
        if (visit := (place.resolve(), inside_hidden)) in visited:
            continue
        visited.add(visit)
        content: list[Path] = []
        # Folders of the system may be closed to users, as lost+found is.
        with suppress(OSError) if inside_hidden else explained(f"{place} cannot be read"):
            content = sorted(place.iterdir())
        for path in content:
            hidden, picture = inside_hidden or is_hidden(path.name), path.suffix.lower() in suffixes
            if path.is_dir():
                pending.append((path, hidden))
            elif picture and not hidden:
                pictures.append(path)
            elif picture or not hidden:
                left_out[HIDDEN if hidden else UNREAD] += 1
    return sorted(pictures), left_out


def is_hidden(name: str) -> bool:
    """Return whether the file or folder of this name is hidden, or of the system."""
    return name.startswith(".") or name.lower() in SYSTEM


def _folders(place: Path) -> list[Path]:
    """Return the folders in `place` that are not hidden."""
    with explained(f"{place} cannot be read"):
        return sorted(
            path for path in place.iterdir() if path.is_dir() and not is_hidden(path.name)
        )


def _why_empty(of_class: Path) -> str:
    """Return why a folder without pictures is no class: it may hold other formats, or results."""
    seen = (
        file.suffix.lower() or "no suffix"
        for file in of_class.rglob("*")
        if file.is_file() and not any(map(is_hidden, file.relative_to(of_class).parts))
    )
    suffixes = sorted(set(seen))
    found = f", only files of other formats ({list_first(suffixes)})" if suffixes else ""
    return (
        f"{of_class} is the folder of a class, but holds no pictures that Pillow reads{found}: "
        "convert pictures or add them, or move the folder elsewhere"
    )


def _fits_a_line(path: str) -> bool:
    """Return whether a line of a list can hold the path: Python's line breaks include U+2028."""
    return len(f"{path}.".splitlines()) == 1 and not re.search(r"[\udc80-\udcff]", path)


def _digest(table: pd.DataFrame) -> str:
    """Return the SHA-256 of contents, labels and given splits."""
    return files.digest(
        sorted(map(list, zip(table.content, table.label, table.part.fillna(""), strict=True)))
    )


def _table(folder: Path, rows: list[tuple]) -> pd.DataFrame:
    """Return the table of `read` from path, label and part of each picture below `folder`. InputError as there.

    The store keeps the contents until a file changes.
    """
    table = pd.DataFrame(sorted(rows), columns=["path", "label", "part"], dtype=object)
    paths = [folder.resolve() / path for path in table.path]
    states = [[str(path), *store.file_state(path)] for path in paths]
    key = ["contents", decoding.DECODER, PIL.__version__, states]
    contents = store.cached(key, lambda: _contents(paths))
    content, pixels, one_colour = zip(*contents, strict=True)
    smallest = pd.Series(content).groupby(list(pixels)).transform("min")
    return table.assign(content=smallest, one_colour=one_colour)


def _contents(paths: list[Path]) -> list[tuple[str, str, bool]]:
    """Return `_content` of each picture. InputError names those that cannot be decoded."""
    reading = decoding.map_in_threads(_content, paths)
    contents = list(tqdm(reading, "checking", len(paths), unit="image", leave=False, delay=5))
    if errors := [content for content in contents if isinstance(content, InputError)]:
        raise InputError(list_first(errors))
    return contents


def _content(path: Path) -> tuple[str, str, bool]:
    """Return the SHA-256 of a file and of its pixels, and whether they are nearly one colour.

    InputError where it cannot be decoded.
    """
    image = decoding.as_displayed(path)
    pixels = hashlib.sha256(f"{image.size}\n".encode() + image.tobytes()).hexdigest()
    one_colour = all(high - low <= ONE_COLOUR for low, high in image.getextrema())
    return files.sha256(path), pixels, one_colour


def _draw(label: str, contents: list[str], shares: dict[str, float]) -> dict[str, str]:
    """Draw the split of each distinct picture of a class: at least one for each of `shares`, the rest for training."""
    if len(contents) <= len(shares):
        pictures = f"{len(contents)} distinct picture{'s' if len(contents) > 1 else ''}"
        raise InputError(
            f"class {label!r} has {pictures} to split, and needs {len(shares) + 1} at least"
        )
    order = np.random.default_rng([SEED, *label.encode()]).permutation(len(contents))
    parts = dict.fromkeys(contents, "train")
    for part, share in shares.items():
        count = max(1, round(share * len(contents)))
        parts |= dict.fromkeys((contents[index] for index in order[:count]), part)
        order = order[count:]
    return parts
