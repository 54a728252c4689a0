"""Do all of a profile in turn; `bash run_all.sh` calls it in the environment that it has set up.

    python experiments/run_profile.py demo

Everything but the notebooks happens in this process: to import torch and timm anew for each script takes longer than to
find that there is nothing to do. Options go to the scripts that train or analyse adapters.
"""

import gc

gc.disable()  # What is imported stays: to look for garbage among it takes a third of a call that finds all done.

import argparse
import os
import socket
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import cost
import execute_notebooks
import make_suite
import make_texts
import prepare_vtab
import torch
import train
from options import RESULTS, ROOT, Parser, read_profile

from pvera import backbones
from pvera.data import glue, vtab
from pvera.errors import run_script
from pvera.study.profiles import Profile

gc.freeze()
gc.enable()


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("profile", help="name in experiments/profiles")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of experiments/train.py")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    name, started = arguments.profile, time.monotonic()
    profile, options = read_profile(name), train.parse(__doc__, ["--profile", name, *arguments.options])
    options.wait = bool(options.slurm)
    texts = profile.language and not arguments.options  # an option may ask for a part of the images alone
    if lines := [*lacking(profile, options, texts)]:
        print(*lines, sep="\n", file=sys.stderr)
        sys.exit(2)

    if lacks_data(profile, options):
        if profile.datasets[0] not in vtab.NAMES:
            make_suite.make(Path(profile.data), profile.datasets)
        elif not prepare_vtab.prepare(Path(profile.data)):
            sys.exit(1)
    train.start(options, "train")
    if not options.experiments:
        train.start(options, "analyse")
    cost.count(RESULTS, name)
    if texts and (has_glue(profile) or online()):
        if not has_glue(profile):
            make_texts.install(Path(profile.language.data))
        train.start(train.parse(__doc__, ["--profile", name]), "train_language")
    elif texts:
        print("without text: GLUE is missing. python experiments/make_texts.py downloads it; --source names a copy")
    execute_notebooks.execute(ROOT, name, name == "mini")  # the committed notebooks are those of mini

    tables = Path("results", name, "tables")
    for table in sorted(tables.glob("main*.md")):
        if "main_paper" not in table.name:
            print(table.read_text(encoding="utf-8"), end="")
    print(f"\nTables:  {tables}\nFigures: figures/{name}\nTime:    {time.monotonic() - started:.0f} s")


def lacking(profile: Profile, options: Namespace, texts: bool) -> Iterator[str]:
    """Yield what an experiment on VTAB-1k needs and this machine lacks, each with what to type.

    texts: the language experiment is asked for; without it `paper` is not the paper.
    """
    of_paper = profile.name == "paper"
    if of_paper and not (torch.cuda.is_available() or options.slurm or options.device):
        yield "missing: a GPU. Type --slurm my_site.yaml (docs/paper.md), or --device cpu to train here."
    if profile.datasets[0] not in vtab.NAMES or online():
        return
    if lacks_data(profile, options):
        yield "missing: VTAB-1k, without network. Type python experiments/prepare_vtab.py --source COPY."
    absent = [
        name
        for name in options.backbones or profile.backbones
        if name not in profile.weights
        and not any(text.startswith(f"{name}=") for text in options.weights)
        and not backbones.weights_file(backbones.shapes(name).pretrained_cfg)
    ]
    if absent:
        typed = " ".join(f"--weights {name}=FILE" for name in absent)
        yield f"missing: weights of DINOv2, without network. Type {typed}."
    if of_paper and texts and not has_glue(profile):
        source = "python experiments/make_texts.py --source COPY"
        yield f"missing: GLUE, without network. Type {source}, or any option, which leaves text out."


def online() -> bool:
    """Return whether the hub can be reached."""
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    with suppress(OSError), socket.create_connection((host, 443), timeout=5):
        return True
    return False


def lacks_data(profile: Profile, options: Namespace) -> bool:
    """Return whether the options name no data, such as one's own pictures, and prepare_vtab.py has left no record."""
    return not (options.data or options.data_set or Path(profile.data, vtab.RECORD).exists())


def has_glue(profile: Profile) -> bool:
    """Return whether the folders of GLUE's tasks are there."""
    return all(Path(profile.language.data, task.title).exists() for task in glue.GLUE.values())


if __name__ == "__main__":
    run_script(main)
