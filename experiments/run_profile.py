"""Do all of a profile in turn; `bash run_all.sh` calls it in the environment that it has set up.

    python experiments/run_profile.py demo

Everything but the notebooks happens in this process: to import torch and timm anew for each script takes longer than to
find that there is nothing to do. Options go to the scripts that train or analyse adapters.
"""

import argparse
import os
import sys
import time
from pathlib import Path

import cost
import execute_notebooks
import make_suite
import make_texts
import prepare_vtab
import torch
import train
from options import RESULTS, ROOT, Parser, read_profile

from pvera.data import glue, vtab
from pvera.errors import InputError, run_script


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("profile", help="name in experiments/profiles")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of experiments/train.py")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    name, started = arguments.profile, time.monotonic()
    profile, options = read_profile(name), train.parse(__doc__, ["--profile", name, *arguments.options])
    options.wait = bool(options.slurm)
    if name == "paper" and not (torch.cuda.is_available() or options.slurm or options.device):
        raise InputError("there is no GPU here: type --slurm my_site.yaml (docs/paper.md), or --device cpu")
    if not (options.data or options.data_set or Path(profile.data, vtab.RECORD).exists()):
        if profile.datasets[0] not in vtab.NAMES:
            make_suite.make(Path(profile.data), profile.datasets)
        elif not prepare_vtab.prepare(Path(profile.data)):
            sys.exit(1)
    train.start(options, "train")
    if not options.experiments:
        train.start(options, "analyse")
    cost.count(RESULTS, name)
    if profile.language and not arguments.options:  # an option may ask for a part of the images alone
        root = Path(profile.language.data)
        try:
            if not all((root / task.title).exists() for task in glue.GLUE.values()):
                make_texts.install(root)
        except InputError as error:  # there is no network
            print(f"without text: {error}")
        else:
            train.start(train.parse(__doc__, ["--profile", name]), "train_language")
    execute_notebooks.execute(ROOT, name, name == "mini")  # the committed notebooks are those of mini

    tables = Path("results", name, "tables")
    for table in sorted(tables.glob("main*.md")):
        if "main_paper" not in table.name:
            print(table.read_text(encoding="utf-8"), end="")
    print(f"\nTables:  {tables}\nFigures: figures/{name}\nTime:    {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    run_script(main)
