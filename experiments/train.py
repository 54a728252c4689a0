"""Train the benchmark of a profile: every method on every data set with every seed.

    python experiments/train.py --profile demo

Each run writes results/<profile>/benchmark/<backbone>/<dataset>/<method>/seed<k>.json. What exists is not run
again, so an interrupted call goes on where it stopped. PVeRA's β is searched first where the paper gives none.
"""

import argparse
import os
from dataclasses import replace
from pathlib import Path

import torch

from pvera import store
from pvera.errors import InputError, run
from pvera.processes import cores
from pvera.runs import Profile, prepare
from pvera.scheduler import pending, run_all

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="demo", help="name in experiments/profiles, or a YAML file")
    parser.add_argument("--methods", nargs="+", metavar="M", help="only these")
    parser.add_argument("--datasets", nargs="+", metavar="D", help="these instead of the profile's")
    parser.add_argument("--backbones", nargs="+", metavar="B", help="these instead of the profile's")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="K", help="these instead of the profile's")
    parser.add_argument("--protocol", help="published or corrected, instead of the profile's")
    parser.add_argument("--precision", help="float32, bfloat16 or float16, instead of the profile's")
    parser.add_argument("--epochs", type=int, help="most epochs, instead of the profile's")
    parser.add_argument("--data", help="folder of the data sets, instead of the profile's")
    parser.add_argument("--cache", help=f"folder for decoded images (default: ${store.VARIABLE}, or .cache/pvera)")
    parser.add_argument("--results", default=str(ROOT / "results"), help="folder of the results")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, help="processes side by side (default: one per core, one on a GPU)")
    parser.add_argument("--replace", action="store_true", help="run again what another configuration made")
    parser.add_argument("--list", action="store_true", help="say what is missing, and train nothing")
    options = parser.parse_args()
    if options.cache:
        os.environ[store.VARIABLE] = os.path.abspath(options.cache)  # for the workers as well

    profile = read_profile(options)
    workers = options.workers or (cores() if options.device == "cpu" else 1)
    if workers < 1:
        raise InputError(f"--workers must be positive, not {workers}")
    for title, stage in (("β search", profile.beta_search), ("benchmark", profile.benchmark)):
        runs = stage(options.results)
        if not runs:
            continue
        missing = pending(runs, options.replace)
        print(f"{profile.name}, {title}: {len(runs) - len(missing)} of {len(runs)} runs are there", flush=True)
        if options.list:
            print(*(f"  missing: {r.name}" for r in missing), sep="\n")
        else:
            prepare(missing)
            run_all(missing, title, workers, options.device)


def read_profile(options: argparse.Namespace) -> Profile:
    """The profile with what the command line changes."""
    path = Path(options.profile)
    profile = Profile.read(path if path.suffix else Path(__file__).parent / "profiles" / f"{options.profile}.yaml")
    if options.methods:
        unknown = {name: {} for name in options.methods if name not in profile.methods}
        kept = {name: profile.methods[name] for name in profile.methods if name in options.methods}
        profile = profile.with_(methods=kept | unknown)
    if options.epochs is not None:
        if options.epochs < 1:
            raise InputError(f"--epochs must be positive, not {options.epochs}")
        profile = profile.with_(schedule=replace(profile.schedule, epochs=options.epochs))
    profile = profile.with_(
        datasets=options.datasets, backbones=options.backbones, seeds=options.seeds,
        protocol=options.protocol, precision=options.precision, data=options.data,
    )
    return profile.with_(data=str(ROOT / profile.data))


if __name__ == "__main__":
    run(main)
