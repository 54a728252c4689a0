"""Your own pictures as a data set: listed, checked, split, and written as lists that `image_folders` reads.

    pets/cat/1.jpg           a folder per class
    pets/train/cat/1.jpg     folders train, val and test with a folder per class

`install` writes a folder of VTAB-1k's format: `images`, a link to the pictures, which stay where they are; lists with
VTAB-1k's names, whatever the counts; and the description that `tasks.manifest` returns.
"""

import hashlib
import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import PIL
from PIL import Image
from tqdm import tqdm

from pvera import files
from pvera.data import image_folders
from pvera.data.image_folders import SPLIT_OF, name_errors
from pvera.data.tasks import MANIFEST, TASKS, manifest
from pvera.errors import InputError, explained, writing

#: Names of the folders of splits.
PART_OF = {"train": "train", "training": "train", "test": "test"}
PART_OF |= dict.fromkeys(("val", "valid", "validation"), "validation")
#: Shares of a class's distinct pictures that are drawn; VTAB-1k's validation split is a fifth of its training images.
SHARES = {"test": 0.2, "validation": 0.16}
SHARE_OF_TRAINING = 0.2
HIDDEN = (".", "@eaDir")  # starts of names; a Synology disk keeps thumbnails of all pictures in @eaDir


def read(source: str | Path) -> pd.DataFrame:
    """List the pictures of a folder, and read their contents.

    Columns: path, label (its name), part (None: still to be drawn), and content (SHA-256 of the file; of files with
    equal pixels, the smallest). Rows stand in the order of contents, which the names of files and classes do not
    change: the published program trains in the order of the lists, and `--images` takes their first images.
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
        if "test" not in part_of.values():
            raise InputError(f"{source} has splits, but none is named test; add it, or give all pictures without")
        classes = [(part, of_class) for folder, part in part_of.items() for of_class in _folders(folder)]
    if not classes:
        raise InputError(f"{source} holds no pictures: it takes folders of classes")
    rows = []
    for part, of_class in classes:
        if not (pictures := find(of_class)):
            raise InputError(f"{of_class} is the folder of a class, but holds no pictures; remove it or fill it")
        rows += [(file.relative_to(source).as_posix(), of_class.name, part) for file in pictures]
    table = pd.DataFrame(rows, columns=["path", "label", "part"], dtype=object)
    table["content"] = _contents([source / path for path in table.path])
    return table.sort_values(["content", "path"], ignore_index=True)


def split(source: str | Path, seed: int) -> tuple[pd.DataFrame, dict]:
    """Read pictures and draw the splits that `source` does not give, per class, by content.

    Copies of a picture stay together. Returns the table of `read`, with all splits, and their description.
    InputError as `read`, for fewer than two classes, a class without training pictures, and equal pictures with
    different labels or in two splits.
    """
    table = read(source)
    labels, parts = table.label, table.part.fillna("")
    given, numbers = set(parts) - {""}, all(re.fullmatch(r"-?[0-9]+", label) for label in labels)
    classes = sorted(set(labels), key=lambda label: (int(label) if numbers else 0, label))
    pictures_sha256 = files.digest(sorted(map(list, zip(table.content, labels, parts, strict=True))))
    if len(classes) < 2:
        raise InputError(f"{source} has one class, {classes[0]!r}; a classifier needs two or more")
    described = {"given": [part for part in SPLIT_OF if part in given], "drawn": {}}
    if "validation" not in given:
        shares = {"validation": SHARE_OF_TRAINING} if given else SHARES
        drawn: dict[str, str] = {}
        for label, contents in table[parts != "test"].groupby("label").content:
            drawn |= _draw(str(label), sorted(set(contents)), shares, seed)
        table["part"] = table.part.where(parts == "test", table.content.map(drawn))
        described |= {"drawn": dict(shares), "seed": seed}
    if untrained := [label for label in classes if label not in set(labels[table.part == "train"])]:
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
    }


def install(root: str | Path, name: str, source: str | Path, seed: int | None = None) -> dict:
    """Write the lists of a data set below `root`, and return its description (`tasks.manifest`).

    seed: as for `split`; None for the seed of the lists that lie there, else 0.
    InputError as `split`; for a name that is taken or cannot name a folder of results; and for another seed than that
    of the lists that lie there, which trainings may read.
    """
    if name in TASKS:
        raise InputError(f"{name!r} is the name of a data set that is known already; choose another name for yours")
    if not re.fullmatch(r"\w[\w.-]*", name):
        raise InputError(f"{name!r} cannot name a data set: use letters, digits, '_', '-' and '.'")
    folder, before = Path(os.path.abspath(root)) / name, manifest(root, name)
    if folder.exists() and before is None:
        raise InputError(f"{folder} exists and is no data set that --data-set wrote: remove it, or choose another name")
    drawn = before["split"].get("seed") if before else None
    if None not in (seed, drawn) and seed != drawn:
        raise InputError(
            f"{name} is split from seed {drawn}: give the other split another name, --data-set {name}-{seed}={source}, "
            f"or remove {folder}"
        )
    table, described = split(source, (drawn or 0) if seed is None else seed)
    images, pictures = folder / "images", Path(described["source"]).resolve()
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        if images.resolve() != pictures:
            images.unlink(missing_ok=True)
            images.symlink_to(pictures, target_is_directory=True)
    for part, of_part in table.groupby("part"):
        labels = of_part.label.map(described["classes"].index)
        lines = [f"images/{path} {label}\n" for path, label in zip(of_part.path, labels, strict=True)]
        files.write_atomically(folder / f"{SPLIT_OF[part]}.txt", "".join(lines))
    files.write_atomically(folder / MANIFEST, json.dumps(described, indent=1, ensure_ascii=False) + "\n")
    return described


def find(folder: Path) -> list[Path]:
    """Return the pictures below `folder`: files with the suffix of a format that Pillow reads.

    Leaves out what is `HIDDEN`, and does not follow links to folders below it.
    """
    suffixes = {suffix for suffix, form in Image.registered_extensions().items() if form in Image.OPEN}
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix.lower() in suffixes
        and not path.is_dir()
        and not any(part.startswith(HIDDEN) for part in path.relative_to(folder).parts)
    )


def _folders(place: Path) -> list[Path]:
    """Return the folders in `place` that are not hidden."""
    with explained(f"{place} cannot be read"):
        return sorted(path for path in place.iterdir() if path.is_dir() and not path.name.startswith(HIDDEN))


def _contents(paths: list[Path]) -> pd.Series:
    """Return the column "content" of `read`. The store keeps it until a file changes."""

    def compute() -> list:
        reading = image_folders.each(_content, paths)
        contents = list(tqdm(reading, "checking", len(paths), unit="image", leave=False, delay=5))
        if errors := [content for content in contents if isinstance(content, InputError)]:
            raise InputError(name_errors(errors))
        return contents

    files_read = [[str(path), *image_folders.state(path)] for path in paths]
    key = ["pictures", image_folders.DECODER, PIL.__version__, files_read]
    content, pixels = zip(*image_folders.remembered(key, compute), strict=True)
    return pd.Series(content).groupby(list(pixels)).transform("min")


def _content(path: Path) -> tuple[str, str]:
    """Return the SHA-256 of a file and of its pixels. InputError where it cannot be decoded."""
    image = image_folders.as_displayed(path)
    return files.sha256(path), hashlib.sha256(f"{image.size}\n".encode() + image.tobytes()).hexdigest()


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
