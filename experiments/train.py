"""Train the runs that a profile lists (Figure 4, Tables 1 to 4 and 6 to 8).

    python experiments/train.py --profile demo

Each run writes results/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json. What exists is not
run again, so an interrupted call goes on where it stopped. Several calls at once share the runs.

On a cluster:

    python experiments/train.py --profile paper --slurm my_site.yaml     submit workers, and return
    python experiments/train.py --profile paper --status                 what has become of the runs

experiments/slurm.yaml explains what the file holds.
"""

import os
from argparse import Namespace
from pathlib import Path

import own_pictures
import torch
from options import ROOT, Parser, read_profile, set_cache

from pvera.data import store
from pvera.data.inputs import prepare
from pvera.errors import InputError, run_script
from pvera.files import require_writable
from pvera.processes import cores
from pvera.study import cluster
from pvera.study.plan import ANALYSES, list_runs
from pvera.study.profiles import Profile
from pvera.study.runs import Job
from pvera.study.validation import choose
from pvera.study.worker import Plan, work_together


def main(words: list[str] | None = None) -> None:
    start(parse(__doc__, "train", words))


def start(options: Namespace) -> None:
    """Show the runs that a script does of a profile, submit those that are missing to a cluster, or do them here."""
    profile = profile_of(options)
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    plan = Plan(profile, names_of(profile, options), Path(options.results).absolute(), options.replace)
    if options.status:
        print(cluster.describe(cluster.status(plan)))
        return
    with_pictures = options.data_set and options.script == "train"
    if with_pictures:
        print(own_pictures.announce(profile, device), flush=True)
    missing = count_runs(plan, options.script)
    if options.list:
        for run in missing:
            print(f"  missing: {run.experiment}/{run.name}")
    elif options.slurm:
        print(f"{profile.name}: {cluster.submit(plan, cluster.Site.read(options.slurm))} jobs submitted", flush=True)
        if options.wait:
            cluster.wait(plan)
    else:
        if missing:
            require_writable(plan.root)
            prepare(missing)
            workers = options.workers or (cores() if device == "cpu" else max(1, torch.cuda.device_count()))
            work_together(plan, missing, workers, device)
        if with_pictures:
            print(*own_pictures.trained(plan.runs()), sep="\n")


def count_runs(plan: Plan, script: str) -> list[Job]:
    """Print how many runs of each experiment are there, and return those that are missing."""
    listed = {name: list_runs(plan.profile, name, plan.root) for name in plan.experiments}
    missing = plan.missing([run for runs in listed.values() for run in runs])
    absent = {run.path for run in missing}
    for name, runs in listed.items():
        if runs:
            done = sum(run.path not in absent for run in runs)
            print(f"{plan.profile.name}, {name}: {done} of {len(runs)} runs are there", flush=True)
    if not any(listed.values()):
        print(f"profile {plan.profile.name} lists no runs of {', '.join(plan.experiments)} now")
        if script == "analyse":
            print("analyses need adapters, which experiments/train.py makes")
    return missing


def parse(description: str, script: str, words: list[str] | None) -> Namespace:
    """Parse the command line of a script that trains or analyses, whose name is kept in the options."""
    if script == "analyse":
        width = max(map(len, ANALYSES))
        lines = "\n".join(f"    {name:{width}}   {kind.summary}" for name, kind in ANALYSES.items())
        description += f"\nAnalyses:\n\n{lines}\n"
    parser = Parser(description)
    parser.profile(None, "demo, with --data-set own")
    parser.add_argument(
        "--data-set",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="your own pictures instead of the profile's data sets: a folder of class folders, or "
        "one with splits (docs/own-data.md); may be given several times",
    )
    split_seed = "draws the splits that your pictures do not have (default: as in an earlier call, else 0)"
    parser.count("--split-seed", least=0, metavar="K", help=split_seed)
    parser.add_argument("--experiments", nargs="+", metavar="E", help="only these (default: what the profile says)")
    parser.add_argument("--methods", nargs="+", metavar="M", help="only these of the profile's")
    parser.add_argument("--datasets", nargs="+", metavar="D", help="these instead of the profile's")
    parser.add_argument("--backbones", nargs="+", metavar="B", help="these instead of the profile's")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="K", help="these instead of the profile's")
    parser.add_argument("--protocol", help="published or corrected, instead of the profile's")
    parser.add_argument("--precision", help="float32, bfloat16 or float16, instead of the profile's")
    parser.count("--epochs", metavar="N", help="largest number of epochs, instead of the profile's")
    parser.count("--batch-size", metavar="N", help="images of a batch, instead of the profile's")
    parser.add_argument("--learning-rate", type=float, metavar="X", help="of all methods, instead of their grids")
    parser.add_argument(
        "--weights",
        action="append",
        default=[],
        metavar="NAME=FILE",
        help="file of a backbone's weights, instead of the hub's; may be given several times",
    )
    parser.add_argument(
        "--deterministic",
        action="store_true",
        default=None,
        help="fail where PyTorch has no deterministic implementation",
    )
    parser.count("--images", metavar="N", help="for trials: the first N images of each split")
    parser.add_argument("--data", help="folder of the data sets, instead of the profile's")
    parser.add_argument("--cache", help=f"folder for decoded images (default: ${store.VARIABLE}, or .cache/pvera)")
    parser.results()
    parser.device(more=" (--workers take the GPUs in turn)")
    parser.count("--workers", metavar="N", help="processes side by side (default: one per core, one on a GPU)")
    parser.add_argument(
        "--slurm",
        nargs="?",
        metavar="FILE",
        const=ROOT / "experiments" / "slurm.yaml",
        help="submit what is missing to SLURM, as FILE says (default: experiments/slurm.yaml)",
    )
    parser.add_argument("--wait", action="store_true", help="with --slurm: wait until all jobs have ended")
    parser.add_argument("--status", action="store_true", help="count the runs that are done, running, failed, missing")
    parser.add_argument("--replace", action="store_true", help="run again where the result is of another configuration")
    parser.add_argument("--list", action="store_true", help="list the missing runs, and train nothing")
    options = parser.parse_args(words)
    options.script = script
    if options.slurm and (options.device or options.workers):
        raise InputError("--device and --workers are for this machine; with --slurm, set them in the YAML file")
    set_cache(options.cache)
    if options.data_set:
        own_pictures.install(options)
    return options


def profile_of(options: Namespace) -> Profile:
    """Return the profile as the options change it."""
    profile = read_profile(options.profile or "demo")
    return changed(profile.of_language() if options.script == "train_language" else profile, options)


def names_of(profile: Profile, options: Namespace) -> tuple[str, ...]:
    """Return the experiments or analyses that a script does: those that are asked for, or what the profile says.

    InputError for a name that the profile does not have.
    """
    every = tuple(ANALYSES if options.script == "analyse" else profile.experiments)
    for name in options.experiments or ():
        choose("experiment", name, every)
    if options.experiments:
        return tuple(name for name in every if name in options.experiments)
    if options.script == "analyse":
        return tuple(profile.analyses) or every
    return tuple(name for name in every if not profile.experiments[name].on_request)


def changed(profile: Profile, options: Namespace) -> Profile:
    """Return `profile` with the command line's changes: an option replaces the key of the same name."""
    methods = {name: profile.methods.get(name, {}) for name in options.methods or profile.methods}
    schedule = profile.training.with_(epochs=options.epochs, batch_size=options.batch_size)
    profile = profile.with_(methods=methods, training=schedule)
    if options.learning_rate is not None:
        profile = without_rates(profile)
    replaced = vars(profile).keys() & vars(options).keys() - {"experiments", "methods", "weights"}
    profile = profile.with_(**{key: getattr(options, key) for key in replaced})
    weights = {name: str(ROOT / file) for name, file in profile.weights.items()}
    for text in options.weights:
        name, _, file = text.partition("=")
        if not file or name not in profile.backbones:
            names = ", ".join(profile.backbones)
            raise InputError(f"--weights takes NAME=FILE, NAME out of {names}, not {text!r}")
        weights[name] = os.path.abspath(file)
    return profile.with_(data=str(ROOT / profile.data), weights=weights)


def without_rates(profile: Profile) -> Profile:
    """Return `profile` without the learning rates of its methods and experiments: all have `Profile.learning_rate`."""

    def without(values: dict, *names: str) -> dict:
        return {key: value for key, value in values.items() if key not in names}

    methods = {}
    for name, options in profile.methods.items():
        searched = "learning_rate" in options.get("grid", {})
        methods[name] = without(options, "learning_rate", *(("grid", "most_chosen") if searched else ()))
    experiments = {
        name: experiment.with_(
            set=without(experiment.set, "learning_rate"), grid=without(experiment.grid, "learning_rate")
        )
        for name, experiment in profile.experiments.items()
    }
    return profile.with_(methods=methods, experiments=experiments)


if __name__ == "__main__":
    run_script(main)
