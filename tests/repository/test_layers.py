"""The library's layers, types and imports."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
HEAVY = {"pandas", "PIL", "matplotlib", "seaborn", "scipy", "sklearn", "yaml", "pydantic", "transformers"}


def run(*command: str, cwd: Path = ROOT) -> subprocess.CompletedProcess:
    return subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True)


def test_the_library_loads_nothing_heavy_beyond_timm_and_no_extra():
    """`import pvera` loads nothing heavy beyond what timm loads; no module of the library imports it at its top."""
    modules = [f"pvera.{path.stem}" for path in (ROOT / "pvera").glob("*.py") if path.stem != "__init__"]
    # torch and torchvision import some of these packages if they are installed, so only the library's imports fail.
    program = f"""
import builtins, runpy, sys
runpy.run_path("pvera/torchvision_repair.py")["declare_missing"]()
import timm
before = set(sys.modules)
imported = builtins.__import__
def refuse(name, globals=None, *rest, **more):
    package = name.partition(".")[0]
    assert package not in {HEAVY!r} or not (globals or {{}}).get("__name__", "").startswith("pvera"), name
    return imported(name, globals, *rest, **more)
builtins.__import__ = refuse
import pvera
assert "pvera.adapters" in set(sys.modules) - before
heavy = (set(sys.modules) - before) & {HEAVY!r}
assert not heavy, heavy
import {", ".join(modules)}
"""
    ended = run(sys.executable, "-c", program)
    assert ended.returncode == 0, ended.stderr


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(ROOT / "pvera", tmp_path / "pvera", ignore=shutil.ignore_patterns("weights", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


#: Module, import against the layers -> how lint-imports names it.
AGAINST_THE_LAYERS = {
    ("model", "pvera.study.runs"): "- pvera.model -> pvera.study.runs ",
    ("data/store", "pvera.report.scores"): "- pvera.data.store -> pvera.report.scores ",
    ("hooks", "pvera.model"): "- pvera.hooks -> pvera.model ",
    ("adapters/lora", "pvera.adapters.dora"): "- .lora -> .dora ",  # dora imports lora
}


def test_layers_hold_and_each_import_against_them_is_noticed(copy):
    ended = run(BIN / "lint-imports", "--no-cache", cwd=copy)
    assert ended.returncode == 0, ended.stdout
    for module, imported in AGAINST_THE_LAYERS:
        with open(copy / f"pvera/{module}.py", "a") as file:
            file.write(f"\nimport {imported}\n")
    (copy / "pvera/new.py").touch()
    ended = run(BIN / "lint-imports", "--no-cache", cwd=copy)
    assert ended.returncode == 1
    named = [*AGAINST_THE_LAYERS.values(), "The following modules are not listed as layers:\n\n- pvera.new\n"]
    assert [text for text in named if text not in ended.stdout] == [], ended.stdout


@pytest.mark.timeout(1800)  # mypy takes a while without its cache
def test_types_hold_and_a_wrong_one_is_noticed(copy):
    with open(copy / "pvera/seeding.py", "a") as module:
        module.write("\nWRONG: str = derive(0)\n")
    ended = run(BIN / "mypy", "--cache-dir", ROOT / ".mypy_cache", cwd=copy)
    assert ended.returncode == 1, ended.stdout
    (error,) = [line for line in ended.stdout.splitlines() if ": error: " in line]
    assert error.startswith("pvera/seeding.py"), "the one wrong type is the one written here"
