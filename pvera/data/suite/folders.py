"""The suite's tasks as folders: written whole, and recognised by their manifest."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from PIL import Image

from pvera.data.suite.drawing import Part
from pvera.data.suite.recipes import Recipe
from pvera.errors import writing
from pvera.files import sha256

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


def manifest(recipe: Recipe, folder: Path) -> dict | None:
    """Read the manifest of the task in `folder`; None where the task is incomplete or another version's."""
    try:
        described = json.loads((folder / MANIFEST).read_text())
        whole = all(sha256(folder / name) == sha for name, sha in described["split_files"].items())
        sizes = [path.stat().st_size for path in folder.rglob("*.png")]
        whole = whole and (len(sizes), sum(sizes)) == (described["files"], described["bytes"])
        return described if whole and described["recipe"] == recipe.sha256 else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def write(
    recipe: Recipe, parts: dict[str, Part], root: Path, progress: Callable[[int], None] = lambda images: None
) -> dict:
    """Write one task to `<root>/<name>`, which is replaced, and return its manifest.

    The files go to a hidden folder that takes the task's place at the end; progress(1) is called after each image.
    InputError, with nothing left behind, where the system refuses.
    """
    folder, partial, old = root / recipe.name, root / f".{recipe.name}.partial", root / f".{recipe.name}.old"
    with writing(root), _removed_before_and_after(partial, old):
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

        sizes = [path.stat().st_size for path in partial.rglob("*.png")]
        described = {
            "task": recipe.name,
            "measures": recipe.measures,
            "classes": recipe.classes,
            "images": {split: len(part.images) for split, part in parts.items()},
            "chance": float(np.bincount(parts["test"].labels).max() / len(parts["test"].labels)),
            "recipe": recipe.sha256,
            "sha256": digests(parts),
            "files": len(sizes),
            "bytes": sum(sizes),
            "split_files": {f"{split}.txt": sha256(partial / f"{split}.txt") for split in lines},
        }
        (partial / MANIFEST).write_text(json.dumps(described, indent=1) + "\n")
        if folder.exists():
            folder.rename(old)
        partial.rename(folder)
    return described


@contextmanager
def _removed_before_and_after(*folders: Path) -> Iterator[None]:
    """Remove `folders` at entry, as a killed process may have left them, and at exit."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    try:
        yield
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
