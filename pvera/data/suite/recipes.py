"""The suite's six tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pvera.data.suite.drawing import COUNTS, Part
from pvera.data.suite.natural import TEXTURES, digits, textures
from pvera.data.suite.specialized import nuclei, vessels
from pvera.data.suite.structured import OBJECTS, counting, sprites


@dataclass(frozen=True)
class Recipe:
    """One task: its names, what it measures, and the function (split, generator) -> Part that makes it.

    sha256: "all" of `digests` as published; other versions of the packages may give other pixels.
    """

    name: str
    title: str
    category: str
    classes: tuple[str, ...]
    measures: str
    build: Callable[[str, np.random.Generator], Part]
    sha256: str


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "digits",
            "Digits",
            "natural",
            tuple("0123456789"),
            "which handwritten digit stands on a scene",
            digits,
            "",
        ),
        Recipe(
            "textures",
            "Textures",
            "natural",
            TEXTURES,
            "which kind of texture the image shows",
            textures,
            "",
        ),
        Recipe(
            "nuclei",
            "Nuclei",
            "specialized",
            ("under 10 %", "10 to 30 %", "30 to 55 %", "over 55 %"),
            "which share of the nuclei is stained brown",
            nuclei,
            "",
        ),
        Recipe(
            "vessels",
            "Vessels",
            "specialized",
            ("none", "thin", "medium", "thick"),
            "caliber of the blood vessel at the centre",
            vessels,
            "",
        ),
        Recipe(
            "counting",
            "Counting",
            "structured",
            tuple(map(str, OBJECTS)),
            "number of objects",
            counting,
            "",
        ),
        Recipe(
            "sprites",
            "Sprites",
            "structured",
            tuple(str(i) for i in range(16)),
            "horizontal position of a sprite, in steps of one pixel",
            sprites,
            "",
        ),
    )
}


def make(recipe: Recipe) -> dict[str, Part]:
    """Make all splits of one task. The generator of each depends on the task and the split alone."""
    generators = (np.random.default_rng([*recipe.name.encode(), i]) for i in range(len(COUNTS)))
    return {split: recipe.build(split, generator) for split, generator in zip(COUNTS, generators, strict=True)}
