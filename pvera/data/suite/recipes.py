"""The suite's twelve tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pvera.data.suite.drawing import COUNTS, Part
from pvera.data.suite.natural import FLOWERS, SCENES, TEXTURES, digits, flowers, scenes, textures
from pvera.data.suite.specialized import BLOOD, CALIBERS, INDEX, LANDCOVER, blood, landcover, nuclei, vessels
from pvera.data.suite.structured import AZIMUTHS, COLUMNS, OBJECTS, SPANS, azimuth, counting, distance, sprites


@dataclass(frozen=True)
class Recipe:
    """One task: its title, what it measures, and the function (split, generator) -> Part that makes it and names it."""

    title: str
    category: str
    classes: tuple[str, ...]
    measures: str
    build: Callable[[str, np.random.Generator], Part]

    @property
    def name(self) -> str:
        return self.build.__name__

    @property
    def sha256(self) -> str:
        return SHA256[self.name]


RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe("Digits", "natural", tuple("0123456789"), "which handwritten digit stands on a scene", digits),
        Recipe("Textures", "natural", TEXTURES, "which kind of texture the image shows", textures),
        Recipe("Flowers", "natural", tuple(FLOWERS), "kind of flower, by number and shape of its petals", flowers),
        Recipe("Scenes", "natural", SCENES, "kind of landscape", scenes),
        Recipe("Nuclei", "specialized", tuple(INDEX), "which share of the nuclei is stained brown", nuclei),
        Recipe("Vessels", "specialized", tuple(CALIBERS), "caliber of the blood vessel at the centre", vessels),
        Recipe("Land cover", "specialized", LANDCOVER, "what covers the land of a satellite tile", landcover),
        Recipe("Blood", "specialized", BLOOD, "kind of the white blood cell", blood),
        Recipe("Counting", "structured", OBJECTS, "number of objects", counting),
        Recipe("Sprites", "structured", COLUMNS, "horizontal position of a sprite, in steps of one pixel", sprites),
        Recipe("Distance", "structured", SPANS, "metres to the nearest object", distance),
        Recipe("Azimuth", "structured", AZIMUTHS, "side that an object is seen from, in degrees", azimuth),
    )
}

#: "all" of `digests` as published; other versions of the packages may give other pixels.
SHA256 = {
    "digits": "790c47d511235a2795dd985e1c1d8c109564e2aecf6474367fb6385bb53df91a",
    "textures": "6a3da52704884c3b550317eab95a880bc4f899bb1bc72f7e925212c89dc88885",
    "flowers": "5c0959a1fc90dcb2de50fa5cd9e5ea33cfc1732a26430c63267779f045dc60bd",
    "scenes": "24839dd738c7d98c83e638d52d901a9945e06ca67574570eab04f9db3611e699",
    "nuclei": "2070c0e1b4d8673d5fbba64d5c4118ef96116efbcb968c118b4c2ea3a791e159",
    "vessels": "b78bba807f3cf9659ddcd1c14048ae5d8f3541ca466cc923236d78fccbeb2396",
    "landcover": "1d0a4706f0ed5dbbdd2853161e077e97630e005aeab53f41180426d9b9ee9e1d",
    "blood": "7e7d521745d45a10ba0ca3395a195189385ba406eebd925cb26f3bb7adb954ae",
    "counting": "addea45bb4eec8750340b8fe9239facc7c166e445046d4b5987bc2b877de9a3d",
    "sprites": "9d58ade4ee4caf96ffb5265fbb3b2ff6524839a5b2c30328585d6ec786a673d3",
    "distance": "bb7105468e35c45446b34fa6fe3224b5e3ef9fa0ad74e3a76fef819bfed0c4bf",
    "azimuth": "6ac9b2ed3e366ba732323f1ffccf97a85d4bb90f2a86a4fe3893f2a16a751f55",
}

#: The tasks whose images show an object, of which `test_masks` knows the pixels.
WITH_OBJECTS = ("digits", "flowers", "nuclei", "vessels", "blood", "counting", "sprites", "distance", "azimuth")


def make(recipe: Recipe) -> dict[str, Part]:
    """Make all splits of one task. The generator of each depends on the task and the split alone."""
    return {split: recipe.build(split, _generator(recipe.name, split)) for split in COUNTS}


def test_masks(name: str) -> np.ndarray | None:
    """Return the pixels (n, 32, 32) of the object in each test image of one of `WITH_OBJECTS`; None for other tasks."""
    return RECIPES[name].build("test", _generator(name, "test")).masks


def _generator(name: str, split: str) -> np.random.Generator:
    return np.random.default_rng([*name.encode(), list(COUNTS).index(split)])
