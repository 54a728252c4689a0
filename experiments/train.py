"""Train the runs that a profile lists (Figure 4, Tables 1 to 8).

    python experiments/train.py --profile demo

experiments/make_suite.py makes the images of `demo` and `synthetic`. Each run writes
results/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json. What exists is not run
again, and then needs no data; a run that was interrupted starts again. Several calls at once share
the runs.

On a cluster:

    python experiments/train.py --profile paper --slurm my_site.yaml     submit workers, and return
    python experiments/train.py --profile paper --status                 what has become of the runs

experiments/slurm.yaml explains what the file holds.
"""

from argparse import Namespace
from collections.abc import Iterable

from execution import carry_out
from own_pictures import own_pictures_installed
from study_options import changed_profile, parse

from pvera.errors import run_script
from pvera.study import results
from pvera.study.jobs import Job


def main() -> None:
    """Train what the command line asks for."""
    train(parse(__doc__))


def train(options: Namespace) -> None:
    """Train the experiments of a profile that the options ask for."""
    with own_pictures_installed(options) as changed:
        if changed.data_set:
            # docs/own-data.md wants an adapter; the profile's other methods are on request.
            changed.methods = changed.methods or ["pvera"]
        profile = changed_profile(changed)
        experiments = profile.experiments.items()
        names = [name for name, experiment in experiments if not experiment.on_request]
        jobs = carry_out(profile, names, changed)
        if changed.data_set:
            print_adapters(jobs)


def print_adapters(jobs: Iterable[Job]) -> None:
    """Print the adapters that trainings have left; docs/own-data.md evaluates them."""
    for job in jobs:
        adapter = job.path.with_suffix(results.ADAPTER_SUFFIX)
        if adapter.exists():
            print(f"adapter: {adapter}")


if __name__ == "__main__":
    run_script(main)
