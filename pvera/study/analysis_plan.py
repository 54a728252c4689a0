"""The analyses that can be started now, of the adapters that experiments have left. docs/extending.md adds to them."""

from collections.abc import Callable

from pvera.data import suite, tasks
from pvera.study import analyses, predictors, results
from pvera.study.analyses import Analysis
from pvera.study.profiles import Profile
from pvera.study.runs import Run, trainings

#: Numbers of draws of Monte Carlo inference; fewer draws are the first of the most.
DRAWS = [2, 4, 8, 16]


def adapters(profile: Profile, root, trained: str, *methods: str) -> list[Run]:
    """Return the trainings of these methods in an experiment, on the first backbone, that have left an adapter."""
    runs = trainings(profile.with_(backbones=profile.backbones[:1]), root, trained)
    return [run for run in runs if run.method in methods and has_adapter(run)]


def has_adapter(run: Run) -> bool:
    """Return whether the record of a run names an adapter."""
    return run.path.exists() and results.ADAPTER in results.read(run.path)["files"]


def of_each(
    runs: list[Run], name: str, function: Callable, tested=(), **settings
) -> list[Analysis]:
    """List the analysis of each run's adapter, below "<name>", or "<name>_<experiment>" where it is no benchmark."""
    return [
        Analysis.build(
            [run],
            name if run.experiment == "benchmark" else f"{name}_{run.experiment}",
            function,
            tested,
            **settings,
        )
        for run in runs
    ]


def uncertainty(profile: Profile, root, name: str, trained: str) -> list[Analysis]:
    """List Monte Carlo inference with every PVeRA adapter (Section 4.3, appendix C)."""
    runs = adapters(profile, root, trained, "pvera")
    return of_each(runs, name, analyses.uncertainties, draws=DRAWS, pictures=profile.pictures)


def out_of_distribution(profile: Profile, root, name: str, trained: str) -> list[Analysis]:
    """List the adapters of the profile's data sets for this, each on all of these (Section 4.4).

    By default they are the first of each category: the paper has three, and does not name them.
    """
    first = {
        tasks.find_task(name, profile.data).category: name for name in reversed(profile.datasets)
    }
    tested = profile.out_of_distribution or sorted(first.values(), key=profile.datasets.index)
    runs = [
        run for run in adapters(profile, root, trained, "vera", "pvera") if run.dataset in tested
    ]
    return of_each(runs, name, analyses.out_of_distribution, tested)


def latent_maps(profile: Profile, root, name: str, trained: str) -> list[Analysis]:
    """List latent maps of five images and four draws on the first data set with the first seed (Section 4.4).

    The first data set of the paper's profile is the paper's.
    """
    runs = adapters(profile, root, trained, "vera", "pvera") if profile.pictures else []
    first = [
        run for run in runs if (run.dataset, run.seed) == (profile.datasets[0], profile.seeds[0])
    ]
    return of_each(first, name, analyses.latent_maps, shown=5, draws=4)


def focus(profile: Profile, root, name: str, trained: str) -> list[Analysis]:
    """List the adapters of the demonstration suite's tasks with objects, whose pixels it knows (Section 4.4)."""
    runs = adapters(profile, root, trained, "vera", "pvera")
    return of_each([run for run in runs if run.dataset in suite.WITH_OBJECTS], name, analyses.focus)


def predictor_scores(profile: Profile, root, name: str, trained: str) -> list[Analysis]:
    """List an analysis of all seeds' adapters that can sample, per data set, once all their trainings have ended."""
    seeds_of: dict[tuple, list[Run]] = {}
    for run in trainings(profile.with_(backbones=profile.backbones[:1]), root, trained):
        if run.method == "pvera" or getattr(run.members[0].method, "dropout", 0):
            seeds_of.setdefault((run.dataset, run.method), []).append(run)
    folder = name if trained == "benchmark" else f"{name}_{trained}"
    return [
        Analysis.build(runs, folder, predictors.compare, samples=max(DRAWS))
        for runs in seeds_of.values()
        if all(has_adapter(run) for run in runs)
    ]


#: Per analysis what lists it, (profile, folder of results, its name, experiment) -> what can be started, and the
#: experiment whose adapters it reads, unless the profile names others.
ANALYSES: dict[str, tuple[Callable[[Profile, object, str, str], list[Analysis]], str]] = {
    "uncertainty": (uncertainty, "benchmark"),
    "out_of_distribution": (out_of_distribution, "benchmark"),
    "latents": (latent_maps, "benchmark"),
    "focus": (focus, "benchmark"),
    "predictors": (predictor_scores, "benchmark"),
}
