"""Data sets by name, the known ones and one's own: titles, categories, classes and sizes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pvera import files
from pvera.data import glue, suite
from pvera.errors import InputError

#: The file in the folder of one's own data set that describes it; `custom.install` writes it.
MANIFEST = "own.json"

#: The categories of VTAB-1k, in the order of tables, and all that there are.
CATEGORIES = ("natural", "specialized", "structured")
ALL_CATEGORIES = (*CATEGORIES, "own", "language")


@dataclass(frozen=True)
class DataSetInfo:
    """What is known of a data set before it is read."""

    #: Its name, which is its folder too.
    name: str
    #: Its title in tables.
    title: str
    #: Its group in tables, one of `ALL_CATEGORIES`.
    category: str
    #: Number of classes.
    classes: int
    #: Number of test images, or texts.
    test_images: int
    #: Where it comes from: "vtab", "synthetic", "glue" or "own".
    suite: str


#: The 19 data sets of the paper, in its order: name, title, category, classes and test images, as
#: the files in circulation have them.
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


def _known_data_sets() -> dict[str, DataSetInfo]:
    known = [DataSetInfo(*row, suite="vtab") for row in _VTAB]
    for drawn in suite.SYNTHETIC_TASKS.values():
        row = (drawn.name, drawn.title, drawn.category, len(drawn.classes), suite.COUNTS["test"])
        known.append(DataSetInfo(*row, suite="synthetic"))
    for task in glue.GLUE.values():
        row = (task.name, task.title, "language", len(task.classes), task.test_texts)
        known.append(DataSetInfo(*row, suite="glue"))
    return {info.name: info for info in known}


#: The known data sets by name, to which docs/extending.md adds. Each has one task.
TASKS = _known_data_sets()


#: Data set -> the pictures that it shares with others. A random sample of tasks has them once.
SAME_IMAGES = {
    "clevr_count": "clevr",
    "clevr_dist": "clevr",
    "dsprites_loc": "dsprites",
    "dsprites_ori": "dsprites",
    "smallnorb_azi": "smallnorb",
    "smallnorb_ele": "smallnorb",
}


def find_data_set(name: str, root: str | Path | None = None) -> DataSetInfo:
    """Return the data set of that name: a known one, or one's own below `root`.

    Raises:
        InputError: There is none; the message lists the known names.
    """
    if name in TASKS:
        return TASKS[name]
    manifest = read_manifest(root, name)
    if manifest is None:
        raise InputError(
            f"unknown data set {name!r}; choose from {', '.join(TASKS)}, "
            f"or name your own pictures with --data-set {name}=FOLDER"
        )
    classes = len(manifest["classes"])
    return DataSetInfo(name, name, "own", classes, manifest["images"]["test"], "own")


def read_manifest(root: str | Path | None, name: str) -> dict[str, Any] | None:
    """Return the description of one's own data set `name` below `root`, None for all others.

    Its keys:

        source           the folder of the pictures
        classes          their names in the order of labels
        images           number of pictures per split
        split            "given": the splits that `source` has; "drawn": the shares of the others,
                         with their "seed"
        pictures_sha256  hash of contents, labels and given splits
        lists_sha256     hash of paths, labels and splits
        left_out         number of files that are no pictures of a class
        alike            number of pictures with the pixels of another
    """
    if name in TASKS or root is None:
        return None
    file = Path(root) / name / MANIFEST
    if not file.exists():
        return None
    return files.read_json(file, "remove it, and name the folder of your pictures again")


def class_names(name: str, root: str | Path | None = None) -> list[str]:
    """Return the names of the classes of a data set, in the order of labels."""
    manifest = read_manifest(root, name)
    if manifest:
        return manifest["classes"]
    return [class_name(name, label) for label in range(find_data_set(name).classes)]


def class_name(name: str, label: int) -> str:
    """Return the name of a class of the data set `name`, or its number where it has no name."""
    task = suite.SYNTHETIC_TASKS.get(name)
    return task.classes[label] if task else f"class {label}"
