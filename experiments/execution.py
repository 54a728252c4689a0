"""The jobs of a profile as the options ask: listed, submitted to SLURM, or executed here."""

from argparse import Namespace
from collections.abc import Iterable

import torch
from options import DEVICE

from pvera.data.inputs import check_inputs
from pvera.errors import InputError
from pvera.files import require_writable
from pvera.study.checked import load_yaml
from pvera.study.jobs import Job, State
from pvera.study.plan import Plan, unfinished
from pvera.study.profiles import Profile
from pvera.study.status import DIVERGED_ADVICE, describe
from pvera.study.worker import cores, work_together


def carry_out(profile: Profile, names: Iterable[str], options: Namespace) -> list[Job]:
    """List, submit or execute the jobs of a profile, as the options ask.

    Args:
        profile: Has the jobs.
        names: Its experiments or analyses, unless the options name others.
        options: As `study_options.parse` returns them.

    Returns:
        The jobs that can start by then; none for listings and for jobs that were submitted.

    Raises:
        InputError: A job failed, or all trainings diverged.
    """
    names = tuple(options.experiments or names)
    plan = Plan(profile, names, options.results.absolute(), options.replace)
    if options.status:
        print(describe(plan, name_unfinished=options.list))
        return []

    states = find_states(plan, options)
    missing = unfinished(states)
    if options.slurm:
        submit(plan, missing, options)
        if not options.wait:
            return []
    elif missing:
        execute(plan, missing, options)

    if missing:
        # What was computed has let more start.
        states = plan.states(plan.jobs(), compare_data=False)
    report_diverged(states)
    return list(states)


def find_states(plan: Plan, options: Namespace) -> dict[Job, State]:
    """Find the states of a plan's jobs, and print how many are done.

    Data and weights are compared only where something is to be computed, may be replaced, or is of
    the user's own pictures, which may have changed.
    """
    jobs = plan.jobs()
    states = plan.states(jobs, compare_data=False)
    if unfinished(states) or options.replace or options.data_set:
        states = plan.states(jobs)
    done = len(jobs) - len(unfinished(states))
    print(f"{plan.profile.name}: {done} of {len(jobs)} runs are there", flush=True)
    return states


def submit(plan: Plan, missing: list[Job], options: Namespace) -> None:
    """Submit workers to SLURM; with --wait, return when they have ended."""
    from pvera.study import cluster

    site = cluster.Site.build(load_yaml(options.slurm), options.slurm)
    count = cluster.submit(plan, missing, site)
    print(f"{plan.profile.name}: {count} workers submitted", flush=True)
    if options.wait:
        cluster.wait(plan)


def execute(plan: Plan, missing: list[Job], options: Namespace) -> None:
    """Execute jobs on this machine."""
    require_writable(plan.root)
    check_inputs(missing)
    device = options.device or DEVICE
    default = {"cpu": cores(), "cuda": torch.cuda.device_count()}.get(device, 1)
    work_together(plan, missing, options.workers or default, device)


def report_diverged(states: dict[Job, State]) -> None:
    """Name trainings whose members all diverged.

    Raises:
        InputError: No other run has come out.
    """
    diverged = [job for job, state in states.items() if state == "diverged"]
    if not diverged:
        return
    count = f"{len(diverged)} of {len(states)} runs diverged"
    line = f"{count}, the first is {diverged[0].label}: {DIVERGED_ADVICE}"
    if "done" not in states.values():
        raise InputError(line)
    print(line)
