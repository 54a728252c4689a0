"""What has become of the jobs of a plan, from their files; data and weights are not read."""

from typing import get_args

import pandas as pd

from pvera.study.jobs import ENDED, Job, State
from pvera.study.plan import Plan
from pvera.study.worker import claimed, failure_reason

#: What to do about trainings whose members all diverged.
DIVERGED_ADVICE = "no member has a finite loss; try a lower --learning-rate, with --replace"

#: The columns of the table.
STATES = list(get_args(State))


def describe(plan: Plan, name_unfinished: bool = False) -> str:
    """Return the number of jobs in each state, and why jobs failed or diverged.

    Args:
        plan: Has the jobs.
        name_unfinished: Name every job that has no result.
    """
    states, lines = [], []
    for job in plan.jobs():
        state, reason = current_state(job)
        states.append((job.folder, state))
        if reason or (name_unfinished and state not in ENDED):
            lines.append(": ".join(filter(None, [state, job.label, reason])))
    if not states:
        return "nothing can start yet"
    table = pd.DataFrame(states, columns=["experiment", "state"])
    counts = pd.crosstab(table.experiment, table.state, margins=True, margins_name="total")
    return "\n".join([counts.reindex(columns=STATES, fill_value=0).to_string(), *lines])


def current_state(job: Job) -> tuple[State, str]:
    """Return the state of a job, and its reason where it failed or diverged."""
    state = job.state(compare_data=False)
    if state == "diverged":
        return state, DIVERGED_ADVICE
    if state == "done":
        return state, ""
    if job.path.with_suffix(".lock").exists():
        # Taking a lock that nobody holds does no harm: a worker that comes now takes its next job,
        # and lists this one again.
        with claimed(job) as is_free:
            if not is_free:
                return "running", ""
    # It may have been run again after a result of another configuration.
    if reason := failure_reason(job):
        return "failed", reason
    return state, ""
