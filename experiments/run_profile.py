"""Run the scripts of a profile in turn; `bash run_all.sh` calls it in the environment that it has set up.

    python experiments/run_profile.py demo

All scripts but that of the notebooks run in this process: each would import torch and timm again, which takes longer
than finding that there is nothing to do. The notebooks are executed by a process of their own, if one is out of date.
Options go to the scripts that train or analyse adapters.
"""

import argparse
import importlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from execute_notebooks import outdated
from options import ROOT, Parser
from profile_options import read_profile

from pvera.study.experiments import EXPERIMENTS, analyses_of_adapters
from pvera.study.script import run

Call = tuple[str, ...]  # a script's name and its arguments


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument(
        "--spent", metavar="TEXT", default="", help="times of earlier parts, to print before the others"
    )
    parser.add_argument("profile", help="name in experiments/profiles")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of experiments/train.py")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    times = [arguments.spent] if arguments.spent else []
    for part, calls in parts(arguments.profile, arguments.options):
        started = time.monotonic()
        for name, *options in calls:
            call(name, *options)
        times.append(f"{part} {time.monotonic() - started:.0f} s")
    tables = Path("results", arguments.profile, "tables")
    for table in sorted(tables.glob("main*.md")):
        if "main_paper" not in table.name:
            print(table.read_text(encoding="utf-8"), end="")
    print(f"\nTables:  {tables}\nFigures: figures/{arguments.profile}\nTime:    {'  '.join(times)}")


def parts(profile: str, options: list[str]) -> Iterator[tuple[str, list[Call]]]:
    """Yield the parts of the work and the calls of each; what a part needs is looked up when it begins."""
    plan, of_profile = read_profile(profile), ("--profile", profile)
    if profile != "paper":
        yield "data", [("make_suite",)]
    elif not Path("data/vtab-1k/vtab-1k.json").exists() and not given("--data", options):
        yield "data", [("prepare_vtab", "--no-decode")]
    analyses = (EXPERIMENTS[name].script for name in analyses_of_adapters() if plan.runs(name, "results"))
    scripts = ["train", *dict.fromkeys(analyses)]
    wait = ["--wait"] if given("--slurm", options) else []
    for script in scripts[:1] if given("--experiments", options) else scripts:
        yield script, [(script, *of_profile, *options, *wait)]
    yield "cost", [("cost", *of_profile)]
    # The language experiment, unless an option asks for a part of the others alone.
    if plan.language and not options:
        absent = profile == "paper" and not Path("data/text/CoLA").exists()
        texts = ("make_texts", "--glue") if absent else ("make_texts",)
        yield "language", [texts, ("train_language", *of_profile)]
    # The committed notebooks are those of mini, and so are the numbers of README and docs.
    mini = profile == "mini"
    place = ("--inplace",) if mini else ()
    notebooks = [("execute_notebooks", *of_profile, *place)] if outdated(ROOT, profile, mini) else []
    yield "notebooks", notebooks + [("front_page",)] * mini


def given(option: str, options: list[str]) -> bool:
    """Return whether `option` is among `options`, with a value or without."""
    return any(text.partition("=")[0] == option for text in options)


def call(name: str, *arguments: str) -> None:
    """Run a script of this folder with these arguments. Notebooks get a process of their own: see `kernels`."""
    script = str(Path(__file__).with_name(f"{name}.py"))
    if name == "execute_notebooks":
        sys.stdout.flush()
        if status := subprocess.run([sys.executable, script, *arguments]).returncode:
            sys.exit(status)
    else:
        sys.argv = [script, *arguments]
        importlib.import_module(name).main()


if __name__ == "__main__":
    run(main)
