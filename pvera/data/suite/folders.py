"""The suite's tasks as folders: written whole or not at all, and recognised by their manifest."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from pvera.data.suite.drawing import Part
from pvera.data.suite.recipes import Recipe
from pvera.errors import writing

MANIFEST = "manifest.json"


def _path(split: str, index: int) -> str:
    return f"images/{split}/{index:04d}.png"


def digests(parts: dict[str, Part]) -> dict[str, str]:
    """Return the SHA-256 of each split's paths, labels and pixels, and as "all" that of these digests."""
    sums = {}
    for split, part in parts.items():
        sha = hashlib.sha256()
        for i, (image, label) in enumerate(zip(part.images, part.labels, strict=True)):
            sha.update(f"{_path(split, i)} {label}\n".encode())
            sha.update(image.tobytes())
        sums[split] = sha.hexdigest()
    return sums | {"all": hashlib.sha256("".join(sums.values()).encode()).hexdigest()}


def is_made(recipe: Recipe, folder: Path) -> bool:
    """Return whether `folder` holds this version of the task; it gets its name when all of it is written."""
    try:
        return json.loads((folder / MANIFEST).read_text())["recipe"] == recipe.sha256
    except (OSError, ValueError, KeyError, TypeError):
        return False


def write(
    recipe: Recipe, parts: dict[str, Part], root: Path, progress: Callable[[int], None] = lambda images: None
) -> dict:
    """Write one task to `<root>/<name>`, which is replaced, and return its manifest.

    The files go to a hidden folder that takes the task's place at the end; progress(1) is called after each image.
    InputError, with nothing left behind, where the system refuses.
    """
    folder, partial = root / recipe.name, root / f".{recipe.name}.partial"
    with writing(root):
        shutil.rmtree(partial, ignore_errors=True)  # of a call that was killed
        try:
            lines = {}
            for split, part in parts.items():
                (partial / "images" / split).mkdir(parents=True)
                lines[split] = []
                for i, (image, label) in enumerate(zip(part.images, part.labels, strict=True)):
                    path = _path(split, i)
                    Image.fromarray(image).save(partial / path, compress_level=1)
                    lines[split].append(f"{path} {label}\n")
                    progress(1)
            lines["train800val200"] = lines["train800"] + lines["val200"]
            for split, entries in lines.items():
                (partial / f"{split}.txt").write_text("".join(entries))
            manifest = {"classes": recipe.classes, "recipe": recipe.sha256, "sha256": digests(parts)}
            (partial / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
            shutil.rmtree(folder, ignore_errors=True)
            partial.rename(folder)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return manifest
