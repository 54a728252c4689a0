"""Train what a profile lists.

    python experiments/train.py --profile demo

    beta        searches PVeRA's β where the paper gives none; the others need it
    benchmark   every method on every data set with every seed
    rank        PVeRA with several ranks
    position    PVeRA on several combinations of query, key and value
    protocol    the differences between the paper and its published program, one at a time

Each run writes results/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json. What exists is not
run again, so an interrupted call goes on where it stopped.

On a cluster:

    python experiments/train.py --profile paper --slurm my_site.yaml     submit what is missing, and return
    python experiments/train.py --profile paper --status                 what has become of it

experiments/slurm.yaml explains what the file holds. What is queued or running is not submitted again.
"""

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path

import torch

from pvera import cluster, store
from pvera.errors import InputError, run
from pvera.processes import cores
from pvera.profiles import EXPERIMENTS, Profile
from pvera.results import ANALYSES
from pvera.runs import prepare
from pvera.scheduler import pending, run_all

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    options = parse(__doc__, EXPERIMENTS)
    start(changed(read(options), options), options)


def parse(description: str, experiments: tuple[str, ...]) -> argparse.Namespace:
    """The command line of a script that trains `experiments`."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="demo", help="name in experiments/profiles, or a YAML file")
    parser.add_argument("--experiments", nargs="+", metavar="E", choices=experiments, default=experiments,
                        help=f"only these of {', '.join(experiments)}")
    parser.add_argument("--methods", nargs="+", metavar="M", help="only these")
    parser.add_argument("--datasets", nargs="+", metavar="D", help="these instead of the profile's")
    parser.add_argument("--backbones", nargs="+", metavar="B", help="these instead of the profile's")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="K", help="these instead of the profile's")
    parser.add_argument("--protocol", help="published or corrected, instead of the profile's")
    parser.add_argument("--precision", help="float32, bfloat16 or float16, instead of the profile's")
    parser.add_argument("--epochs", type=int, help="most epochs, instead of the profile's")
    parser.add_argument("--weights", action="append", default=[], metavar="NAME=FILE",
                        help="file of a backbone's weights, instead of the hub's; may be given several times")
    parser.add_argument("--deterministic", action="store_true", default=None,
                        help="strictly: what has no deterministic implementation fails")
    parser.add_argument(
        "--images", type=int, metavar="N", help="for trials: the first N images of each split"
    )
    parser.add_argument("--data", help="folder of the data sets, instead of the profile's")
    parser.add_argument(
        "--cache", help=f"folder for decoded images (default: ${store.VARIABLE}, or .cache/pvera)"
    )
    parser.add_argument("--results", default=str(ROOT / "results"), help="folder of the results")
    parser.add_argument("--device", help="cpu, cuda (--workers take the GPUs in turn), or one such as cuda:1")
    parser.add_argument(
        "--workers", type=int, help="processes side by side (default: one per core, one on a GPU)"
    )
    parser.add_argument(
        "--slurm", nargs="?", metavar="FILE", const=ROOT / "experiments" / "slurm.yaml",
        help="submit what is missing to SLURM, as FILE says (default: experiments/slurm.yaml)",
    )
    parser.add_argument("--wait", action="store_true", help="with --slurm: return when all jobs have ended")
    parser.add_argument("--status", action="store_true", help="count what is done, running, failed, missing")
    parser.add_argument("--replace", action="store_true", help="run again what another configuration made")
    parser.add_argument("--list", action="store_true", help="say what is missing, and train nothing")
    options = parser.parse_args()
    if options.cache:
        os.environ[store.VARIABLE] = os.path.abspath(options.cache)  # for the workers as well
    return options


def start(profile: Profile, options: argparse.Namespace) -> None:
    """Do what the command line asks for."""
    if options.status:
        print(cluster.describe(cluster.status(profile, options.results, options.experiments)))
    elif options.slurm:
        submit(profile, options)
    else:
        train(profile, options)


def train(profile: Profile, options: argparse.Namespace) -> None:
    """Train here what is missing, or list it."""
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    workers = options.workers or (cores() if device == "cpu" else 1)
    if workers < 1:
        raise InputError(f"--workers must be positive, not {workers}")
    names = [name for name in (*profile.experiments, *ANALYSES) if name in options.experiments]
    # What needs β waits for the search. All others share the workers, so that none is idle between experiments.
    for searching in (True, False):
        missing = []
        for experiment in names:
            runs = [one for one in profile.runs(experiment, options.results) if one.searches == searching]
            if not runs:
                continue
            own = pending(runs, options.replace)
            missing += own
            print(f"{profile.name}, {experiment}: {len(runs) - len(own)} of {len(runs)} runs are there", flush=True)
            if options.list:
                for one in own:
                    print(f"  missing: {one.name}")
        if missing and not options.list:
            prepare(missing)
            # The longest first, which leaves the least to wait for at the end.
            missing.sort(key=lambda one: len(one.candidates), reverse=True)
            run_all(missing, " and ".join(dict.fromkeys(one.experiment for one in missing)), workers, device)


def submit(profile: Profile, options: argparse.Namespace) -> None:
    """Submit what is missing; with --wait, end with 1 if runs failed."""
    if options.device or options.workers:
        raise InputError("--device and --workers are for this machine; for --slurm the YAML file says it")
    site = cluster.Site.read(options.slurm)
    made = cluster.submit(profile, options.results, site, options.replace, options.experiments)
    print(f"{profile.name}: {made.done} of {made.runs} runs are there, {made.active} were queued or running, "
          f"{made.new} are submitted now in {made.jobs} jobs", flush=True)
    if options.wait:
        cluster.wait(profile, options.results, options.experiments)
        table = cluster.status(profile, options.results, options.experiments)
        if (table.state != "done").any():
            print(cluster.describe(table))
            sys.exit(1)


def read(options: argparse.Namespace) -> Profile:
    """The profile that the command line names."""
    path = Path(options.profile)
    return Profile.read(
        path if path.suffix else Path(__file__).parent / "profiles" / f"{options.profile}.yaml"
    )


def changed(profile: Profile, options: argparse.Namespace) -> Profile:
    """`profile` with what the command line changes."""
    if options.methods:
        unknown = {name: {} for name in options.methods if name not in profile.methods}
        kept = {name: profile.methods[name] for name in profile.methods if name in options.methods}
        profile = profile.with_(methods=kept | unknown)
    for option, value in (("--epochs", options.epochs), ("--images", options.images)):
        if value is not None and value < 1:
            raise InputError(f"{option} must be positive, not {value}")
    if options.epochs is not None:
        profile = profile.with_(schedule=replace(profile.schedule, epochs=options.epochs))
    profile = profile.with_(
        datasets=options.datasets, backbones=options.backbones, seeds=options.seeds,
        protocol=options.protocol, precision=options.precision, data=options.data,
        deterministic=options.deterministic, images=options.images,
    )
    weights = {name: str(ROOT / file) for name, file in profile.weights.items()}
    for text in options.weights:
        name, _, file = text.partition("=")
        if not file or name not in profile.backbones:
            names = ", ".join(profile.backbones)
            raise InputError(f"--weights takes NAME=FILE, NAME out of {names}, not {text!r}")
        weights[name] = os.path.abspath(file)
    return profile.with_(data=str(ROOT / profile.data), weights=weights)


if __name__ == "__main__":
    run(main)
