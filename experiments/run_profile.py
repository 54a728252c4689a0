"""Do all of a profile in turn; `bash run_all.sh` calls it in the environment that it has set up.

    python experiments/run_profile.py demo

Everything but the notebooks happens in this process: to import torch and timm for each script takes
longer than to find that there is nothing to do. Options go to the scripts that train or analyse
adapters.
"""

import argparse
import os
import sys
import time
from argparse import Namespace
from pathlib import Path

import analyse
import cost
import execute_notebooks
import make_suite
import make_texts
import prepare_vtab
import torch
import train
from options import RESULTS, ROOT, Parser, read_profile
from study_options import parse

from pvera.data import glue, vtab
from pvera.errors import InputError, run_script
from pvera.study.profiles import Profile


def main() -> None:
    """Do all of the profile on the command line."""
    parser = Parser(__doc__)
    parser.add_argument("profile", help="name in experiments/profiles")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of experiments/train.py")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    started = time.monotonic()
    name = arguments.profile
    profile = read_profile(name)
    options = read_options(name, arguments.options)
    if profile.gpu and not (torch.cuda.is_available() or options.slurm or options.device):
        raise InputError(
            "there is no GPU: type --slurm my_site.yaml (docs/paper.md), or --device cpu to train "
            "here"
        )

    if lacks_data(profile, options):
        install_data(profile)
    train.train(options)
    # --experiments names what both scripts do, so its jobs are done.
    if not (options.experiments or profile.is_text):
        analyse.analyse(options)
    if not profile.is_text:
        cost.count(RESULTS, name)
    execute_notebooks.execute(ROOT, name)

    tables = Path("results", name, "tables")
    print_main_tables(tables)
    seconds = time.monotonic() - started
    print(f"\nTables:  {tables}\nFigures: figures/{name}\nTime:    {seconds:.0f} s")


def read_options(name: str, words: list[str]) -> Namespace:
    """Read the options of the scripts that train or analyse.

    Args:
        name: Name of the profile.
        words: The options.

    Raises:
        InputError: An option is wrong, or is for experiments/train.py alone.
    """
    options = parse(__doc__, ["--profile", name, *words])
    if options.status or options.profile != name or options.results != RESULTS:
        raise InputError(
            "--profile, --results, --status and --list are for experiments/train.py; here the "
            f"profile comes first, and results lie in results/{name}"
        )
    options.wait = bool(options.slurm)
    return options


def install_data(profile: Profile) -> None:
    """Download or make the data sets of a profile; exit where that fails."""
    folder = Path(profile.data)
    if profile.is_text:
        make_texts.install(folder)
    elif profile.datasets[0] not in vtab.NAMES:
        make_suite.make(folder, profile.datasets)
    elif not prepare_vtab.prepare(folder):
        sys.exit(1)


def print_main_tables(folder: Path) -> None:
    """Print the main tables, but for the one with the paper's numbers."""
    for table in sorted(folder.glob("main*.md")):
        if "main_paper" not in table.name:
            print(table.read_text(encoding="utf-8"), end="")


def lacks_data(profile: Profile, options: Namespace) -> bool:
    """Return whether the profile's data are needed and may have to be prepared.

    Of synthetic tasks that is always so: `make_suite.make` makes those that are not there.
    """
    if options.data or options.data_set:
        return False
    if profile.is_text:
        return not all(Path(profile.data, task.title).exists() for task in glue.GLUE.values())
    return not Path(profile.data, vtab.ACCEPTED_FILE).exists()


if __name__ == "__main__":
    run_script(main)
