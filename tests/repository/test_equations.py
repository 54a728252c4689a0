"""docs/equations.md points to classes and functions that exist."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "equations.md").read_text()


def defined(path: Path) -> set[str]:
    """Return the functions, classes and methods ("Class.method") of a module."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


ROWS = [row.split("|")[1:-1] for row in PAGE.splitlines() if row.startswith(("| Eq.", "| Algorithm"))]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip())
def test_each_equation_has_its_code(row):
    _, _, files, names = row
    paths = [ROOT / "docs" / link for link in re.findall(r"\]\((.*?)\)", files)]
    found = set().union(*map(defined, paths))
    assert set(re.findall(r"`(.*?)`", names)) <= found


def test_every_equation_of_the_paper_is_there():
    assert [row[0].strip() for row in ROWS] == [f"Eq. {i}" for i in range(1, 12)] + ["Algorithm 1", "Algorithm 2"]
