"""Do all of a profile in turn; `bash run_all.sh` calls it in the environment that it has set up.

    python experiments/run_profile.py demo

Everything but the notebooks happens in this process: to import torch and timm anew for each script takes longer than to
find that there is nothing to do. Options go to the scripts that train or analyse adapters.
"""

import argparse
import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import analyse
import cost
import front_page
import make_suite
import make_texts
import prepare_vtab
import torch
import train
import train_language
from execute_notebooks import outdated
from options import ROOT, Parser, read_profile

from pvera import backbones
from pvera.data import vtab
from pvera.errors import run_script
from pvera.study.profiles import Profile


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("profile", help="name in experiments/profiles")
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of experiments/train.py")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    name, options, started = arguments.profile, arguments.options, time.monotonic()
    given = {option.partition("=")[0] for option in options}
    of_profile, wait = ["--profile", name], ["--wait"] if "--slurm" in given else []
    profile = read_profile(name)
    if name == "paper" and (lines := lacking(profile, given)):
        print(*lines, sep="\n", file=sys.stderr)
        sys.exit(2)

    of_vtab = profile.datasets[0] in vtab.NAMES
    if "--data" not in given and not of_vtab:
        make_suite.main(["--task", *profile.datasets])
    elif "--data" not in given and not installed(profile):
        prepare_vtab.main([])
    has_text = profile.language is not None and not options  # an option may ask for a part of the images alone
    if has_text:
        texts = Path(profile.language.data)
        # GLUE is for the paper and its rehearsal, which have no other tasks.
        glue = ["--glue"] if of_vtab and not (texts / "CoLA").exists() else []
        make_texts.main(["--root", str(texts), *glue])
    train.main([*of_profile, *options, *wait])
    if "--experiments" not in given:
        analyse.main([*of_profile, *options, *wait])
    cost.main(of_profile)
    if has_text:
        train_language.main(of_profile)
    in_place = name == "mini"  # the committed notebooks are those of mini, and so are the numbers of README and docs
    if outdated(ROOT, name, in_place):  # executed in a process of their own: see `processes.context`
        sys.stdout.flush()
        script = ["experiments/execute_notebooks.py", *of_profile, *["--inplace"] * in_place]
        if status := subprocess.run([sys.executable, *script]).returncode:
            sys.exit(status)
    if in_place:
        front_page.main([])

    tables = Path("results", name, "tables")
    for table in sorted(tables.glob("main*.md")):
        if "main_paper" not in table.name:
            print(table.read_text(encoding="utf-8"), end="")
    print(f"\nTables:  {tables}\nFigures: figures/{name}\nTime:    {time.monotonic() - started:.0f} s")


def lacking(profile: Profile, given: set[str]) -> list[str]:
    """Return what the paper's experiment needs and this machine lacks, each with what to type; `given`: options."""
    lines = []
    if not torch.cuda.is_available() and not given & {"--slurm", "--device"}:
        lines.append("missing: a GPU. Type --slurm my_site.yaml (docs/cluster.md), or --device cpu to train here.")
    if not online():
        if "--data" not in given and not installed(profile):
            lines.append("missing: VTAB-1k, without network. Type python experiments/prepare_vtab.py --source COPY.")
        files = {name: backbones.weights_file(backbones.shapes(name).pretrained_cfg) for name in profile.backbones}
        absent = [name for name, file in files.items() if not file]
        if absent and "--weights" not in given:
            typed = " ".join(f"--weights {name}=FILE" for name in absent)
            lines.append(f"missing: weights of DINOv2, without network. Type {typed}.")
        if profile.language and not given and not Path(profile.language.data, "CoLA").exists():
            source = "python experiments/make_texts.py --glue --source COPY"
            lines.append(f"missing: GLUE, without network. Type {source}, or any option, which leaves text out.")
    return lines


def online() -> bool:
    """Return whether the hub can be reached."""
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    with suppress(OSError), socket.create_connection((host, 443), timeout=5):
        return True
    return False


def installed(profile: Profile) -> bool:
    """Return whether prepare_vtab.py has left its record."""
    return Path(profile.data, vtab.RECORD).exists()


if __name__ == "__main__":
    run_script(main)
