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

import custom_options
import torch
from options import parse_training

from pvera.files import require_writable
from pvera.processes import cores
from pvera.study import cluster, hours
from pvera.study.experiments import named, of_profile
from pvera.study.inputs import prepare
from pvera.study.profiles import Profile
from pvera.study.runs import Job
from pvera.study.script import run
from pvera.study.worker import Plan, work_together


def main(words: list[str] | None = None) -> None:
    start(*parse_training(__doc__, "train", words))


def start(profile: Profile, options: Namespace) -> None:
    """List the runs of a profile that are missing, and train them here or submit workers; or show what there is."""
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    ends = time.time() + 3600 * options.budget if options.budget is not None and options.script != "analyse" else None
    here = not (options.list or options.slurm or options.budget or options.script == "analyse")
    experiments, root = tuple(of_profile(profile, options.script)), Path(options.results).absolute()
    plan = Plan(profile, experiments, root, options.replace, longest_first=here and device == "cpu", ends=ends)
    own = options.data_set and options.script == "train"

    if options.status:
        print(cluster.describe(cluster.status(plan)))
        return
    if own:
        print(custom_options.announce(profile, device), flush=True)
    site = cluster.Site.read(options.slurm) if options.slurm else None
    runs = plan.runs()
    missing = plan.missing(runs)
    print_counts(plan, runs, missing)
    if not runs and options.script == "analyse":
        print("analyses need adapters, which experiments/train.py makes")
    if options.list:
        for one in missing:
            print(f"  missing: {one.experiment}/{one.name}")
        if missing and profile.name == "paper" and options.script == "train":
            print(f"\n{hours.calculated(missing)}")
        if missing and own:
            print(custom_options.expect(profile, missing[0], device))
    elif site:
        print(f"{profile.name}: {cluster.submit(plan, site)} jobs submitted", flush=True)
        if options.wait:
            cluster.wait(plan)
    else:
        if missing:
            require_writable(root)
            prepare(missing)
            title = " and ".join(dict.fromkeys(named(one.experiment).name for one in missing))
            workers = options.workers or (cores() if device == "cpu" else max(1, torch.cuda.device_count()))
            work_together(plan, missing, title, workers, device)
        if ends:
            print(f"{profile.name}: {len(plan.missing())} runs are left; the same command goes on")
        if own and runs:
            print(*custom_options.trained(plan.runs()), sep="\n")


def print_counts(plan: Plan, runs: list[Job], missing: list[Job]) -> None:
    """Print how many runs of each experiment are there."""
    counts, lacking = (Counter(named(one.experiment).name for one in part) for part in (runs, missing))
    for experiment, count in counts.items():
        print(f"{plan.profile.name}, {experiment}: {count - lacking[experiment]} of {count} runs are there", flush=True)
    if not runs:
        print(f"profile {plan.profile.name} lists no runs of {', '.join(plan.experiments)} now")


if __name__ == "__main__":
    run(main)
