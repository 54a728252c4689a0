"""A demonstration suite of six small tasks in VTAB-1k's folder format, made from images that packages carry.

Each VTAB-1k category has two tasks of 800 training, 200 validation and 1 000 test images, 32 x 32 pixels each.
Nothing is downloaded, and the pinned versions give the same pixels on every run.

Patches of one photograph never share a pixel across splits: each photograph is cut into cells, every cell
belongs to one split, and a patch lies inside one cell. Within a split patches may overlap, and some test
digits are drawn twice. Such errors are not independent, so intervals from them are a little narrow.
"""

from pvera.data.suite.drawing import COUNTS, Part
from pvera.data.suite.folders import MANIFEST, digests, manifest, write
from pvera.data.suite.recipes import RECIPES, Recipe, make

__all__ = ["COUNTS", "MANIFEST", "RECIPES", "Part", "Recipe", "digests", "make", "manifest", "write"]
