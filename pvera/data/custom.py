"""Your own pictures as a data set: listed, checked, split, and written as lists that `image_folders` reads.

    pets/cat/1.jpg           a folder per class
    pets/train/cat/1.jpg     folders train, val and test with a folder per class

`install` writes a folder of VTAB-1k's format: `images`, a link to the pictures, which stay where they are; lists with
VTAB-1k's names, whatever the counts; and the description that `image_folders.manifest` returns.
"""

import hashlib
import json
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import PIL
from PIL import Image
from tqdm import tqdm

from pvera import files
from pvera.data import image_folders
from pvera.data.image_folders import MANIFEST, SPLIT_OF, manifest, name_errors
from pvera.data.tasks import TASKS
from pvera.errors import InputError, explained, writing

#: Names of the folders of splits.
PART_OF = {"train": "train", "training": "train", "test": "test"}
PART_OF |= dict.fromkeys(("val", "valid", "validation"), "validation")
#: Shares of a class's distinct pictures that are drawn; VTAB-1k's validation split is a fifth of its training images.
SHARES = {"test": 0.2, "validation": 0.16}
SEED = 0  # of the split
#: Folders of Synology, QNAP, macOS, Windows and fsck, in small letters: thumbnails and what was deleted.
SYSTEM = {"@eadir", "#recycle", "@recycle", "@recently-snapshot", "__macosx", "$recycle.bin", "lost+found",
          "system volume information"}  # fmt: skip
#: Why files are left out.
HIDDEN, NO_SUFFIX, LOOSE = "hidden", "without an image's suffix", "outside the folders of classes"


def read(source: str | Path) -> tuple[pd.DataFrame, Counter[str]]:
    """List the pictures of a folder, and read their contents.

    Returns their table, and how many files are left out, by reason. Columns: path, label (its name), part (None: still
    to be drawn), and content (SHA-256 of the file; of files with equal pixels, the smallest). Rows stand in the order
    of contents, which the names of files and classes do not change: the published program trains in the order of the
    lists, and `--images` takes their first images.
    InputError for what has none of the forms above, and for files that are missing or cannot be decoded.
    """
    source = Path(os.path.abspath(source))
    if not source.is_dir():
        raise InputError(f"{source} {'is no folder' if source.exists() else 'does not exist'}")
    part_of = {folder: PART_OF.get(folder.name.lower()) for folder in _folders(source)}
    classes: list[tuple[str | None, Path]] = [(None, folder) for folder in part_of]
    if "train" in part_of.values():
        if others := [folder.name for folder, part in part_of.items() if part is None]:
            raise InputError(f"{source} has folders of splits, so {others[0]!r} beside them cannot be a class")
        classes = [(part, of_class) for folder, part in part_of.items() for of_class in _folders(folder)]
        if "test" not in dict(classes):
            raise InputError(
                f"{source} has splits, but none is named test and has a folder per class; add it, or split none"
            )
    if not classes:
        raise InputError(f"{source} holds no pictures: it takes folders of classes")
    places = {source, *(of_class.parent for _, of_class in classes)}
    loose = (path for place in places for path in place.iterdir() if not (path.is_dir() or is_hidden(path.name)))
    rows, left_out = [], Counter(LOOSE for _ in loose)
    for part, of_class in classes:
        pictures, others = find(of_class)
        if not pictures:
            raise InputError(f"{of_class} is the folder of a class, but holds no pictures; remove it or fill it")
        rows += [(file.relative_to(source).as_posix(), of_class.name, part) for file in pictures]
        left_out += others
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
        raise InputError(f"{source} has no training picture of {name_errors(untrained)}")
    for column, where in (("label", "with different labels"), ("part", "in two splits")):
        unequal = table.groupby("content")[column].transform("nunique") > 1
        if unequal.any():
            raise InputError(
                f"{source} has equal pictures {where} ({name_errors([*table.path[unequal]])}): keep one of each"
            )
    return table, {
        "source": os.path.abspath(source),
        "classes": classes,
        "images": {part: int((table.part == part).sum()) for part in SPLIT_OF},
        "split": described,
        "pictures_sha256": pictures_sha256,
        "left_out": dict(left_out),
        "alike": len(table) - table.content.nunique(),
    }


def install(root: str | Path, name: str, source: str | Path) -> dict:
    """Write the lists of a data set below `root`, and return its description (`image_folders.manifest`).

    Lists that are right stay untouched. InputError as `split`, and for a name that is taken or cannot name a folder of
    results.
    """
    if name in TASKS:
        raise InputError(f"{name!r} is the name of a data set that is known already; choose another name for yours")
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise InputError(f"{name!r} cannot name a data set: use letters, digits, '_', '-' and '.'")
    folder, before = Path(root) / name, manifest(root, name)
    if folder.exists() and before is None:
        raise InputError(f"{folder} exists and is no data set that --data-set wrote: remove it, or choose another name")
    table, described = split(source)
    lists = {}
    for part, of_part in table.groupby("part"):
        labels = of_part.label.map(described["classes"].index)
        lines = [f"images/{path} {label}\n" for path, label in zip(of_part.path, labels, strict=True)]
        lists[f"{SPLIT_OF[part]}.txt"] = "".join(lines)
    described["lists_sha256"] = files.digest([described["source"], lists])
    if described == before:
        return described
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for written in (MANIFEST, "images"):
            (folder / written).unlink(missing_ok=True)
        (folder / "images").symlink_to(described["source"], target_is_directory=True)
    lists[MANIFEST] = json.dumps(described, indent=1, ensure_ascii=False) + "\n"  # last: it says that all is there
    for file, content in lists.items():
        files.write_atomically(folder / file, content)
    return described


def current(root: str | Path, name: str) -> dict | None:
    """Return the `manifest` with the hash of the listed pictures as they are now: they may have been overwritten.

    InputError for a picture that is missing or cannot be decoded.
    """
    if (described := manifest(root, name)) is None:
        return None
    folder, classes, given = Path(root) / name, described["classes"], described["split"]["given"]
    rows = [
        (path.removeprefix("images/"), classes[label], part if part in given else "train" if given else None)
        for part, split in SPLIT_OF.items()
        for path, label in image_folders.read_split_file(folder, split, len(classes)).items()
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
    line = (
        f"{name}: {len(described['classes'])} classes ({name_errors(described['classes'])}); images: {counts}; {splits}"
    )
    found = {"left out": describe_left_out(described["left_out"]), "with the pixels of another": described["alike"]}
    return "; ".join([line, *(f"{what}: {count}" for what, count in found.items() if count)])


def describe_left_out(left_out: dict[str, int]) -> str:
    """Return words for the files that were left out."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))


def find(folder: Path) -> tuple[list[Path], Counter[str]]:
    """Return the pictures below `folder`, and the number of files that are left out, by reason.

    Pictures have the suffix of a format that Pillow reads. Links to folders are followed, each folder once; hidden
    folders and those of `SYSTEM` are left out. InputError for a folder that cannot be read.
    """
    suffixes = {suffix for suffix, form in Image.registered_extensions().items() if form in Image.OPEN}
    pictures, left_out, visited, pending = [], Counter[str](), set(), [(folder, False)]
    while pending:
        place, inside_hidden = pending.pop()
        if (visit := (place.resolve(), inside_hidden)) in visited:
            continue
        visited.add(visit)
        with explained(f"{place} cannot be read"):
            content = sorted(place.iterdir())
        for path in content:
            hidden, picture = inside_hidden or is_hidden(path.name), path.suffix.lower() in suffixes
            if path.is_dir():
                pending.append((path, hidden))
            elif picture and not hidden:
                pictures.append(path)
            elif picture or not hidden:
                left_out[HIDDEN if hidden else NO_SUFFIX] += 1
    return sorted(pictures), left_out


def is_hidden(name: str) -> bool:
    """Return whether the file or folder of this name is hidden, or of the system."""
    return name.startswith(".") or name.lower() in SYSTEM


def _folders(place: Path) -> list[Path]:
    """Return the folders in `place` that are not hidden."""
    with explained(f"{place} cannot be read"):
        return sorted(path for path in place.iterdir() if path.is_dir() and not is_hidden(path.name))


def _digest(table: pd.DataFrame) -> str:
    """Return the SHA-256 of contents, labels and given splits."""
    return files.digest(sorted(map(list, zip(table.content, table.label, table.part.fillna(""), strict=True))))


def _table(folder: Path, rows: list[tuple]) -> pd.DataFrame:
    """Return the table of `read` from path, label and part of each picture below `folder`. InputError as there.

    The store keeps the contents until a file changes.
    """
    table = pd.DataFrame(sorted(rows), columns=["path", "label", "part"], dtype=object)
    paths = [folder.resolve() / path for path in table.path]
    states = [[str(path), *image_folders.state(path)] for path in paths]
    key = ["pictures", image_folders.DECODER, PIL.__version__, states]
    content, pixels = zip(*image_folders.remembered(key, lambda: _contents(paths)), strict=True)
    return table.assign(content=pd.Series(content).groupby(list(pixels)).transform("min"))


def _contents(paths: list[Path]) -> list[tuple[str, str]]:
    """Return `_content` of each picture. InputError names those that cannot be decoded."""
    reading = image_folders.each(_content, paths)
    contents = list(tqdm(reading, "checking", len(paths), unit="image", leave=False, delay=5))
    if errors := [content for content in contents if isinstance(content, InputError)]:
        raise InputError(name_errors(errors))
    return contents


def _content(path: Path) -> tuple[str, str]:
    """Return the SHA-256 of a file and of its pixels. InputError where it cannot be decoded."""
    image = image_folders.as_displayed(path)
    return files.sha256(path), hashlib.sha256(f"{image.size}\n".encode() + image.tobytes()).hexdigest()


def _draw(label: str, contents: list[str], shares: dict[str, float]) -> dict[str, str]:
    """Draw the split of each distinct picture of a class: at least one for each of `shares`, the rest for training."""
    if len(contents) <= len(shares):
        raise InputError(
            f"class {label!r} has {len(contents)} distinct pictures to split, and needs {len(shares) + 1} at least"
        )
    order = np.random.default_rng([SEED, *label.encode()]).permutation(len(contents))
    parts = dict.fromkeys(contents, "train")
    for part, share in shares.items():
        count = max(1, round(share * len(contents)))
        parts |= dict.fromkeys((contents[index] for index in order[:count]), part)
        order = order[count:]
    return parts
