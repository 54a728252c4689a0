"""The library stands on its own: its layers, its types, and what importing it costs."""

import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
HEAVY = {"pandas", "PIL", "matplotlib", "seaborn", "scipy", "sklearn", "yaml", "pydantic", "fvcore", "transformers"}


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)


def seconds(statement: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", statement], check=True, cwd=ROOT)
    return time.perf_counter() - start


def test_the_library_loads_nothing_heavy_beyond_timm():
    program = f"""
import pvera_torchvision, sys
pvera_torchvision.declare_missing()
import timm
before = set(sys.modules)
import pvera
assert "pvera.adapters" in set(sys.modules) - before
heavy = (set(sys.modules) - before) & {HEAVY!r}
assert not heavy, heavy
"""
    ended = run(sys.executable, "-c", program)
    assert ended.returncode == 0, ended.stderr


def test_extras_are_imported_where_they_are_used():
    """Every module of the library loads without the packages of the extras."""
    modules = [f"pvera.{path.stem}" for path in (ROOT / "pvera").glob("*.py") if path.stem != "__init__"]
    # torch and torchvision use what they find of these: only imports of the library itself are refused.
    program = f"""
import builtins, sys
imported = builtins.__import__
def refuse(name, globals=None, *rest, **more):
    package = name.partition(".")[0]
    assert package not in {HEAVY!r} or not (globals or {{}}).get("__name__", "").startswith("pvera"), name
    return imported(name, globals, *rest, **more)
builtins.__import__ = refuse
import {", ".join(modules)}
"""
    ended = run(sys.executable, "-c", program)
    assert ended.returncode == 0, ended.stderr


@pytest.mark.slow
def test_import_takes_little_longer_than_timm():
    """Medians of three fresh processes each, which take turns."""
    pairs = [(seconds("import pvera_torchvision as p; p.declare_missing(); import timm"), seconds("import pvera"))]
    pairs += [(seconds("import timm"), seconds("import pvera")) for _ in range(2)]
    timm, pvera = (statistics.median(column) for column in zip(*pairs))
    assert pvera <= timm + 0.3


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(ROOT / "pvera", tmp_path / "pvera", ignore=shutil.ignore_patterns("weights", "__pycache__"))
    shutil.copy(ROOT / "pvera_torchvision.py", tmp_path)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "file, line",
    [
        ("pvera/model.py", "from pvera.study import runs"),
        ("pvera/data/store.py", "from pvera.report import scores"),
        ("pvera/hooks.py", "import pvera.model"),
        ("pvera/adapters/lora.py", "import pvera.adapters.dora"),
        ("pvera/new.py", ""),
    ],
)
def test_an_import_against_the_layers_is_noticed(copy, file, line):
    with open(copy / file, "a") as module:
        module.write(f"\n{line}\n")
    ended = run(BIN / "lint-imports", "--no-cache", cwd=copy)
    assert ended.returncode == 1, ended.stdout


def test_layers_hold(copy):
    ended = run(BIN / "lint-imports", "--no-cache", cwd=copy)
    assert ended.returncode == 0, ended.stdout


def test_types_hold_and_a_wrong_one_is_noticed(copy):
    command = (BIN / "mypy", "--cache-dir", ROOT / ".mypy_cache")  # run_tests.sh has just filled it
    ended = run(*command, cwd=copy)
    assert ended.returncode == 0, ended.stdout
    with open(copy / "pvera/seeding.py", "a") as module:
        module.write("\nWRONG: str = derive(0)\n")
    ended = run(*command, cwd=copy)
    assert ended.returncode == 1 and "pvera/seeding.py" in ended.stdout
