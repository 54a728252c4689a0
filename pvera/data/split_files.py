"""Split files of VTAB-1k's folder format: which images a split has, and their labels.

`<root>/<data set>/{train800,val200,test}.txt` hold lines "relative/path label". The images lie
below `<root>/<data set>/`.
"""

import re
from pathlib import Path

from pvera import files
from pvera.errors import InputError

#: The file's name, without its suffix, of each split that a run reads.
FILE_OF = {"train": "train800", "validation": "val200", "test": "test"}
SPLIT_FILES = tuple(FILE_OF.values())

_LINE = re.compile(r"\s*(\S.*?)\s+([0-9]{1,18})\s*")


def read_split_file(folder: Path, split_file: str, classes: int) -> dict[str, int]:
    """Read the label of each image of a split, in the file's order.

    Args:
        folder: The data set's folder, to which paths are relative.
        split_file: One of `SPLIT_FILES`.
        classes: Number of classes; labels are smaller.

    Raises:
        InputError: A line is wrong; the message names it.
    """
    file = folder / f"{split_file}.txt"
    label_of: dict[str, int] = {}
    # Not `splitlines`: a path may hold one of Unicode's line breaks.
    lines = re.split(r"\r\n|\r|\n", files.read_text(file))
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue

        where = f"{file}, line {number}"
        match = _LINE.fullmatch(line)
        if match is None or int(match[2]) >= classes:
            expected = f"expected 'relative/path label', of {classes} labels from 0"
            raise InputError(f"{where}: {expected}, not {line[:80]!r}")

        path = match[1]
        if path in label_of:
            raise InputError(f"{where}: {path!r} stands in an earlier line already")
        label_of[path] = int(match[2])

    if not label_of:
        raise InputError(f"{file} is empty")
    return label_of
