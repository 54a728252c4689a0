"""Train the runs that a profile lists (Figure 4, Tables 1 to 4 and 6 to 8).

    python experiments/train.py --profile demo

Each run writes results/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json. What exists is not
run again, so an interrupted call goes on where it stopped. Several calls at once share the runs.

On a cluster:

    python experiments/train.py --profile paper --slurm my_site.yaml     submit workers, and return
    python experiments/train.py --profile paper --status                 what has become of the runs

experiments/slurm.yaml explains what the file holds.
"""

import sys
import time
from argparse import Namespace
from collections import Counter
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import custom_options
import torch
from options import parse_training
from profile_options import changed, read_profile

from pvera.files import require_writable
from pvera.processes import cores
from pvera.study import cluster, hours
from pvera.study.experiments import named, of_profile
from pvera.study.inputs import Inputs, prepare
from pvera.study.profiles import Profile
from pvera.study.runs import Run
from pvera.study.script import run
from pvera.study.worker import Plan, work_together


def main(words: list[str] | None = None) -> None:
    options = parse_training(__doc__, "train", words)
    start(changed(read_profile(options.profile), options), options)


def start(profile: Profile, options: Namespace) -> None:
    """List the runs that are missing, and train them here or submit workers; or show what there is."""
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    workers = options.workers or (cores() if device == "cpu" else max(1, torch.cuda.device_count()))
    root, trains = Path(options.results).absolute(), options.script == "train"
    # where many workers share one machine
    balanced = device == "cpu" and not (options.list or options.slurm or options.budget)
    plan = Plan(profile, tuple(of_profile(profile, options.script)), root, options.replace, balanced)
    if options.status:
        print(cluster.describe(cluster.status(plan)))
        return
    if options.data_set and trains:
        print(custom_options.announce(profile, device), flush=True)
    site = cluster.Site.read(options.slurm) if options.slurm else None

    runs = plan.runs()
    missing = plan.missing(Inputs(), runs)
    counts, lacking = (Counter(named(one.experiment).name for one in part) for part in (runs, missing))
    for experiment, count in counts.items():
        print(f"{profile.name}, {experiment}: {count - lacking[experiment]} of {count} runs are there", flush=True)
    if not runs:
        needs = "; analyses need adapters, which experiments/train.py makes" if options.script == "analyse" else ""
        print(f"profile {profile.name} lists no runs of {', '.join(plan.experiments)} now{needs}")
    if options.budget and trains:
        first, budget = fitting(missing, options.budget, device, workers)
        print(f"{len(first)} of {len(missing)} missing runs fit into {options.budget:g} hours, by a measured step and "
              f"{hours.EPOCHS} epochs each", flush=True)  # fmt: skip
        plan, missing = replace(plan, budget=budget), first

    if options.list:
        for one in missing:
            print(f"  missing: {one.experiment}/{one.name}")
        if missing and profile.name == "paper" and trains:
            print(f"\n{hours.calculated(missing)}")
        if missing and options.data_set and trains:
            print(custom_options.expect(profile, missing[0], device))
        return
    if site:
        submit(plan, site, options.wait)
        return
    if missing:
        require_writable(root)
        prepare(missing)
        work_together(plan, missing, " and ".join(lacking), workers, device)
    if plan.budget:
        print(f"{profile.name}: {len(plan.missing(Inputs()))} runs are left; the same command goes on")
    if options.data_set and trains and runs:
        print(*custom_options.trained(plan.runs()), sep="\n")


def fitting(runs: list[Run], budget: float, device: str, workers: int) -> tuple[list[Run], hours.Budget]:
    """Return the first runs that workers finish in `budget` hours, and what the workers watch meanwhile."""
    measured = next(filter(hours.epoch, runs), None)
    seconds, done = (hours.epoch_seconds(measured, device), hours.epoch(measured)) if measured else (0.0, 1.0)
    watched = hours.Budget(time.time() + 3600 * budget, seconds, done)
    ends = accumulate(map(watched.expected, runs))
    return runs[: sum(end <= 3600 * budget * workers for end in ends)], watched


def submit(plan: Plan, site: cluster.Site, wait: bool) -> None:
    """Submit workers; with `wait`, end with 1 if runs failed."""
    print(f"{plan.profile.name}: {cluster.submit(plan, site)} jobs submitted", flush=True)
    if wait:
        cluster.wait(plan)
        table = cluster.status(plan)
        if (table.state != "done").any():
            print(cluster.describe(table))
            sys.exit(1)


if __name__ == "__main__":
    run(main)
