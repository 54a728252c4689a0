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
import time
from argparse import Namespace
from collections import Counter
from pathlib import Path

import own_pictures
import torch
from options import ROOT, Parser, read_profile, set_cache

from pvera.data import store
from pvera.data.inputs import prepare
from pvera.errors import InputError, run_script
from pvera.files import require_writable
from pvera.processes import cores
from pvera.study import cluster, hours
from pvera.study.plan import EXPERIMENTS, named, of_profile, of_script
from pvera.study.profiles import Profile
from pvera.study.worker import Plan, work_together


def main(words: list[str] | None = None) -> None:
    start(*parse_training(__doc__, "train", words))


def start(profile: Profile, options: Namespace) -> None:
    """List the runs of a profile that are missing, and train them here or submit workers; or show what there is."""
    trains, root = options.script != "analyse", Path(options.results).absolute()
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    ends = time.time() + 3600 * options.budget if options.budget is not None and trains else None
    in_order = device != "cpu" or options.list or options.slurm or options.budget or not trains
    experiments = tuple(of_profile(profile, options.script))
    plan = Plan(profile, experiments, root, options.replace, longest_first=not in_order, ends=ends)
    if options.status:
        print(cluster.describe(cluster.status(plan)))
        return
    own = options.data_set and options.script == "train"
    if own:
        print(own_pictures.announce(profile, device), flush=True)

    runs = plan.runs()
    missing = plan.missing(runs)
    lacking = Counter(named(one.experiment).name for one in missing)
    for experiment, count in Counter(named(one.experiment).name for one in runs).items():
        print(f"{profile.name}, {experiment}: {count - lacking[experiment]} of {count} runs are there", flush=True)
    if not runs:
        print(f"profile {profile.name} lists no runs of {', '.join(experiments)} now")
        if not trains:
            print("analyses need adapters, which experiments/train.py makes")

    if options.list:
        for one in missing:
            print(f"  missing: {one.experiment}/{one.name}")
        if missing and profile.name == "paper" and options.script == "train":
            print(f"\n{hours.calculated(missing)}")
        if missing and own:
            count, epoch = own_pictures.count(profile), hours.epoch_seconds(missing[0], device)
            said = hours.duration(epoch, profile.training, count)
            print(f"by a measured step, {count} trainings one after the other take {said}")
        return
    if options.slurm:
        print(f"{profile.name}: {cluster.submit(plan, cluster.Site.read(options.slurm))} jobs submitted", flush=True)
        if options.wait:
            cluster.wait(plan)
        return
    if missing:
        require_writable(root)
        prepare(missing)
        workers = options.workers or (cores() if device == "cpu" else max(1, torch.cuda.device_count()))
        work_together(plan, missing, workers, device)
    if ends:
        print(f"{profile.name}: {len(plan.missing())} runs are left; the same command goes on")
    if own and runs:
        print(*own_pictures.trained(plan.runs()), sep="\n")


def parse_training(description: str, script: str, words: list[str] | None) -> tuple[Profile, Namespace]:
    """Parse the command line of a script that makes the runs of its experiments, which --help lists.

    Returns the profile as the options change it, and the options.
    """
    experiments = of_script(script)
    width = max(map(len, experiments))
    about = "\n".join(f"    {name:{width}}   {EXPERIMENTS[name].about}" for name in experiments)
    parser = Parser(f"{description}\nExperiments:\n\n{about}\n")
    parser.profile(None, "demo, with --data-set own")
    parser.add_argument(
        "--data-set",
        action="append",
        default=[],
        metavar="NAME=FOLDER",
        help="your own pictures instead of the profile's data sets: a folder of class folders, one with splits, or "
        "a CSV file (docs/own-data.md); may be given several times",
    )
    split_seed = "draws the splits that your pictures do not have (default: as in an earlier call, else 0)"
    parser.count("--split-seed", least=0, metavar="K", help=split_seed)
    parser.add_argument(
        "--experiments",
        nargs="+",
        metavar="E",
        choices=experiments,
        help=f"only these of {', '.join(experiments)} (default: those of the profile)",
    )
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
    parser.add_argument(
        "--budget",
        type=float,
        metavar="HOURS",
        help="start no run that would end after these hours, if it took as long as the longest so far",
    )
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
    profile = read_profile(options.profile or "demo")
    return changed(profile.of_language() if script == "train_language" else profile, options), options


def changed(profile: Profile, options: Namespace) -> Profile:
    """Return `profile` with the command line's changes: an option replaces the key of the same name."""
    methods = {name: profile.methods.get(name, {}) for name in options.methods or profile.methods}
    if options.learning_rate is not None:
        methods = at_rate(methods, options.learning_rate)
        full = [part.with_(methods=at_rate(part.methods, options.learning_rate)) for part in profile.full]
        profile = profile.with_(full=full)
    schedule = profile.training.with_(epochs=options.epochs, batch_size=options.batch_size)
    profile = profile.with_(methods=methods, training=schedule)
    replaced = vars(profile).keys() & vars(options).keys() - {"methods", "weights"}
    profile = profile.with_(**{key: getattr(options, key) for key in replaced})
    weights = {name: str(ROOT / file) for name, file in profile.weights.items()}
    for text in options.weights:
        name, _, file = text.partition("=")
        if not file or name not in profile.backbones:
            names = ", ".join(profile.backbones)
            raise InputError(f"--weights takes NAME=FILE, NAME out of {names}, not {text!r}")
        weights[name] = os.path.abspath(file)
    return profile.with_(data=str(ROOT / profile.data), weights=weights)


def at_rate(methods: dict[str, dict], rate: float) -> dict[str, dict]:
    """Return `methods` with the learning rate `rate` in place of each grid of rates."""
    replaced = dict(methods)
    for name, options in methods.items():
        if "learning_rate" in options.get("grid", {}):
            others = {key: value for key, value in options.items() if key not in ("grid", "most_chosen")}
            replaced[name] = others | {"learning_rate": rate}
    return replaced


if __name__ == "__main__":
    run_script(main)
