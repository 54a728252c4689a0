"""Train the runs that a profile lists (Figure 4, Tables 1 to 4 and 6 to 8).

    python experiments/train.py --profile demo

Each run writes results/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json. What exists is not
run again, so an interrupted call goes on where it stopped.

On a cluster:

    python experiments/train.py --profile paper --slurm my_site.yaml     submit what is missing, and return
    python experiments/train.py --profile paper --status                 what has become of it

experiments/slurm.yaml explains what the file holds. What is queued or running is not submitted again.
"""

import sys
from argparse import Namespace

import torch
from options import parse_training
from profile_options import changed, read_profile

from pvera.files import require_writable
from pvera.processes import cores
from pvera.study import cluster
from pvera.study.experiments import EXPERIMENTS
from pvera.study.inputs import prepare
from pvera.study.profiles import Profile
from pvera.study.scheduler import pending, resolve, run_all
from pvera.study.script import run


def main() -> None:
    launch(__doc__, "train")


def launch(description: str, script: str) -> None:
    """Read the command line of `script` and the profile that it names, and start the script's experiments."""
    options = parse_training(description, script)
    start(changed(read_profile(options.profile), options), options)


def start(profile: Profile, options: Namespace) -> None:
    """Show the state of the runs, submit them, or train them here."""
    if options.status:
        print(cluster.describe(cluster.status(profile, options.results, options.experiments)))
    elif options.slurm:
        submit(profile, options)
    else:
        train(profile, options)


def train(profile: Profile, options: Namespace) -> None:
    """Train here what is missing, or list it."""
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    workers = options.workers or (cores() if device == "cpu" else 1)
    if not options.list:
        require_writable(options.results)
    names = [name for name in EXPERIMENTS if name in options.experiments]
    announced = False
    while True:
        missing, planned = [], 0
        for experiment in names:
            runs = resolve(profile.runs(experiment, options.results))
            lacking = pending([one for one in runs if not one.waits], options.replace)
            lacking += [one for one in runs if one.waits]
            missing += lacking
            planned += len(runs)
            if runs and not announced:
                there = len(runs) - len(lacking)
                print(f"{profile.name}, {experiment}: {there} of {len(runs)} runs are there", flush=True)
            if options.list:
                for one in lacking:
                    print(f"  missing: {one.name}")
        if not planned:
            print(f"profile {profile.name} lists no runs of {', '.join(names)}")
        if not missing or options.list:
            return
        announced = True
        # All that waits for no search shares the workers; its results let others start. Where none does, a run that
        # waits says what it lacks.
        ready = [one for one in missing if not one.waits] or missing
        prepare(ready)
        # The longest first, which leaves the least to wait for at the end.
        ready.sort(key=lambda one: len(one.candidates), reverse=True)
        run_all(ready, " and ".join(dict.fromkeys(one.experiment for one in ready)), workers, device)


def submit(profile: Profile, options: Namespace) -> None:
    """Submit what is missing; with --wait, end with 1 if runs failed."""
    site = cluster.Site.read(options.slurm)
    made = cluster.submit(profile, options.results, site, options.replace, options.experiments)
    print(
        f"{profile.name}: {made.done} of {made.runs} runs are there, {made.active} were queued or running, "
        f"{made.new} are submitted now in {made.jobs} jobs",
        flush=True,
    )
    if options.wait:
        cluster.wait(profile, options.results, options.experiments)
        table = cluster.status(profile, options.results, options.experiments)
        if (table.state != "done").any():
            print(cluster.describe(table))
            sys.exit(1)


if __name__ == "__main__":
    run(main)
