"""The suite's six tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pvera.data.suite.drawing import COUNTS, Part
from pvera.data.suite.natural import PHOTOGRAPHS, digits, photographs
from pvera.data.suite.specialized import retina, tissue
from pvera.data.suite.structured import STEREO, sprites, stereo


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
            "which handwritten digit stands on a photograph",
            digits,
            "7724a02e31cccbdf440fab31b255fa26e83925d12b65e2bda841a6dd02215b9b",
        ),
        Recipe(
            "photographs",
            "Photographs",
            "natural",
            PHOTOGRAPHS,
            "which photograph a grey patch was cut from",
            photographs,
            "9202b9b3c2c943e8e4382e2c264742212218240cb1ec461c420baf8862380c55",
        ),
        Recipe(
            "tissue",
            "Tissue",
            "specialized",
            ("under 5 %", "5 to 35 %", "35 to 70 %", "over 70 %"),
            "how much of the tissue at the centre is stained",
            tissue,
            "213859ead90940c7cffb4a7276910b39c9acdeab6a5713e5206b139566942466",
        ),
        Recipe(
            "retina",
            "Retina",
            "specialized",
            ("none", "thin", "medium", "thick"),
            "caliber of the blood vessel at the centre",
            retina,
            "e907e8f2ef8e6489c345606a8bb7bfbb8f63b94cfeea08b09e15f35c2e6eaf61",
        ),
        Recipe(
            "stereo",
            "Stereo",
            "structured",
            STEREO,
            "disparity at the centre of an anaglyph, in steps of two pixels",
            stereo,
            "f991a54ebcfa8deedceec0ffc53a4b64cec6bc9df3cd924886ffb4dbed56ccd2",
        ),
        Recipe(
            "sprites",
            "Sprites",
            "structured",
            tuple(str(i) for i in range(16)),
            "horizontal position of a sprite, in steps of one pixel",
            sprites,
            "851163d973466416b309f6d71e26bb931a14f922f37fa3ebf09cccb2b5b04aee",
        ),
    )
}


def make(recipe: Recipe) -> dict[str, Part]:
    """Make all splits of one task. The generator of each depends on the task and the split alone."""
    generators = (np.random.default_rng([*recipe.name.encode(), i]) for i in range(len(COUNTS)))
    return {split: recipe.build(split, generator) for split, generator in zip(COUNTS, generators, strict=True)}
