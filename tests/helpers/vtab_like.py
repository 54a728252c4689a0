"""Small folders with VTAB-1k's layout: its names, classes and numbers of training images, few of them distinct."""

import json
from pathlib import Path

from rehearsal import write_vtab as write

from pvera.data import vtab

__all__ = ["accept", "write"]


def accept(root: Path) -> None:
    """Record that the data sets below `root` are used as they are, as `prepare_vtab.py --accept` does."""
    findings = {name: vtab.check(root, name) for name in vtab.NAMES if (root / name).exists()}
    (root / vtab.RECORD).write_text(json.dumps(findings))
