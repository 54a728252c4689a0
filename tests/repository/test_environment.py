"""The lists of packages agree, imports are declared, and setup_env.sh makes an environment once and completely."""

import ast
import importlib.metadata
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
SITE = EXTRAS.pop("site")  # in an environment of its own
PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]


def names(*lists: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(line).name) for lines in lists for line in lines}


def pins(lines, python: str) -> dict[str, Version]:
    """Return package -> version on `python`; every line must pin one version, without a build."""
    versions = {}
    for line in lines:
        requirement = Requirement(line)
        (specifier,) = requirement.specifier
        version = Version(specifier.version)
        assert specifier.operator == "==" and "*" not in specifier.version and version.local is None, line
        if requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
            name = canonicalize_name(requirement.name)
            assert name not in versions, f"{name} is pinned twice for Python {python}"
            versions[name] = version
    return versions


def lock(python: str, name: str = "requirements.lock") -> dict[str, Version]:
    lines = (ROOT / name).read_text().splitlines()
    return pins([line for line in lines if not line.startswith("#")], python)


@pytest.mark.parametrize("python", PYTHONS)
def test_lock_pins_every_dependency_within_its_bounds(python):
    locked = lock(python)
    for line in [*PROJECT["dependencies"], *(line for extra in EXTRAS.values() for line in extra)]:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            assert requirement.extras <= set(EXTRAS), line
        elif requirement.marker is None or requirement.marker.evaluate({"python_version": python}):
            assert locked[canonicalize_name(requirement.name)] in requirement.specifier, line
    locked = lock(python, "requirements-site.lock")
    for requirement in map(Requirement, SITE):
        assert locked[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_conda_environment_has_the_locked_versions():
    dependencies = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (python,) = (d.removeprefix("python=") for d in dependencies if str(d).startswith("python="))
    (listed,) = (d["pip"] for d in dependencies if isinstance(d, dict))
    assert listed[-1] == f"-e .[{','.join(EXTRAS)}]"
    assert pins(listed[:-1], python) == lock(python)
    assert f"-e '.[{','.join(EXTRAS)}]'" in (ROOT / "setup_env.sh").read_text()


def test_installed_versions_are_the_locked_ones():
    # The build after "+" depends on the machine: torch 2.13.0+cpu is torch 2.13.0.
    locked = lock("{}.{}".format(*sys.version_info))
    installed = {name: Version(Version(importlib.metadata.version(name)).public) for name in locked}
    assert installed == locked


def declared(*extras: str) -> set[str]:
    return names(PROJECT["dependencies"], *map(EXTRAS.get, extras))


@pytest.mark.parametrize(
    "pattern, declared",
    [
        ("pvera/*.py", declared()),
        ("pvera/adapters/*.py", declared()),
        ("pvera/data/**/*.py", declared("study", "language")),
        ("pvera/study/**/*.py", declared("study", "slurm")),
        ("pvera/report/**/*.py", declared("study", "report", "notebooks") | {"ipython", "jupyter-client"}),
        ("experiments/*.py", declared(*EXTRAS)),  # peft for comparisons
        ("tests/**/*.py", declared(*EXTRAS) | {"ipython"}),
    ],
)
def test_imports_are_declared(pattern, declared):
    paths = list(ROOT.glob(pattern))
    assert paths
    ours = {"pvera", *(path.stem for path in [*paths, *ROOT.glob("experiments/*.py")])}
    imported = set()
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(node.module.partition(".")[0])
    providers = importlib.metadata.packages_distributions()
    for module in imported - ours - sys.stdlib_module_names:
        assert {canonicalize_name(name) for name in providers.get(module, [module])} & declared, module


HEAVY = {"pandas", "PIL", "matplotlib", "seaborn", "scipy", "sklearn", "yaml", "pydantic", "transformers"}
MODULES = ", ".join(f"pvera.{path.stem}" for path in (ROOT / "pvera").glob("*.py") if path.stem != "__init__")
#: torch and torchvision import some of these packages if they are installed, so only the library's imports fail.
LIGHT = f"""
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
heavy = (set(sys.modules) - before) & {HEAVY!r}
assert "pvera.adapters" in set(sys.modules) - before and not heavy, heavy
import {MODULES}
builtins.__import__ = imported
sys.modules["transformers"] = None
import pvera.report.tables.benchmark, pvera.study.runs
assert not {{"matplotlib", "seaborn"}} & sys.modules.keys()
"""


def test_the_library_loads_nothing_heavy_and_trainings_and_tables_draw_nothing():
    ended = subprocess.run([sys.executable, "-c", LIGHT], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


# Setting up .venv, with a stand-in for Python that does not install


PYTHON = """#!/bin/bash
case "$*" in
    *ensurepip*) exit 0 ;;
    "-m venv --clear .venv")
        rm -rf .venv && mkdir -p .venv/bin && cp "$0" .venv/bin/python && touch .venv/bin/activate ;;
    *"-m pip install"*)
        echo installed >>installations
        sleep "${PIP_SECONDS:-0}"
        exit "${PIP_STATUS:-0}" ;;
esac
"""


@pytest.fixture
def clone(tmp_path):
    """The files that setup_env.sh needs, and a PATH that starts with the stand-in for Python."""
    for name in ("setup_env.sh", "run_all.sh", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "experiments/profiles", tmp_path / "experiments/profiles")
    python = tmp_path / "bin/python3"
    python.parent.mkdir()
    python.write_text(PYTHON)
    python.chmod(0o755)
    return tmp_path


def set_up(clone, **environment) -> subprocess.Popen:
    path = f"{clone / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        ["bash", "-c", "set -euo pipefail; source setup_env.sh"],
        cwd=clone,
        env={**os.environ, "PATH": path, **environment},
        stderr=subprocess.PIPE,
        text=True,
    )


def status(process: subprocess.Popen) -> int:
    process.communicate(timeout=60)
    return process.returncode


def installations(clone) -> int:
    return (clone / "installations").read_text().count("installed")


def test_environment_is_made_once_for_each_lock_and_again_after_a_failure(clone):
    assert status(set_up(clone, PIP_STATUS="1")) == 1
    for count in (2, 2):
        assert status(set_up(clone)) == 0 and installations(clone) == count
    with open(clone / "requirements.lock", "a") as file:
        file.write("another==1.0\n")
    assert status(set_up(clone)) == 0 and installations(clone) == 3
