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


def test_the_page_names_the_platforms_that_are_tested():
    jobs = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text())["jobs"]
    pythons = " and ".join(jobs["tests"]["strategy"]["matrix"]["python"])
    assert jobs["tests"]["runs-on"] == "ubuntu-latest"
    assert f"Linux with CPython {pythons}" in (ROOT / "docs/library.md").read_text()


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
        ("pvera/peft/*.py", declared()),
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


MODULES = ", ".join(f"pvera.{path.stem}" for path in (ROOT / "pvera").glob("*.py") if path.stem != "__init__")
#: What the library does without, and what trainings and tables do without. (torch imports others where it finds them.)
LIGHT = f"""
import sys
sys.modules |= dict.fromkeys(("pandas", "sklearn", "pydantic", "matplotlib", "seaborn", "transformers"))
import {MODULES}
for name in ("pandas", "sklearn", "pydantic"):
    del sys.modules[name]
import pvera.report.tables.benchmark, pvera.study.runs
"""


def test_the_library_loads_nothing_heavy_and_trainings_and_tables_draw_nothing():
    ended = subprocess.run([sys.executable, "-c", LIGHT], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


#: A stand-in for Python that does not install.
PYTHON = """#!/bin/bash
case "$*" in
    *ensurepip*) exit 0 ;;
    "-m venv --clear .venv")
        rm -rf .venv && mkdir -p .venv/bin && cp "$0" .venv/bin/python && touch .venv/bin/activate ;;
    *"-m pip install"*) echo installed >>installations && exit "${PIP_STATUS:-0}" ;;
esac
"""


def test_environment_is_made_once_for_each_lock_and_again_after_a_failure(tmp_path):
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/python3").write_text(PYTHON)
    (tmp_path / "bin/python3").chmod(0o755)
    for name in ("setup_env.sh", "requirements.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)

    def set_up(status: int = 0, options: str = "set -euo pipefail; ") -> int:
        """Set up where pip ends with `status`; return how often pip has installed."""
        path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "PIP_STATUS": str(status)}
        command = ["bash", "-c", f"{options}source setup_env.sh"]
        ended = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, timeout=60)
        assert ended.returncode == (status if options else 0)
        return (tmp_path / "installations").read_text().count("installed")

    assert [set_up(status=1), set_up(status=1, options=""), set_up(), set_up()] == [1, 2, 3, 3]
    with open(tmp_path / "requirements.lock", "a") as file:
        file.write("another==1.0\n")
    assert set_up() == 4
