"""Your own pictures as they lie on disk: class folders, folders or files per split, or a CSV file.

    cats_and_dogs/cat/1.jpg                     a folder per class
    cats_and_dogs/train/cat/1.jpg               folders train, val and test with a folder per class
    cats_and_dogs/train.txt, val.txt, test.txt  lines "relative/path label"; VTAB-1k's names of splits as well
    cats_and_dogs.csv                           columns path, label and, where splits are given, split

A label is any text; where all are whole numbers, classes stand in their order, else in alphabetical order. `val` may be
missing beside `train` and `test`: `custom` draws it from the training split.
"""

import csv
import io
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from PIL import Image

from pvera import files
from pvera.data.image_folders import read_lines
from pvera.errors import InputError

PARTS = ("train", "validation", "test")
#: Names of splits in folders, file names and CSV files.
NAMES_OF_PARTS = {
    **dict.fromkeys(("train", "training", "train800"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "val200"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
#: Formats that Pillow identifies, and does not decode.
IDENTIFIED = {"BUFR", "GRIB", "HDF5", "MPEG", "WMF"}

Row = tuple[str, str, str | None]  # path, label and split (None: still to be drawn)


@dataclass(frozen=True)
class Listing:
    """Pictures below `folder`: columns path, label and part (None: still to be drawn), sorted by path.

    left_out: the number of files in class folders without an image's suffix.
    """

    folder: Path
    pictures: pd.DataFrame
    left_out: int = 0


def read(source: str | Path) -> Listing:
    """List the pictures of a folder or a CSV file. InputError for what has none of the forms above."""
    source = Path(os.path.abspath(source))
    folder, left_out = source, 0
    if source.is_file() and source.suffix.lower() == ".csv":
        rows = list(_of_csv(source))
        folder = Path(os.path.commonpath([source.parent, *(os.path.dirname(path) for path, _, _ in rows)]))
        rows = [(Path(path).relative_to(folder).as_posix(), label, part) for path, label, part in rows]
    elif not source.is_dir():
        what = "is neither a folder nor a CSV file" if source.exists() else "does not exist"
        raise InputError(f"{source} {what}")
    elif lists := _named_by_part(path for path in source.glob("*.txt") if path.is_file()):
        rows = [
            (Path(os.path.normpath(path)).as_posix(), label, part)
            for part, file in lists.items()
            for _, path, label in read_lines(file)
        ]
    else:
        rows, left_out = _of_folders(source)
    if not rows:
        raise InputError(f"{source} holds no pictures: it takes folders of classes, split files, or is a CSV file")
    given = {part for _, _, part in rows} - {None}
    for part in ("train", "test"):
        if given and part not in given:
            raise InputError(
                f"{source} has splits, but none is named {part}; add it, or give all pictures in one folder per class"
            )
    rows.sort(key=lambda row: row[0])
    return Listing(folder, pd.DataFrame(rows, columns=["path", "label", "part"], dtype=object), left_out)


def classes(labels: Iterable[str]) -> list[str]:
    """Return the labels in the order of their classes."""
    labels = set(labels)
    numbers = all(re.fullmatch(r"-?[0-9]+", label) for label in labels)
    return sorted(labels, key=lambda label: (int(label), label)) if numbers else sorted(labels)


def _named_by_part(paths: Iterable[Path]) -> dict[str, Path]:
    """Return the paths whose stem names a split, by split. InputError where two name the same one."""
    named: dict[str, Path] = {}
    for path in sorted(paths):
        if part := NAMES_OF_PARTS.get(path.stem.lower()):
            if part in named:
                raise InputError(f"{named[part]} and {path} both name the {part} split; remove or rename one")
            named[part] = path
    return named


def _of_folders(source: Path) -> tuple[list[Row], int]:
    """List class folders, or class folders below a folder per split; and count the files left out."""
    below = _folders(source)
    parts = _named_by_part(below) if {path.name.lower() for path in below} & {"train", "training"} else {}
    if not parts:
        return _of_classes(source, source, None)
    if others := sorted(path.name for path in below if path not in parts.values()):
        raise InputError(f"{source} has folders of splits, so {others[0]!r} beside them cannot be a class")
    lists = [_of_classes(source, folder, part) for part, folder in parts.items()]
    return [row for rows, _ in lists for row in rows], sum(left_out for _, left_out in lists)


def _of_classes(source: Path, folder: Path, part: str | None) -> tuple[list[Row], int]:
    """List the pictures in the class folders of `folder`, at any depth; and count the files left out."""
    rows, left_out = [], 0
    for of_class in _folders(folder):
        pictures, others = find(of_class)
        if not pictures:
            raise InputError(f"{of_class} is the folder of a class, but holds no pictures; remove it or fill it")
        rows += [(file.relative_to(source).as_posix(), of_class.name, part) for file in pictures]
        left_out += others
    return rows, left_out


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def find(folder: Path) -> tuple[list[Path], int]:
    """Return the files below `folder` with the suffix of a format that Pillow decodes, and the number of the others."""
    formats = Image.registered_extensions()  # which loads the formats
    suffixes = {suffix for suffix, form in formats.items() if form in {"MPO", *Image.OPEN} - IDENTIFIED}  # MPO: as JPEG
    found = [Path(place, name) for place, _, names in os.walk(folder) for name in names if not name.startswith(".")]
    pictures = [file for file in found if file.suffix.lower() in suffixes]
    return sorted(pictures), len(found) - len(pictures)


def _of_csv(file: Path) -> Iterator[Row]:
    """Yield the rows; paths are absolute. InputError also for a quote that is not closed."""
    # Unless strict, a row whose quote is open would end with the file, and take all other rows into its label.
    lines = csv.reader(io.StringIO(files.read_text(file), newline=""), strict=True)
    try:
        header = [title.strip().lower() for title in next(lines, [])]
        if not {"path", "label"} <= set(header):
            raise InputError(f"{file}, line 1: must name the columns path, label and perhaps split, not {header}")
        for row in lines:
            cells = {title: cell.strip() for title, cell in zip(header, row, strict=False)}
            if not any(cells.values()):
                continue
            place, part = f"{file}, line {lines.line_num}", None
            for title in ("path", "label", "split"):
                if title in header and not cells.get(title):
                    raise InputError(f"{place}: has no {title}")
            if "split" in header:
                part = NAMES_OF_PARTS.get(cells["split"].lower())
                if part is None:
                    raise InputError(f"{place}: unknown split {cells['split']!r}; use train, val or test")
            yield os.path.normpath(file.parent / cells["path"]), cells["label"], part
    except csv.Error as error:
        raise InputError(f"{file}, line {lines.line_num}: {error}") from None
