"""The lists of packages agree, imports are declared, and setup_env.sh makes an environment."""

import ast
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from fnmatch import fnmatchcase
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
# In an environment of its own.
SITE = EXTRAS.pop("site")
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
        assert specifier.operator == "==" and "*" not in specifier.version, line
        assert version.local is None, line
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


def test_scripts_and_tests_together_have_all_extras():
    lists = re.findall(r"-e '\.\[(.+)\]'", (ROOT / "setup_env.sh").read_text())
    assert sorted(",".join(lists).split(",")) == sorted(EXTRAS)


def test_installed_versions_are_the_locked_ones():
    # The build after "+" depends on the machine: torch 2.13.0+cpu is torch 2.13.0.
    locked = lock("{}.{}".format(*sys.version_info))
    installed = {name: Version(Version(importlib.metadata.version(name)).public) for name in locked}
    assert installed == locked


#: What jupyter, which is declared, brings along.
JUPYTER = {"ipython", "jupyter-client"}


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
        ("pvera/report/**/*.py", declared("study", "report", "notebooks") | JUPYTER),
        # peft is for comparisons.
        ("experiments/*.py", declared(*EXTRAS)),
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
        packages = {canonicalize_name(name) for name in providers.get(module, [module])}
        assert packages & declared, module


MODULES = ", ".join(
    f"pvera.{path.stem}" for path in (ROOT / "pvera").glob("*.py") if path.stem != "__init__"
)
HEAVY = ("matplotlib", "seaborn", "transformers")
OF_THE_STUDY = ("pandas", "sklearn", "pydantic")
#: What the library does without, and what trainings and tables do without. (torch imports others
#: where it finds them.)
LIGHT = f"""
import sys
sys.modules |= dict.fromkeys({HEAVY + OF_THE_STUDY})
import {MODULES}
for name in {OF_THE_STUDY}:
    del sys.modules[name]
import pvera.report.tables.benchmark, pvera.study.worker
"""


def installed_packages() -> list[str]:
    """Return the packages that `pip install .` installs."""
    patterns = PYPROJECT["tool"]["setuptools"]["packages"]["find"]
    packages = []
    for file in sorted((ROOT / "pvera").rglob("__init__.py")):
        package = ".".join(file.parent.relative_to(ROOT).parts)
        included = any(fnmatchcase(package, pattern) for pattern in patterns["include"])
        excluded = any(fnmatchcase(package, pattern) for pattern in patterns["exclude"])
        if included and not excluded:
            packages.append(package)
    return packages


#: Adapts the packaged backbone, and reads the adapter that it has written.
INSTALLED = f"""
import {MODULES}
model = pvera.adapt(pvera.backbones.load("tiny").model, pvera.PVeRA(rank=4), 10)
pvera.save(model, "adapter.safetensors")
pvera.load(model.unload(), "adapter.safetensors")
print(pvera.__file__)
"""


@pytest.mark.slow
def test_what_pip_installs_is_the_library_and_works_alone(tmp_path):
    assert installed_packages() == ["pvera", "pvera.adapters", "pvera.peft"]
    for package in installed_packages():
        folder = Path(*package.split("."))
        (tmp_path / folder).mkdir()
        for file in (ROOT / folder).glob("*.py"):
            shutil.copy(file, tmp_path / folder)
    shutil.copytree(ROOT / "pvera/weights", tmp_path / "pvera/weights")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-c", INSTALLED]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == str(tmp_path / "pvera/__init__.py")


def test_the_library_loads_nothing_heavy_and_trainings_and_tables_draw_nothing():
    ended = subprocess.run([sys.executable, "-c", LIGHT], cwd=ROOT, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


#: Stand-ins that install nothing: they write how they were called, each into a file of its own.
PYTHON = """#!/bin/bash
case "$*" in
    *ensurepip*) exit 0 ;;
    "-m venv --clear .venv")
        rm -rf .venv && mkdir -p .venv/bin && touch .venv/bin/activate
        cp "$0" .venv/bin/python ;;
    *"-m pip install"*) echo "$*" >>pip && exit "${PIP_STATUS:-0}" ;;
    *"-m pip config list") echo "$PIP_CONFIGURATION" ;;
esac
"""
UV = """#!/bin/bash
case "$*" in
    *--dry-run*) exit "${TORCH_INDEX_STATUS:-1}" ;;
    *) echo "$UV_INDEX|$UV_FIND_LINKS|$*" >>uv && exit "${UV_STATUS:-0}" ;;
esac
"""
TOOLS = ("bash", "cat", "cksum", "cp", "flock", "mkdir", "rm", "sed", "touch", "tr")


@pytest.fixture
def clone(tmp_path):
    """A folder with what setup_env.sh reads; its PATH has stand-ins and the shell's tools alone."""
    for name in ("setup_env.sh", "requirements.lock", "requirements-site.lock", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "bin").mkdir()
    for tool in filter(shutil.which, TOOLS):
        (tmp_path / "bin" / tool).symlink_to(shutil.which(tool))
    for name, text in {"python3": PYTHON, "uv": UV}.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


STRICT = "set -euo pipefail"


def set_up(clone: Path, options: str = STRICT, then: str = "", **variables: str):
    """Source setup_env.sh in a shell with `options`; return its exit status and what it says."""
    ended = subprocess.run(
        ["bash", "-c", f"{options}; source setup_env.sh; {then}"],
        cwd=clone,
        env={"PATH": str(clone / "bin"), **variables},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return ended.returncode, ended.stderr


def calls(clone: Path, program: str) -> list[str]:
    file = clone / program
    return file.read_text().splitlines() if file.exists() else []


def test_environment_is_made_once_for_each_lock_and_again_after_a_failure(clone):
    def installations(status: int = 0, options: str = STRICT) -> int:
        ended, _ = set_up(clone, options, UV_STATUS="1", PIP_STATUS=str(status))
        assert ended == status
        return len(calls(clone, "pip"))

    assert installations(1) == 1
    assert installations(1, options=":") == 2
    assert installations() == 3
    assert installations() == 3
    with open(clone / "requirements.lock", "a") as file:
        file.write("another==1.0\n")
    assert installations() == 4


def test_packages_of_the_tests_are_added_once_and_to_the_same_environment(clone):
    for _ in range(2):
        assert set_up(clone, then="install_for_tests")[0] == 0
    assert set_up(clone)[0] == 0
    extras = [re.search(r"-e \.\[(\w+)", call)[1] for call in calls(clone, "uv")]
    assert extras == ["language", "dev"]


def test_uv_takes_packages_from_where_pip_is_told_to_look(clone):
    configuration = (
        ":env:.find-links='wheels more'\nglobal.find-links='other'\n"
        r"global.extra-index-url='\nhttps://one/simple\nhttps://two/simple'"
    )
    assert set_up(clone, PIP_CONFIGURATION=configuration, TORCH_INDEX_STATUS="0")[0] == 0
    (call,) = calls(clone, "uv")
    assert call.startswith("https://one/simple https://two/simple|wheels,more|pip install")
    assert "--torch-backend" not in call and not calls(clone, "pip")


@pytest.mark.parametrize("status", [0, 1])
def test_without_an_index_for_pip_torch_suits_the_machine_if_its_own_is_reached(clone, status):
    assert set_up(clone, TORCH_INDEX_STATUS=str(status))[0] == 0
    (call,) = calls(clone, "uv")
    assert ("--torch-backend auto" in call) == (status == 0)


def test_where_uv_fails_or_cannot_be_had_pip_installs_and_says_so(clone):
    assert "installing with pip" in set_up(clone, UV_STATUS="1")[1]
    shutil.rmtree(clone / ".venv")
    (clone / "bin/uv").unlink()
    assert "installing with pip" in set_up(clone)[1]
    packages = "--constraint requirements.lock -e .[language"
    asked_for = ["uv" if call.endswith(" uv") else packages in call for call in calls(clone, "pip")]
    assert asked_for == [True, "uv", True]
