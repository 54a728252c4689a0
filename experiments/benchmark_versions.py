"""Time the same runs with this version of the program and with another, in turn.

    git worktree add ../before 4eb30df
    python experiments/benchmark_versions.py ../before --profile demo --datasets digits --seeds 0

In every turn each version trains into an empty temporary folder (experiments/train.py, the search of β and the
benchmark) and draws from its adapters (experiments/uncertainty.py). Options unknown to this script go to these two.
Seconds are those in the records of the runs. Writes <output>/versions.csv, one row per experiment and method:
medians over the turns of seconds and of their ratio, and the difference of the two accuracies. Rows of other versions,
profiles and machines stay.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd
from options import ROOT, Parser
from tqdm import tqdm

from pvera.errors import InputError
from pvera.report.tables import versions
from pvera.study import results
from pvera.study.cluster import code_version
from pvera.study.profiles import Profile
from pvera.study.runs import environment
from pvera.study.script import run

STEPS = (("train", "--experiments", "beta", "benchmark"), ("uncertainty",))


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("other", type=Path, help="folder of the other version")
    parser.add_argument("--profile", default="demo", help="name in experiments/profiles (%(default)s)")
    parser.number("--repeats", default=3, help="turns (%(default)s)")
    parser.output()
    options, passed = parser.parse_known_args()
    file = options.output / "versions.csv"
    versions.load(file)  # a damaged file ends the script before it measures
    roots = {"before": options.other.resolve(), "after": ROOT}
    for root in roots.values():
        require_version(root)
    profile = Profile.read(ROOT / "experiments" / "profiles" / f"{options.profile}.yaml")
    passed = ["--profile", options.profile, "--data", str(ROOT / profile.data), *passed]
    turns = []
    for number in tqdm(range(options.repeats), "turns"):
        for version, root in roots.items():
            with tempfile.TemporaryDirectory() as folder:
                execute(root, [*passed, "--results", folder])
                turns.append(recorded(folder, options.profile).assign(turn=number, version=version))
    made_by = {name: (code_version(root)["commit"] or "?")[:7] for name, root in roots.items()}
    made_by |= {"device": environment("cpu")["device"], "profile": options.profile}
    table = versions.merge(versions.load(file), versions.compare(pd.concat(turns)).assign(**made_by))
    results.write_atomically(file, table.to_csv(index=False, float_format="%.5g").encode())
    print(versions.versions_table(table).markdown())


def require_version(root: Path) -> None:
    """Raise InputError if `root` is not this program, or Python imports the library from elsewhere."""
    if not all((root / "experiments" / f"{name}.py").is_file() for name, *_ in STEPS):
        raise InputError(f"{root}: there is no experiments/train.py or experiments/uncertainty.py")
    imported = python(root, "-c", "import pvera; print(pvera.__file__)", stdout=subprocess.PIPE, text=True)
    if root not in Path(imported.stdout.strip()).resolve().parents:
        raise InputError(f"{root}: Python takes the library from {imported.stdout.strip()}")


def execute(root: Path, options: list[str]) -> None:
    """Run the steps with the library and the scripts in `root`. InputError where one fails; it prints the reason."""
    for script, *arguments in STEPS:
        try:
            python(root, str(root / "experiments" / f"{script}.py"), *arguments, *options)
        except subprocess.CalledProcessError as error:
            raise InputError(f"{root}: experiments/{script}.py ended with {error.returncode}") from None


def python(root: Path, *arguments: str, **options) -> subprocess.CompletedProcess:
    environment_ = os.environ | {"PYTHONPATH": str(root)}
    return subprocess.run([sys.executable, *arguments], env=environment_, cwd=root, check=True, **options)


def recorded(folder: str, profile: str) -> pd.DataFrame:
    """Return one row per run: experiment, method, seconds, accuracy (of all draws in Monte Carlo inference)."""
    rows = []
    for experiment in ("beta", "benchmark", "uncertainty"):
        for one in results.load_runs(folder, profile, experiment, optional=True):
            if experiment == "uncertainty":
                path = results.run_path(folder, *(one[name] for name in results.IDENTITY))
                accuracy = float(results.read_arrays(path)["accuracy"][-1].mean())
            else:
                accuracy = one["test"]["accuracy"] if one["test"] else float("nan")
            rows.append((experiment, one["method"], one["cost"]["wall_seconds"], accuracy))
    return pd.DataFrame(rows, columns=["experiment", "method", "seconds", "accuracy"])


if __name__ == "__main__":
    run(main)
