"""Train the runs that a profile lists (Figure 4, Tables 1 to 8).

    python experiments/train.py --profile demo

experiments/make_suite.py makes the images of `demo` and `synthetic`. Each run writes
results/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json. What exists is not run again; the run that an
interruption ended starts anew. Several calls at once share the runs.

On a cluster:

    python experiments/train.py --profile paper --slurm my_site.yaml     submit workers, and return
    python experiments/train.py --profile paper --status                 what has become of the runs

experiments/slurm.yaml explains what the file holds.
"""

import os
import shlex
import shutil
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from options import DEVICE, OWN, RESULTS, ROOT, Parser, read_profile

from pvera.data import store, tasks
from pvera.data.inputs import prepare
from pvera.errors import InputError, run_script
from pvera.files import require_writable
from pvera.study import results
from pvera.study.jobs import ENDED, Job
from pvera.study.plan import ANALYSES, Plan, list_jobs, unfinished
from pvera.study.profiles import Profile, choose, load_yaml
from pvera.study.worker import DIVERGED, cores, work_together


def main(description: str = __doc__, script: str = "train") -> None:
    start(parse(description), script)


def start(options: Namespace, script: str) -> None:
    """Do the experiments of a profile, or "analyse" their adapters."""
    prepared = own_pictures(options, script) if options.data_set else nullcontext(options)
    with prepared as named:
        carry_out(named, script)


def carry_out(options: Namespace, script: str) -> None:
    """Do, list or submit what the options ask for."""
    profile = changed(read_profile(options.profile or "demo"), options, script)
    plan = Plan(
        profile, names_of(profile, options, script), options.results.absolute(), options.replace
    )
    if options.status or options.slurm:
        from pvera.study import cluster

    if options.status:
        print(cluster.describe(plan))
        return
    states = count_runs(plan, compare_data=not options.list)
    missing = unfinished(states)
    if options.list:
        for run in missing:
            print(f"  missing: {run.experiment}/{run.name}")
        for run in diverged(states):
            print(f"  diverged: {run.experiment}/{run.name}: {DIVERGED}")
        return

    if options.slurm:
        site = cluster.Site.build(load_yaml(options.slurm), options.slurm)
        print(f"{profile.name}: {cluster.submit(plan, site)} jobs submitted", flush=True)
        if not options.wait:
            return
        cluster.wait(plan)
    elif missing:
        require_writable(plan.root)
        prepare(missing)
        device = options.device or DEVICE
        processors = {"cpu": cores(), "cuda": torch.cuda.device_count()}
        workers = options.workers or processors.get(device, 1)
        work_together(plan, missing, workers, device)

    if missing:
        states = plan.states(
            plan.jobs(), compare_data=False
        )  # what was computed has let more start
    if options.data_set and script == "train":
        for line in trained(list(states)):
            print(line)
    report_diverged(states)


def parse(description: str, words: list[str] | None = None) -> Namespace:
    """Parse the command line of a script that trains or analyses."""
    parser = Parser(description)
    parser.add_argument(
        "--profile", help="name in experiments/profiles, or a YAML file (demo, with --data-set own)"
    )
    several = {"action": "append", "default": []}
    own = (
        "your own pictures instead of the profile's (docs/own-data.md); may be given several times"
    )
    parser.add_argument("--data-set", **several, metavar="NAME=FOLDER", help=own)
    for name in ("experiments", "methods", "datasets", "backbones"):
        parser.add_argument(
            f"--{name}", nargs="+", metavar="NAME", help="these instead of what the profile says"
        )
    seeds = "instead of the profile's; experiments that name seeds keep theirs"
    parser.add_argument("--seeds", nargs="+", type=int, metavar="K", help=seeds)
    parser.add_argument("--protocol", help="published or corrected, instead of the profile's")
    parser.add_argument("--precision", help="float32 or bfloat16, instead of the profile's")
    parser.count("--epochs", metavar="N", help="largest number of epochs, instead of the profile's")
    parser.count("--batch-size", metavar="N", help="images of a batch, instead of the profile's")
    parser.add_argument(
        "--learning-rate", type=float, metavar="X", help="of all methods, instead of their grids"
    )
    weights = "file of a backbone's weights, instead of the hub's; may be given several times"
    parser.add_argument("--weights", **several, metavar="NAME=FILE", help=weights)
    parser.count("--images", metavar="N", help="for trials: the first N images of each split")
    parser.add_argument(
        "--data", type=os.path.abspath, help="folder of the data sets, instead of the profile's"
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of the results")
    parser.device(more=" (--workers take the GPUs in turn)")
    parser.count(
        "--workers",
        metavar="N",
        help="processes side by side (default: one per core, one on a GPU)",
    )
    slurm = "submit what is missing to SLURM, as FILE says (default: experiments/slurm.yaml)"
    parser.add_argument(
        "--slurm", nargs="?", metavar="FILE", const=ROOT / "experiments" / "slurm.yaml", help=slurm
    )
    parser.add_argument(
        "--wait", action="store_true", help="with --slurm: wait until all jobs have ended"
    )
    parser.add_argument("--status", action="store_true", help="count the runs in each state")
    parser.add_argument(
        "--replace",
        action="store_true",
        help="run again where the result is of another configuration",
    )
    parser.add_argument(
        "--list", action="store_true", help="list the missing runs, and train nothing"
    )
    options = parser.parse_args(words)
    if options.slurm and (options.device or options.workers):
        raise InputError(
            "--device and --workers are for this machine; with --slurm, set them in the YAML file"
        )
    return options


def changed(profile: Profile, options: Namespace, script: str) -> Profile:
    """Return the profile as the options change it: an option replaces the key of the same name."""
    if options.learning_rate is not None:
        profile = Profile.build(without_rates(profile.model_dump()))
    replaced = vars(profile).keys() & vars(options).keys() - {"experiments", "methods", "weights"}
    weights = {name: str(ROOT / file) for name, file in profile.weights.items()}
    profile = profile.with_(
        methods={
            name: profile.methods.get(name, {}) for name in options.methods or profile.methods
        },
        training=profile.training.with_(epochs=options.epochs, batch_size=options.batch_size),
        **{key: getattr(options, key) for key in replaced},
    )
    for text in options.weights:
        name, _, file = text.partition("=")
        if not file or name not in profile.backbones:
            names = ", ".join(profile.backbones)
            raise InputError(f"--weights takes NAME=FILE, NAME out of {names}, not {text!r}")
        weights[name] = os.path.abspath(file)
    return profile.with_(data=str(ROOT / profile.data), weights=weights)


def without_rates(value: Any) -> Any:
    """Return settings without the learning rates of methods and experiments: all have the profile's."""
    if not isinstance(value, dict):
        return value
    return {key: without_rates(each) for key, each in value.items() if key != "learning_rate"}


def names_of(profile: Profile, options: Namespace, script: str) -> tuple[str, ...]:
    """Return the experiments or analyses that are asked for, or those that the profile says."""
    every = tuple(profile.experiments)
    default = tuple(name for name in every if not profile.experiments[name].on_request)
    if script == "analyse":
        every = tuple(ANALYSES)
        default = tuple(profile.analyses) or every
    for name in options.experiments or ():
        choose("experiment", name, every)
    return (
        tuple(name for name in every if name in options.experiments)
        if options.experiments
        else default
    )


def count_runs(plan: Plan, compare_data: bool) -> dict[Job, str]:
    """Print how many runs of each experiment are there, and return `Plan.states` of all."""
    listed = {name: list_jobs(plan.profile, name, plan.root) for name in plan.experiments}
    states = plan.states([run for runs in listed.values() for run in runs], compare_data)
    for name, runs in listed.items():
        if runs:
            ended = sum(states[run] in ENDED for run in runs)
            print(f"{plan.profile.name}, {name}: {ended} of {len(runs)} runs are there", flush=True)
    if not any(listed.values()):
        print(
            f"profile {plan.profile.name} lists no runs of {', '.join(plan.experiments)} now: trainings come first"
        )
    return states


def diverged(states: dict[Job, str]) -> list[Job]:
    return [run for run, state in states.items() if state == "diverged"]


def report_diverged(states: dict[Job, str]) -> None:
    """Name trainings whose members all diverged. InputError where no other run has come out."""
    runs = diverged(states)
    if not runs:
        return
    first = f"{runs[0].experiment}/{runs[0].name}"
    line = f"{len(runs)} of {len(states)} runs diverged, the first is {first}: {DIVERGED}"
    if "done" not in states.values():
        raise InputError(line)
    print(line)


# One's own pictures as data sets


@contextmanager
def own_pictures(options: Namespace, script: str) -> Iterator[Namespace]:
    """Install the data sets of --data-set; yield options that name them: profile, data and data sets.

    Unless more is said: profile `own`, or `own_large` for a larger backbone; the corrected protocol; PVeRA with seed 0.
    --list and --status keep the lists that are there: they read others in a temporary folder.
    InputError like `custom.install`, and for known data sets beside the user's.
    """
    from pvera.data import custom  # what other trainings do not need

    if options.datasets:
        raise InputError(
            "--datasets and --data-set: known data sets and your own pictures train in separate calls"
        )
    root = options.data or str(OWN)
    names: list[str] = []
    with ExitStack() as stack:
        listing = options.list or options.status
        lists = stack.enter_context(TemporaryDirectory()) if listing else root
        for text in options.data_set:
            name, _, source = text.partition("=")
            if not (name and source):
                raise InputError(f"--data-set takes NAME=FOLDER, not {text!r}")
            if name in names:
                raise InputError(f"--data-set names {name!r} twice")
            names.append(name)

            folder = Path(lists, name)
            if listing:
                stack.callback(shutil.rmtree, store.data_set_folder(folder), ignore_errors=True)
            described = custom.install(lists, name, source)
            print(custom.describe(name, described), flush=True)

            if listing and described == tasks.read_manifest(root, name):
                shutil.rmtree(folder)  # the images of the lists that are there are decoded already
                folder.symlink_to(Path(root, name).absolute(), target_is_directory=True)

        options = Namespace(**vars(options) | {"datasets": names, "data": lists})
        options.profile = options.profile or (
            "own" if options.backbones in (None, ["tiny"]) else "own_large"
        )
        options.protocol = options.protocol or "corrected"
        if script == "train":
            options.methods, options.seeds = options.methods or ["pvera"], options.seeds or [0]
        yield options


def trained(runs: list[Job]) -> list[str]:
    """Return the lines with the adapters of the first seed, and the command that evaluates them."""
    lines = []
    for run in runs:
        adapter = run.path.with_suffix(results.ADAPTER)
        if run.seed == runs[0].seed and adapter.exists():
            words = ["python", "experiments/evaluate.py", str(adapter)]
            if run.weights:
                words += ["--weights", str(run.weights)]
            if Path(run.data_root) != OWN:
                words += ["--data", str(run.data_root)]
            lines.append(f"adapter: {adapter}; evaluate it: {shlex.join(words)}")
    return lines


if __name__ == "__main__":
    run_script(main)
