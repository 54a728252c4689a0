"""Plans: which trainings and analyses of a profile can start, and which have their result.

Analyses are of the first backbone. docs/extending.md says how to add one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pvera.data import suite, tasks
from pvera.errors import InputError
from pvera.study import analyses, predictor_comparison
from pvera.study.analyses import Analysis, analysis_of
from pvera.study.checked import require_known
from pvera.study.jobs import ENDED, Job, Run, State
from pvera.study.profiles import Profile
from pvera.study.run_settings import list_planned_runs, list_runs

#: Numbers of Monte Carlo samples; few samples are the first of the many.
SAMPLE_COUNTS = [2, 4, 8, 16]


@dataclass(frozen=True)
class Plan:
    """The jobs of some experiments of a profile, with results below `root`."""

    profile: Profile
    #: Names of experiments, or of analyses.
    names: tuple[str, ...]
    root: Path
    #: Results of another configuration are replaced.
    replace: bool = False

    def jobs(self) -> list[Job]:
        """List what can start, done or not, in the order of the experiments."""
        jobs: dict[Job, None] = {}
        for name in self.names:
            jobs |= dict.fromkeys(list_jobs(self.profile, name, self.root))
        return list(jobs)

    def count_waiting(self) -> int:
        """Count the trainings that cannot start before a search has ended.

        It is an upper bound: those that experiments share in one folder are counted for each.
        """
        planned = 0
        # Names may be of analyses too, which wait for trainings and not for searches.
        for name in self.profile.experiments.keys() & self.names:
            planned += len(list_planned_runs(self.profile, name))
        return planned - sum(isinstance(job, Run) for job in self.jobs())

    def states(self, jobs: list[Job], compare_data: bool = True) -> dict[Job, State]:
        """Return the state of each job (`Job.state`), in their order.

        Raises:
            InputError: A result is of another configuration, and `replace` is not set.
        """
        states = {job: job.state(compare_data) for job in jobs}
        different = [job for job, state in states.items() if state == "different"]
        if different and not self.replace:
            raise InputError(
                f"{len(different)} result files were made with another configuration, the first "
                f"is {different[0].path}; use --replace to run them again, or --results for "
                "another folder"
            )
        return states

    def missing(self) -> list[Job]:
        """List the jobs that are still to be executed, as `unfinished`.

        Raises:
            InputError: As `states`.
        """
        return unfinished(self.states(self.jobs()))


def unfinished(states: dict[Job, State]) -> list[Job]:
    """List the jobs that have no result."""
    return [job for job, state in states.items() if state not in ENDED]


def list_jobs(profile: Profile, name: str, root: str | Path) -> list[Job]:
    """List the jobs of an experiment or an analysis that can start.

    An analysis whose training has left no adapter, or one of other settings, is not listed yet.

    Raises:
        InputError: The profile has no experiment of that name, and there is no such analysis; or
            the profile is of texts, and analyses are of images.
    """
    if name in profile.experiments:
        return [*list_runs(profile, root, name)]

    require_known("experiment", name, (*profile.experiments, *ANALYSES))
    if profile.is_text:
        raise InputError(f"profile {profile.name!r} is of texts: {name} is an analysis of images")
    # Analyses read adapters of the first backbone alone.
    on_one_backbone = profile.replaced(backbones=profile.backbones[:1])
    jobs: list[Job] = []
    for experiment in (profile.analyses or {}).get(name, ["benchmark"]):
        if experiment in profile.experiments:
            runs = list_runs(on_one_backbone, root, experiment)
            jobs += ANALYSES[name](profile, runs, name)
    return jobs


# Analyses. Each function lists those of one kind that can start, of the runs of an experiment.


def list_uncertainty(profile: Profile, runs: list[Run], name: str) -> list[Analysis]:
    """List Monte Carlo inference with every PVeRA adapter (Section 4.3, Appendix C)."""
    return [
        analysis_of(
            [run],
            name,
            analyses.compute_uncertainty,
            draws=SAMPLE_COUNTS,
            pictures=profile.pictures,
        )
        for run in with_adapter(runs, "pvera")
    ]


def list_out_of_distribution(profile: Profile, runs: list[Run], name: str) -> list[Analysis]:
    """List adapters, each on the test images of several data sets (Section 4.4).

    By default they are the first data set of each category: the paper has three, and does not
    name them.
    """
    first_of_category: dict[str, str] = {}
    for dataset in profile.datasets:
        category = tasks.find_data_set(dataset, profile.data).category
        first_of_category.setdefault(category, dataset)
    tested = profile.out_of_distribution or list(first_of_category.values())
    return [
        analysis_of([run], name, analyses.compute_out_of_distribution, tested)
        for run in with_adapter(runs, "vera", "pvera")
        if run.dataset in tested
    ]


def list_latents(profile: Profile, runs: list[Run], name: str) -> list[Analysis]:
    """List latent maps on the first data set with the first seed (Section 4.4).

    The first data set of the paper's profile is the paper's.
    """
    if not profile.pictures:
        return []
    first = (profile.datasets[0], profile.seeds[0])
    return [
        analysis_of([run], name, analyses.compute_latents, shown=5, draws=4)
        for run in with_adapter(runs, "vera", "pvera")
        if (run.dataset, run.seed) == first
    ]


def list_focus(profile: Profile, runs: list[Run], name: str) -> list[Analysis]:
    """List adapters of synthetic tasks with objects, whose pixels are known (Section 4.4)."""
    return [
        analysis_of([run], name, analyses.compute_focus)
        for run in with_adapter(runs, "vera", "pvera")
        if run.dataset in suite.WITH_OBJECTS
    ]


def list_predictors(profile: Profile, runs: list[Run], name: str) -> list[Analysis]:
    """List one analysis per data set of all seeds' adapters, for methods that can sample.

    It can start once all these trainings have ended.
    """
    seeds: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        if can_sample(run):
            seeds.setdefault((run.folder, run.dataset, run.method), []).append(run)
    return [
        analysis_of(
            group, name, predictor_comparison.compute_predictors, samples=max(SAMPLE_COUNTS)
        )
        for group in seeds.values()
        if all(has_adapter(run) for run in group)
    ]


def can_sample(run: Run) -> bool:
    """Return whether passes of a run's adapter differ, by PVeRA's noise or by latent dropout."""
    method = run.member_configs[0].method
    return run.method == "pvera" or bool(getattr(method, "dropout", None))


def with_adapter(runs: list[Run], *methods: str) -> list[Run]:
    """Return the runs of these methods that have left an adapter."""
    return [run for run in runs if run.method in methods and has_adapter(run)]


def has_adapter(run: Run) -> bool:
    """Return whether a run has left an adapter of its present settings."""
    return run.state(compare_data=False) == "done"


#: A function from profile, runs of an experiment and name of the analysis to what can start of it.
Listing = Callable[[Profile, list[Run], str], list[Analysis]]

#: The listing of each analysis. It reads the adapters of the benchmark unless the profile names
#: other experiments.
ANALYSES: dict[str, Listing] = {
    "uncertainty": list_uncertainty,
    "out_of_distribution": list_out_of_distribution,
    "latents": list_latents,
    "focus": list_focus,
    "predictors": list_predictors,
}
