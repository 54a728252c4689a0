"""The data sets by name: titles, categories, classes and sizes.

A data set of one's own has a folder below the root that `custom.install` wrote, with a description in `MANIFEST`. So
whoever has the root knows it: this process, its workers, and a cluster's jobs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pvera.data import glue, suite
from pvera.errors import InputError
from pvera.files import read_json

MANIFEST = "own.json"


@dataclass(frozen=True)
class Task:
    """One data set: its folder, its title and category in the paper's tables, and its size."""

    name: str
    title: str
    category: str  # "natural", "specialized" or "structured"; "own"; "language" for the text tasks (see `glue`)
    classes: int
    test_images: int  # or texts
    suite: str  # "vtab" or "demo"; "own"; "glue"


# The 19 data sets of the paper, in its order; counts as the test files in circulation hold them.
_VTAB = (
    ("caltech101", "Caltech101", "natural", 102, 6084),
    ("cifar", "CIFAR-100", "natural", 100, 10000),
    ("dtd", "DTD", "natural", 47, 1880),
    ("oxford_flowers102", "Flowers102", "natural", 102, 6149),
    ("oxford_iiit_pet", "Pets", "natural", 37, 3669),
    ("sun397", "Sun397", "natural", 397, 21750),
    ("svhn", "SVHN", "natural", 10, 26032),
    ("patch_camelyon", "Camelyon", "specialized", 2, 32768),
    ("eurosat", "EuroSAT", "specialized", 10, 5400),
    ("resisc45", "Resisc45", "specialized", 45, 6300),
    ("diabetic_retinopathy", "Retinopathy", "specialized", 5, 42670),
    ("clevr_count", "Clevr-Count", "structured", 8, 15000),
    ("clevr_dist", "Clevr-Dist", "structured", 6, 15000),
    ("dmlab", "DMLab", "structured", 6, 22735),
    ("dsprites_loc", "dSpr-Loc", "structured", 16, 73728),
    ("dsprites_ori", "dSpr-Ori", "structured", 16, 73728),
    ("kitti", "KITTI-Dist", "structured", 4, 711),
    ("smallnorb_azi", "sNORB-Azim", "structured", 18, 12150),
    ("smallnorb_ele", "sNORB-Elev", "structured", 9, 12150),
)


TASKS = (
    {row[0]: Task(*row, suite="vtab") for row in _VTAB}
    | {
        r.name: Task(r.name, r.title, r.category, len(r.classes), suite.COUNTS["test"], suite="demo")
        for r in suite.RECIPES.values()
    }
    | {t.name: Task(t.name, t.title, "language", len(t.classes), t.dev, "glue") for t in glue.GLUE.values()}
)


def task(name: str, root: str | Path | None = None) -> Task:
    """Return the data set of that name: a known one, or one's own below `root`. InputError lists the known names."""
    if name in TASKS:
        return TASKS[name]
    described = manifest(root, name)
    if described is None:
        raise InputError(
            f"unknown data set {name!r}; choose from {', '.join(TASKS)}, or name your own pictures with "
            f"--data-set {name}=FOLDER"
        )
    return Task(name, name, "own", len(described["classes"]), described["images"]["test"], "own")


def manifest(root: str | Path | None, name: str) -> dict[str, Any] | None:
    """Return the description of one's own data set `name` below `root`, None for all others.

    classes: their names in the order of labels.   images: their number per split.
    split: which splits were given, and the seed and shares of those that were drawn.
    source: the folder.   pictures_sha256: of contents, labels and given splits.   lists_sha256: of the lists.
    left_out: the number of files per reason.   alike: the number of pictures with the pixels of another.
    """
    if name in TASKS or root is None:
        return None
    file = Path(root) / name / MANIFEST
    advice = "remove it, and name the folder of your pictures again"
    return read_json(file, advice) if file.exists() else None


def provenance(root: str | Path, name: str) -> dict:
    """Return what a result file says of a data set that is not of VTAB-1k; of your own: splits, classes, pictures."""
    described, origin = manifest(root, name), {"data_copy": None}
    if described:
        origin["own_data"] = {key: described[key] for key in ("split", "classes", "pictures_sha256")}
    return origin


def class_names(name: str, root: str | Path | None = None) -> list[str]:
    """Return the names of the classes of a data set, in the order of labels."""
    described = manifest(root, name)
    return described["classes"] if described else [class_name(name, label) for label in range(task(name).classes)]


def class_name(name: str, label: int) -> str:
    """Return the name of a class of the data set `name`, or its number where it has no name."""
    recipe = suite.RECIPES.get(name)
    return recipe.classes[label] if recipe else f"class {label}"
