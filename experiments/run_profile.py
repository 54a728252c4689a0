"""Do all of a profile in turn; `bash run_all.sh` calls it in the environment that it has set up.

    python experiments/run_profile.py demo

Everything but the notebooks happens in this process: to import torch and timm for each script takes
longer than to find that there is nothing to do. Options go to the scripts that train or analyse
adapters.
"""

import gc

# What is imported stays: to look for garbage in it takes a third of a call that finds all done.
gc.disable()

import argparse
import os
import socket
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

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

from pvera import backbones
from pvera.data import glue, vtab
from pvera.errors import run_script
from pvera.study.profiles import Profile

gc.freeze()
gc.enable()


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
    options = parse(__doc__, ["--profile", name, *arguments.options])
    options.wait = bool(options.slurm)
    if lines := [*lacking(profile, options)]:
        print(*lines, sep="\n", file=sys.stderr)
        sys.exit(2)

    if lacks_data(profile, options):
        install_data(profile)
    train.train(options)
    if not (options.experiments or profile.text):
        analyse.analyse(options)
    if not profile.text:
        cost.count(RESULTS, name)
    execute_notebooks.execute(ROOT, name)

    tables = Path("results", name, "tables")
    print_main_tables(tables)
    seconds = time.monotonic() - started
    print(f"\nTables:  {tables}\nFigures: figures/{name}\nTime:    {seconds:.0f} s")


def install_data(profile: Profile) -> None:
    """Download or make the data sets of a profile; exit where that fails."""
    folder = Path(profile.data)
    if profile.text:
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


def lacking(profile: Profile, options: Namespace) -> Iterator[str]:
    """Yield what an experiment of the paper needs and this machine lacks, with what to type."""
    if profile.gpu and not (torch.cuda.is_available() or options.slurm or options.device):
        yield (
            "missing: a GPU. Type --slurm my_site.yaml (docs/paper.md), or --device cpu to train "
            "here."
        )
    is_downloaded = profile.text or profile.datasets[0] in vtab.NAMES
    if not is_downloaded or online():
        return
    if lacks_data(profile, options):
        if profile.text:
            yield f"missing: GLUE, without network. Put its RTE, MRPC and CoLA into {profile.data}."
        else:
            command = "python experiments/prepare_vtab.py --source COPY"
            yield f"missing: VTAB-1k, without network. Type {command}."
    if absent := lacking_weights(profile, options):
        typed = " ".join(f"--weights {name}=FILE" for name in absent)
        yield f"missing: weights of DINOv2, without network. Type {typed}."


def lacking_weights(profile: Profile, options: Namespace) -> list[str]:
    """List the backbones of images whose weights are neither named nor downloaded."""
    if profile.text:
        return []
    named = {text.partition("=")[0] for text in options.weights} | profile.weights.keys()
    absent = []
    for name in options.backbones or profile.backbones:
        published: Any = backbones.shapes(name).pretrained_cfg
        if name not in named and not backbones.weights_file(published):
            absent.append(name)
    return absent


def online() -> bool:
    """Return whether the hub can be reached."""
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    with suppress(OSError), socket.create_connection((host, 443), timeout=5):
        return True
    return False


def lacks_data(profile: Profile, options: Namespace) -> bool:
    """Return whether the profile's data are needed and have not been prepared."""
    if options.data or options.data_set:
        return False
    if profile.text:
        return not all(Path(profile.data, task.title).exists() for task in glue.GLUE.values())
    return not Path(profile.data, vtab.RECORD).exists()


if __name__ == "__main__":
    run_script(main)
