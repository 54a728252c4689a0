"""Train the runs that a profile lists (Figure 4, Tables 1 to 4 and 6 to 8).

    python experiments/train.py --profile demo

Each run writes results/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json. What exists is not
run again, so an interrupted call goes on where it stopped. Several calls at once share the runs.

On a cluster:

    python experiments/train.py --profile paper --slurm my_site.yaml     submit workers, and return
    python experiments/train.py --profile paper --status                 what has become of the runs

experiments/slurm.yaml explains what the file holds.
"""

import time
from argparse import Namespace
from collections import Counter
from pathlib import Path

import own_pictures
import torch
from training_options import parse_training

from pvera.errors import run_script
from pvera.files import require_writable
from pvera.processes import cores
from pvera.study import cluster, hours
from pvera.study.inputs import prepare
from pvera.study.plan import named, of_profile
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


if __name__ == "__main__":
    run_script(main)
