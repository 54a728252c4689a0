"""Your own pictures as a data set: listed, checked, split, and written as split files.

Such a data set is of the suite "own". The option --data-set installs it.

    pets/cat/1.jpg           a folder per class
    pets/train/cat/1.jpg     folders train, val and test with a folder per class

`install` writes a folder of VTAB-1k's format: `images`, a link to the pictures, which stay where
they are; split files with VTAB-1k's names, whatever the counts; and the manifest that
`tasks.read_manifest` reads.
"""

import hashlib
import json
import os
import re
import shutil
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import PIL
from filelock import FileLock

from pvera import files
from pvera.data import decoding, store
from pvera.data.picture_folders import find_pictures, list_visible
from pvera.data.split_files import FILE_OF
from pvera.data.tasks import MANIFEST, TASKS, read_manifest
from pvera.errors import InputError, catch_os_errors, list_first

#: The split of each folder name.
SPLIT_FOLDERS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "test": "test",
}
#: Shares of a class's distinct pictures in the drawn splits. VTAB-1k's validation split is a fifth
#: of its training images.
SHARES = {"test": 0.2, "validation": 0.16}
VALIDATION_SHARE = {"validation": 0.2}
#: Seed of the drawn splits.
SEED = 0

#: Path, label and split of a picture; the split is None where it is still to be drawn.
Row = tuple[str, str, str | None]


def install(root: str | Path, name: str, source: str | Path) -> dict[str, Any]:
    """Write the split files of a data set below `root`.

    Files that are right stay untouched. Of several processes one writes, and the others wait.

    Args:
        root: Folder of the data sets.
        name: The new data set's name.
        source: Folder of the pictures, as `read_and_split` takes it.

    Returns:
        The manifest, as `tasks.read_manifest` does.

    Raises:
        InputError: The pictures do not fit, for a reason that `read_and_split` names; or the name
            is in use, or cannot name a folder of results.
    """
    if name in TASKS:
        raise InputError(
            f"{name!r} is the name of a data set that is known already; "
            "choose another name for yours"
        )
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise InputError(f"{name!r} cannot name a data set: use letters, digits, '_', '-' and '.'")

    folder = Path(root) / name
    with catch_os_errors(root):
        Path(root).mkdir(parents=True, exist_ok=True)
    with catch_os_errors(folder), FileLock(folder.with_name(f".{name}.lock")):
        before = read_manifest(root, name)
        # A folder of another origin is never overwritten.
        if folder.exists() and not before:
            raise InputError(
                f"{folder} exists and is no data set that --data-set wrote: choose another name"
            )
        table, manifest = read_and_split(source)
        if manifest != before:
            _write(folder, table, manifest)
    return manifest


def _write(folder: Path, table: pd.DataFrame, manifest: dict[str, Any]) -> None:
    """Write split files, the manifest and the link: all of them or none."""
    partial = folder.with_name(f".{folder.name}.partial")
    # What a process left that was killed.
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    (partial / "images").symlink_to(manifest["source"], target_is_directory=True)
    for split, rows in table.groupby("split"):
        labels = rows.label.map(manifest["classes"].index)
        lines = "images/" + rows.path + " " + labels.astype(str) + "\n"
        files.write_atomically(partial / f"{FILE_OF[split]}.txt", "".join(lines))
    text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
    files.write_atomically(partial / MANIFEST, text)
    shutil.rmtree(folder, ignore_errors=True)
    partial.rename(folder)


def read_and_split(source: str | Path) -> tuple[pd.DataFrame, dict[str, Any]]:
    """Read pictures and draw the splits that `source` does not give, per class, by content.

    Copies of a picture stay together.

    Returns:
        The table of `list_pictures` with all splits, and the manifest.

    Raises:
        InputError: As `list_pictures`; or there are fewer than two classes, a class without
            training pictures, or equal pictures with different labels or in two splits.
    """
    table, left_out = list_pictures(source)
    # Before splits are drawn: the hash is of what the source gives.
    pictures_sha256 = _pictures_sha256(table)
    classes = sorted(set(table.label))
    if len(classes) < 2:
        raise InputError(f"{source} has one class, {classes[0]!r}; a classifier needs two or more")

    given = [split for split in FILE_OF if split in set(table.split)]
    splits: dict[str, Any] = {"given": given, "drawn": {}}
    # A given test split stays; what else there is, is divided.
    if "validation" not in given:
        shares = VALIDATION_SHARE if given else SHARES
        table = _draw_splits(table, shares)
        splits |= {"drawn": shares, "seed": SEED}
    _require_training_pictures(source, table)
    _require_equal_pictures_together(source, table)

    manifest = {
        "source": os.path.abspath(source),
        "classes": classes,
        "images": {split: int((table.split == split).sum()) for split in FILE_OF},
        "split": splits,
        "pictures_sha256": pictures_sha256,
        "lists_sha256": files.digest(table[["path", "label", "split"]].to_numpy()),
        "left_out": left_out,
        "alike": len(table) - table.content.nunique(),
    }
    return table, manifest


def _draw_splits(table: pd.DataFrame, shares: dict[str, float]) -> pd.DataFrame:
    """Draw the splits of all pictures but the given test pictures."""
    is_test = table.split == "test"
    split_of: dict[str, str] = {}
    for label, contents in table[~is_test].groupby("label").content:
        split_of |= _split_class(str(label), sorted(set(contents)), shares)
    return table.assign(split=table.split.where(is_test, table.content.map(split_of)))


def _split_class(label: str, contents: list[str], shares: dict[str, float]) -> dict[str, str]:
    """Draw the split of each distinct picture of a class.

    Each of `shares` has one picture at least; the rest is for training.
    """
    count = len(contents)
    if count <= len(shares):
        needed = f"{len(shares) + 1} distinct pictures"
        raise InputError(f"class {label!r} needs {needed} at least to be split, and has {count}")

    splits: list[str] = []
    for split, share in shares.items():
        splits += [split] * max(1, round(share * count))
    splits += ["train"] * (count - len(splits))
    # The class alone seeds the order: other classes move none of its pictures.
    order = np.random.default_rng([SEED, *label.encode()]).permutation(count)
    return {contents[index]: split for index, split in zip(order, splits, strict=True)}


def _require_training_pictures(source: str | Path, table: pd.DataFrame) -> None:
    trained = table.label[table.split == "train"]
    untrained = sorted(set(table.label) - set(trained))
    if untrained:
        raise InputError(f"{source} has no training picture of {list_first(untrained)}")


def _require_equal_pictures_together(source: str | Path, table: pd.DataFrame) -> None:
    """Raise an InputError where copies of a picture have different labels or splits."""
    for column, where in (("label", "with different labels"), ("split", "in two splits")):
        apart = table.groupby("content")[column].transform("nunique") > 1
        if apart.any():
            paths = list_first(list(table.path[apart]))
            raise InputError(f"{source} has equal pictures {where} ({paths}): keep one of each")


def list_pictures(source: str | Path) -> tuple[pd.DataFrame, int]:
    """List the pictures of a folder, and read their contents.

    Rows stand in the order of contents, which the names of files and classes do not change: the
    official code trains in the order of the split file, and `--images` takes its first images.

    Returns:
        The table of pictures, and how many files are left out: in other formats, or outside the
        folders of classes. Columns: path, label (its name), split (None where it is still to be
        drawn), content (SHA-256 of the file; of files with equal pixels, the smallest).

    Raises:
        InputError: `source` has none of the forms above, a file is missing or cannot be decoded,
            or no line of a split file can hold a name.
    """
    source = Path(os.path.abspath(source))
    if not source.is_dir():
        raise InputError(f"{source} {'is no folder' if source.exists() else 'does not exist'}")
    classes = _class_folders(source)
    # Pictures next to the folders of classes have no label.
    loose, others = find_pictures(source, skip=[folder for _, folder in classes])
    left_out = len(loose) + others

    rows: list[Row] = []
    for split, folder in classes:
        pictures, others = find_pictures(folder)
        if not pictures:
            raise InputError(
                f"{folder} is the folder of a class, but holds no pictures that Pillow reads and "
                f"{others} other files: convert pictures or add them, or move the folder elsewhere"
            )
        # The same é has a composed and a decomposed form, and systems write either.
        label = unicodedata.normalize("NFC", folder.name)
        rows += [(file.relative_to(source).as_posix(), label, split) for file in pictures]
        left_out += others

    table = pd.DataFrame(sorted(rows), columns=["path", "label", "split"], dtype=object)
    _require_listable_names(source, table)
    table = table.assign(content=_contents([source / path for path in table.path]))
    return table.sort_values(["content", "path"], ignore_index=True), left_out


def _require_listable_names(source: Path, table: pd.DataFrame) -> None:
    """Raise an InputError where no line of a split file can hold a path."""
    # Line breaks, and what file names hold that are not UTF-8.
    unlistable = table.path[table.path.str.contains(r"[\r\n\udc80-\udcff]")]
    if len(unlistable):
        names = list_first(unlistable.map(ascii))
        raise InputError(f"{source}: rename {names}: a line break, or no UTF-8")


def _class_folders(source: Path) -> list[tuple[str | None, Path]]:
    """Find the folders of classes, each with its split, which is None without folders of splits."""
    split_of = {folder: SPLIT_FOLDERS.get(folder.name.lower()) for folder in _folders(source)}
    if not split_of:
        raise InputError(f"{source} holds no pictures: it takes folders of classes")
    if "train" not in split_of.values():
        return [(None, folder) for folder in split_of]

    classes: list[tuple[str | None, Path]] = []
    for folder, split in split_of.items():
        if split is None:
            raise InputError(
                f"{source} has folders of splits, so {folder.name!r} next to them cannot be a class"
            )
        classes += [(split, class_folder) for class_folder in _folders(folder)]
    if not any(split == "test" for split, _ in classes):
        raise InputError(
            f"{source} has splits, but none is named test and has a folder per class; "
            "add it, or split none"
        )
    return classes


def _folders(folder: Path) -> list[Path]:
    return [path for path in list_visible(folder) if path.is_dir()]


def _contents(paths: list[Path]) -> pd.Series:
    """Return the hash of each file's content. The store keeps hashes until a file changes."""
    states = [[str(path), *store.file_state(path)] for path in paths]
    key = ["hashes", decoding.DECODER_VERSION, PIL.__version__, states]
    hashes = store.load_or_compute(key, lambda: decoding.map_in_threads(_hashes, paths, "checking"))
    table = pd.DataFrame(hashes, columns=["file", "pixels"])
    # Files with equal pixels are copies, whatever their format: they share one content.
    return table.groupby("pixels")["file"].transform("min")


def _hashes(path: Path) -> tuple[str, str]:
    """Return the SHA-256 of a file and of its pixels."""
    # The size tells apart pictures whose pixels follow each other alike, such as 2 x 8 and 4 x 4.
    image = decoding.as_displayed(path)
    pixels = hashlib.sha256(f"{image.size}\n".encode() + image.tobytes()).hexdigest()
    return files.sha256(path), pixels


def _pictures_sha256(table: pd.DataFrame) -> str:
    """Return the SHA-256 of contents, labels and given splits."""
    pictures = zip(table.content, table.label, table.split.fillna(""), strict=True)
    return files.digest(sorted(map(list, pictures)))


def current_manifest(root: str | Path, name: str) -> dict[str, Any] | None:
    """Return the manifest that `install` would write now: the pictures may have changed.

    Raises:
        InputError: The pictures are gone, or do not fit any more.
    """
    manifest = read_manifest(root, name)
    return manifest and read_and_split(manifest["source"])[1]


def describe(name: str, manifest: dict[str, Any]) -> str:
    """Return one line about a data set from its manifest."""
    classes = manifest["classes"]
    counts = ", ".join(f"{count} {split}" for split, count in manifest["images"].items())
    facts = [
        f"{name}: {len(classes)} classes ({list_first(classes)})",
        f"images: {counts}",
        f"given splits: {', '.join(manifest['split']['given']) or 'none'}",
        f"left out: {manifest['left_out']} files",
        f"with the pixels of another: {manifest['alike']}",
    ]
    return "; ".join(facts)
