"""Pictures of one's own as they lie on disk: class folders, folders or files per split, or a CSV file.

    cats_and_dogs/cat/1.jpg                     a folder per class
    cats_and_dogs/train/cat/1.jpg               folders train, val and test with a folder per class
    cats_and_dogs/train.txt, val.txt, test.txt  lines "relative/path label"; VTAB-1k's names of splits as well
    cats_and_dogs.csv                           columns path, label and, where splits are given, split

A label is any text; where all are whole numbers, classes stand in their order, else in alphabetical order. `val` may be
missing beside `train` and `test`: `own` draws it from the training split.
"""

import csv
import io
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

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


@dataclass(frozen=True)
class Picture:
    """A picture: its path below the listing's folder, its label, and its split (None: still to be drawn)."""

    path: str
    label: str
    part: str | None = None


@dataclass(frozen=True)
class Listing:
    """The pictures below `folder`, sorted by path; `left_out`: files in class folders without an image's suffix."""

    folder: Path
    pictures: list[Picture]
    left_out: list[str]


def read(source: str | Path) -> Listing:
    """List the pictures of a folder or a CSV file. InputError for what has none of the forms above."""
    source = Path(os.path.abspath(source))
    if source.is_file() and source.suffix.lower() == ".csv":
        folder, pictures, left_out = *_rebased(source.parent, list(_of_csv(source))), []
    elif not source.is_dir():
        what = "is neither a folder nor a CSV file" if source.exists() else "does not exist"
        raise InputError(f"{source} {what}")
    elif lists := _named_by_part(path for path in source.glob("*.txt") if path.is_file()):
        folder, left_out = source, []
        pictures = [
            Picture(Path(os.path.normpath(path)).as_posix(), label, part)
            for part, file in lists.items()
            for _, path, label in read_lines(file)
        ]
    else:
        folder = source
        pictures, left_out = _of_folders(source)
    if not pictures:
        raise InputError(f"{source} holds no pictures: it takes folders of classes, split files, or is a CSV file")
    _require_parts(source, {picture.part for picture in pictures})
    return Listing(folder, sorted(pictures, key=lambda picture: picture.path), sorted(left_out))


def classes(labels: set[str]) -> list[str]:
    """Return the labels in the order of their classes."""
    numbers = all(re.fullmatch(r"-?[0-9]+", label) for label in labels)
    return sorted(labels, key=lambda label: (int(label), label)) if numbers else sorted(labels)


def _named_by_part(paths) -> dict[str, Path]:
    """Return the paths whose stem names a split, by split. InputError where two name the same one."""
    named: dict[str, Path] = {}
    for path in sorted(paths):
        if part := NAMES_OF_PARTS.get(path.stem.lower()):
            if part in named:
                raise InputError(f"{named[part]} and {path} both name the {part} split; remove or rename one")
            named[part] = path
    return {part: named[part] for part in PARTS if part in named}


def _require_parts(source: Path, parts: set[str | None]) -> None:
    if parts == {None}:
        return
    for part in ("train", "test"):
        if part not in parts:
            raise InputError(
                f"{source} has splits, but none is named {part}; add it, or give all pictures in one folder per class"
            )


def _of_folders(source: Path) -> tuple[list[Picture], list[str]]:
    """List class folders, or class folders below a folder per split."""
    below = [path for path in source.iterdir() if path.is_dir() and not path.name.startswith(".")]
    parts = _named_by_part(below) if {path.name.lower() for path in below} & {"train", "training"} else {}
    if not parts:
        return _of_classes(source, source, None)
    if others := sorted(path.name for path in below if path not in parts.values()):
        raise InputError(f"{source} has folders of splits, so {others[0]!r} beside them cannot be a class")
    lists = [_of_classes(source, folder, part) for part, folder in parts.items()]
    return [picture for pictures, _ in lists for picture in pictures], [name for _, left in lists for name in left]


def _of_classes(source: Path, folder: Path, part: str | None) -> tuple[list[Picture], list[str]]:
    """List the pictures in the class folders of `folder`, at any depth."""
    suffixes = _suffixes()
    pictures, left_out = [], []
    for of_class in sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")):
        before = len(pictures)
        for place, _, names in os.walk(of_class):
            for name in names:
                if name.startswith("."):
                    continue
                path = Path(place, name).relative_to(source).as_posix()
                if Path(name).suffix.lower() in suffixes:
                    pictures.append(Picture(path, of_class.name, part))
                else:
                    left_out.append(path)
        if len(pictures) == before:
            raise InputError(f"{of_class} is the folder of a class, but holds no pictures; remove it or fill it")
    return pictures, left_out


def _suffixes() -> set[str]:
    """Return the suffixes of the files that Pillow decodes."""
    named = Image.registered_extensions()  # which loads the formats
    return {suffix for suffix, form in named.items() if form in {"MPO", *Image.OPEN} - IDENTIFIED}  # MPO opens as JPEG


def _of_csv(file: Path) -> Iterator[Picture]:
    """Yield the rows; paths are absolute."""
    rows = _rows(file)
    _, titles = next(rows, (0, []))
    header = [title.strip().lower() for title in titles]
    if not {"path", "label"} <= set(header):
        raise InputError(f"{file}, line 1: must name the columns path, label and perhaps split, not {header}")
    for number, row in rows:
        cells = {title: cell.strip() for title, cell in zip(header, row, strict=False)}
        if not any(cells.values()):
            continue
        place = f"{file}, line {number}"
        if empty := [title for title in ("path", "label", "split") if title in header and not cells.get(title)]:
            raise InputError(f"{place}: has no {empty[0]}")
        part = None
        if "split" in header:
            part = NAMES_OF_PARTS.get(cells["split"].lower())
            if part is None:
                raise InputError(f"{place}: unknown split {cells['split']!r}; use train, val or test")
        yield Picture(os.path.normpath(file.parent / cells["path"]), cells["label"], part)


def _rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows with their lines' numbers. InputError for a quote that is not closed."""
    # Unless strict, a row whose quote is open would end with the file, and take all other rows into its label.
    rows = csv.reader(io.StringIO(files.read_text(file), newline=""), strict=True)
    try:
        for row in rows:
            yield rows.line_num, row
    except csv.Error as error:
        raise InputError(f"{file}, line {rows.line_num}: {error}") from None


def _rebased(folder: Path, pictures: list[Picture]) -> tuple[Path, list[Picture]]:
    """Return the folder below which all pictures lie, `folder` if it is one, and their paths below it."""
    common = Path(os.path.commonpath([folder, *(Path(picture.path).parent for picture in pictures)]))
    return common, [
        Picture(Path(picture.path).relative_to(common).as_posix(), picture.label, picture.part) for picture in pictures
    ]
