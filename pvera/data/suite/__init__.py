"""A demonstration suite of twelve small tasks in VTAB-1k's folder format, drawn by programs.

Each VTAB-1k category has four tasks of 800 training, 200 validation and 2 000 test images, 32 x 32 pixels each.
Nothing is downloaded, and the pinned versions give the same pixels on every run.

Each image is drawn on its own, from random numbers alone. Digits is the exception: 1 797 handwritten digits, which
scikit-learn carries, are dealt to the splits, and the 797 of the test set are drawn two or three times each.
"""

from pvera.data.suite.drawing import COUNTS, Part
from pvera.data.suite.folders import MANIFEST, digests, is_made, write
from pvera.data.suite.recipes import RECIPES, WITH_OBJECTS, Recipe, make, test_masks

__all__ = ["COUNTS", "MANIFEST", "RECIPES", "WITH_OBJECTS", "Part", "Recipe", "digests", "is_made", "make"]
__all__ += ["test_masks", "write"]
