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
    profile, options = (
        read_profile(name),
        train.parse(__doc__, ["--profile", name, *arguments.options]),
    )
    options.wait = bool(options.slurm)
    if lines := [*lacking(profile, options)]:
        print(*lines, sep="\n", file=sys.stderr)
        sys.exit(2)

    if lacks_data(profile, options):
        if profile.text:
            make_texts.install(Path(profile.data))
        elif profile.datasets[0] not in vtab.NAMES:
            make_suite.make(Path(profile.data), profile.datasets)
        elif not prepare_vtab.prepare(Path(profile.data)):
            sys.exit(1)
    train.start(options, "train")
    if not (options.experiments or profile.text):
        train.start(options, "analyse")
    if not profile.text:
        cost.count(RESULTS, name)
    execute_notebooks.execute(ROOT, name)

    tables = Path("results", name, "tables")
    for table in sorted(tables.glob("main*.md")):
        if "main_paper" not in table.name:
            print(table.read_text(encoding="utf-8"), end="")
    print(
        f"\nTables:  {tables}\nFigures: figures/{name}\nTime:    {time.monotonic() - started:.0f} s"
    )


def lacking(profile: Profile, options: Namespace) -> Iterator[str]:
    """Yield what an experiment of the paper needs and this machine lacks, each with what to type."""
    if profile.gpu and not (torch.cuda.is_available() or options.slurm or options.device):
        yield "missing: a GPU. Type --slurm my_site.yaml (docs/paper.md), or --device cpu to train here."
    if not (profile.text or profile.datasets[0] in vtab.NAMES) or online():
        return
    if lacks_data(profile, options):
        name, script = ("GLUE", "make_texts") if profile.text else ("VTAB-1k", "prepare_vtab")
        yield f"missing: {name}, without network. Type python experiments/{script}.py --source COPY."
    absent = [
        name
        for name in options.backbones or profile.backbones
        if not profile.text
        and name not in profile.weights
        and not any(text.startswith(f"{name}=") for text in options.weights)
        and not backbones.weights_file(backbones.shapes(name).pretrained_cfg)
    ]
    if absent:
        typed = " ".join(f"--weights {name}=FILE" for name in absent)
        yield f"missing: weights of DINOv2, without network. Type {typed}."


def online() -> bool:
    """Return whether the hub can be reached."""
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    with suppress(OSError), socket.create_connection((host, 443), timeout=5):
        return True
    return False


def lacks_data(profile: Profile, options: Namespace) -> bool:
    """Return whether the options name no data, such as one's own pictures, and the profile's have not been prepared."""
    if options.data or options.data_set:
        return False
    if profile.text:
        return not all(Path(profile.data, task.title).exists() for task in glue.GLUE.values())
    return not Path(profile.data, vtab.RECORD).exists()


if __name__ == "__main__":
    run_script(main)
