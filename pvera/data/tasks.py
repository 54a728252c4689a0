"""The data sets by name: titles, categories, classes and sizes."""

from dataclasses import dataclass

from pvera.data import glue, suite


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
        r.name: Task(
            r.name, r.title, r.category, len(r.classes), suite.COUNTS["test"], suite="demo"
        )
        for r in suite.RECIPES.values()
    }
    | {
        t.name: Task(t.name, t.title, "language", len(t.classes), t.dev, "glue")
        for t in glue.GLUE.values()
    }
)


def class_name(name: str, label: int) -> str:
    """Return the name of a class of the data set `name`, or its number where it has no name."""
    recipe = suite.RECIPES.get(name)
    return recipe.classes[label] if recipe else f"class {label}"
