"""The runs of each experiment that can be started now, from the profile and the results that are there.

A run that needs a value that a search has not found, or an analysis whose training has left no adapter, is not listed
yet: whoever executes runs lists again afterwards.
"""

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from pvera import text_encoders
from pvera.adapters import METHODS
from pvera.data import suite, tasks
from pvera.errors import InputError
from pvera.study import analyses, baselines, results
from pvera.study.analyses import Analysis
from pvera.study.profiles import Profile
from pvera.study.protocol import PUBLISHED_BETA, Protocol, one_at_a_time
from pvera.study.runs import Job, MemberConfig, Run
from pvera.study.validation import choose

# One method's grid


def grid(profile: Profile, backbone: str, method: str) -> list[dict]:
    """Return the members of a method's grid by what differs; where the grid is fixed, the most chosen value alone."""
    options = profile.methods[method]
    if "grid" not in options:
        return [{}]
    if backbone in profile.fixed_grid:
        return [most_chosen(profile, method)]
    return combinations(options["grid"])


def combinations(values: dict[str, list]) -> list[dict]:
    """Return all combinations of the values, {name: value}."""
    return [dict(zip(values, combination, strict=True)) for combination in product(*values.values())]


def most_chosen(profile: Profile, method: str) -> dict:
    """Return the value that stands for a method's grid where it is not searched, {} without a grid."""
    options = profile.methods[method]
    if "grid" not in options:
        return {}
    if "most_chosen" not in options:
        raise InputError(
            f"profile {profile.name!r}: methods.{method}.most_chosen: is missing, the value that is taken where the "
            "grid is not searched"
        )
    (name,) = options["grid"]
    return {name: options["most_chosen"]}


def candidate(profile: Profile, method: str, values: dict, rules: Protocol, **options) -> MemberConfig:
    """Build one member of a method's grid.

    values: the hyperparameters by which it differs from the others. options: those of all, beside the profile's.
    """
    of_profile = {name: value for name, value in profile.methods[method].items() if name not in ("grid", "most_chosen")}
    settings = of_profile | rules.adapters.get(method, {}) | options | values
    rate, beta = settings.pop("learning_rate", profile.learning_rate), settings.pop("beta", 0.0)
    try:
        built = METHODS[method](**settings)
    except TypeError as error:
        raise InputError(f"{METHODS[method].title}: {error}") from None
    # Linear probing has no adapter: the searched rate is the head's.
    return MemberConfig(built, rate, rate if method == "linear" else profile.learning_rate, beta, values)


# Trainings


def trainings(profile: Profile, root, name: str) -> list[Run]:
    """List the trainings of the experiment `name` that can start, backbone by backbone and seed by seed."""
    experiment, listed = profile.experiments[name], []
    backbones, datasets, methods = (
        [name for name in getattr(profile, key) if name in (getattr(experiment, key) or (name,))]
        for key in ("backbones", "datasets", "methods")
    )
    seeds = experiment.seeds or profile.seeds
    for folder, varied in experiment.variants(name).items():
        variant = one_at_a_time()[varied.pop("protocol", experiment.protocol or profile.protocol)]
        for backbone, dataset, method, seed in product(backbones, datasets, methods, seeds):
            if variant.method not in (None, method):
                continue
            place = backbone, dataset, method
            taken = [
                choice(profile, root, other, place)
                for other in experiment.take
                if method in (profile.experiments[other].methods or profile.methods)
            ]
            members = members_of(profile, root, name, folder, place, seed)
            if None in taken or not members:
                continue
            options: dict[str, Any] = {}
            for part in (*taken, experiment.set, varied):
                options |= part or {}
            if (profile.methods[method] | options | members[0]).get("beta") == "published":
                options["beta"] = published_beta(dataset)
            run = Run(
                profile=profile.name,
                experiment=folder,
                backbone=backbone,
                dataset=dataset,
                method=method,
                seed=seed,
                members=tuple(candidate(profile, method, values, variant.protocol, **options) for values in members),
                training=profile.training,
                protocol=variant.protocol,
                precision=profile.precision,
                data_root=profile.data,
                results_root=str(root),
                weights=profile.weights.get(backbone),
                deterministic=profile.deterministic,
                image_size=profile.image_size,
                images=None if experiment.all_images else profile.images,
                pool=text_encoders.pool(backbone),
                keep=experiment.keep,
            )
            listed.append(run)
    return sorted(listed, key=lambda run: (backbones.index(run.backbone), seeds.index(run.seed)))


def members_of(profile: Profile, root, name: str, folder: str, place: tuple[str, str, str], seed: int) -> list[dict]:
    """Return what the members of a run differ in: the grid, or what another seed chose from it; [] while it has not."""
    experiment, (backbone, _, method) = profile.experiments[name], place
    if not experiment.search:
        return [most_chosen(profile, method)]
    members = combinations(experiment.grid) if experiment.grid else grid(profile, backbone, method)
    chooser, first = experiment.choose or profile.choose, (experiment.seeds or profile.seeds)[0]
    if len(members) == 1 or chooser == "each_seed" or (chooser == "first_seed" and seed == first):
        return members
    if chooser == "first_seed":
        chosen = chosen_grid(results.run_path(root, profile.name, folder, *place, first))
    else:
        chosen = choice(profile, root, chooser, place)
    return [member for member in members if member == chosen]


def choice(profile: Profile, root, name: str, place: tuple[str, str, str]) -> dict | None:
    """Return what the first seed of an experiment chose; None while it has not, or where all diverged.

    place: backbone, data set and method.
    """
    experiment = profile.experiments[name]
    folder, seed = experiment.folder or name, (experiment.seeds or profile.seeds)[0]
    return chosen_grid(results.run_path(root, profile.name, folder, *place, seed))


def chosen_grid(path: Path) -> dict | None:
    """Return what the chosen member of a finished run differs by; None without result, or where all diverged."""
    record = results.read(path) if path.exists() else None
    return record["chosen"]["grid"] if record and record["chosen"] else None


def published_beta(dataset: str) -> float:
    """Return the published program's β. InputError for data sets that it does not have."""
    if dataset not in PUBLISHED_BETA:
        raise InputError(f"the paper has no β for {dataset}: write a number in place of 'published' in the profile")
    return PUBLISHED_BETA[dataset]


# Analyses of adapters: each lists what it makes of the adapters that some experiments have left


def adapters(profile: Profile, root, trained: str, *methods: str) -> list[Run]:
    """Return the trainings of these methods in an experiment, on the first backbone, that have left an adapter."""
    runs = trainings(profile.with_(backbones=profile.backbones[:1]), root, trained)
    return [run for run in runs if run.method in methods and has_adapter(run)]


def has_adapter(run: Run) -> bool:
    """Return whether the record of a run names an adapter."""
    return run.path.exists() and results.ADAPTER in results.read(run.path)["files"]


def place_of(name: str, run: Run) -> str:
    """Return the folder of an analysis of a training: that of the benchmark's has no more than its name."""
    return name if run.experiment == "benchmark" else f"{name}_{run.experiment}"


def uncertainty(profile: Profile, root, name: str, trained: str) -> list[Analysis]:
    """List Monte Carlo inference with every PVeRA adapter (Section 4.3, appendix C)."""
    return [
        Analysis.build(run, place_of(name, run), analyses.uncertainties, draws=sorted(profile.draws))
        for run in adapters(profile, root, trained, "pvera")
    ]


def out_of_distribution(profile: Profile, root, name: str, trained: str) -> list[Analysis]:
    """List the adapters of the profile's data sets for this, each on all of these (Section 4.4).

    By default they are the first of each category: the paper has three, and does not name them.
    """
    tested = tuple(profile.out_of_distribution) or first_of_categories(profile)
    return [
        Analysis.build(run, place_of(name, run), analyses.out_of_distribution, tested)
        for run in adapters(profile, root, trained, "vera", "pvera")
        if run.dataset in tested
    ]


def latent_maps(profile: Profile, root, name: str, trained: str) -> list[Analysis]:
    """List latent maps of five images and four draws on the first data set with the first seed (Section 4.4).

    The first data set of the paper's profile is the paper's.
    """
    return [
        Analysis.build(run, place_of(name, run), analyses.latent_maps, shown=5, draws=4)
        for run in adapters(profile, root, trained, "vera", "pvera")
        if run.dataset == profile.datasets[0] and run.seed == profile.seeds[0]
    ]


def focus(profile: Profile, root, name: str, trained: str) -> list[Analysis]:
    """List the adapters of the demonstration suite's tasks with objects, whose pixels it knows (Section 4.4)."""
    return [
        Analysis.build(run, place_of(name, run), analyses.focus)
        for run in adapters(profile, root, trained, "vera", "pvera")
        if run.dataset in suite.WITH_OBJECTS
    ]


def compared(profile: Profile, root, name: str, trained: str) -> list[Analysis]:
    """List an analysis of all seeds' adapters per data set, method and variant, where all trainings have ended.

    Along β they are given the test images alone; otherwise corrupted ones too, and those of two other data sets.
    """
    if not profile.baselines or trained not in profile.experiments:
        return []
    datasets = [name for name in profile.baselines.datasets or profile.datasets if name in profile.datasets]
    profile = profile.with_(backbones=profile.backbones[:1], datasets=datasets)
    settings = {"shifts": True} | profile.baselines.model_dump(exclude={"datasets"})
    along_beta = name == "beta_rivals"
    if along_beta:
        settings |= {"shifts": False, "draws": [k for k in settings["draws"] if k <= settings["shift_draws"]]}
    seeds_of: dict[tuple, list[Run]] = {}
    for run in trainings(profile, root, trained):
        if run.method in baselines.ADAPTED:
            seeds_of.setdefault((run.experiment, run.dataset, run.method), []).append(run)
    listed = []
    for (folder, dataset, _), runs in seeds_of.items():
        with_adapters = [run for run in runs if has_adapter(run)]
        if with_adapters and all(run.path.exists() for run in runs):
            tested = (dataset,) if along_beta else (dataset, *near_and_far(profile, dataset))
            place, function = name + folder.removeprefix(trained), baselines.compare
            listed.append(Analysis.build(with_adapters, place, function, tested, **settings))
    return listed


def near_and_far(profile: Profile, dataset: str) -> tuple[str, ...]:
    """Return the next data set of the same category, and the next one of another, as out of distribution."""
    category = {name: tasks.task(name, profile.data).category for name in profile.datasets}
    place = profile.datasets.index(dataset)
    others = profile.datasets[place + 1 :] + profile.datasets[:place]
    near = [name for name in others if category[name] == category[dataset]]
    far = [name for name in others if category[name] != category[dataset]]
    return (*near[:1], *far[:1])


def first_of_categories(profile: Profile) -> tuple[str, ...]:
    """Return the first data set of each category, in the profile's order."""
    first: dict[str, str] = {}
    for name in profile.datasets:
        first.setdefault(tasks.task(name, profile.data).category, name)
    return tuple(first.values())


# The registry of analyses: docs/extending.md adds to it


class AnalysisList(NamedTuple):
    """One kind of analysis.

    summary: one line for --help.   lists: (profile, folder of results, its name, experiment) -> what can be started.
    trained: the experiment whose adapters it reads, unless the profile names others.
    """

    summary: str
    lists: Callable[[Profile, object, str, str], list[Analysis]]
    trained: str = "benchmark"


ANALYSES: dict[str, AnalysisList] = {
    "uncertainty": AnalysisList("several draws of every test image", uncertainty),
    "out_of_distribution": AnalysisList("latents of images of other data sets", out_of_distribution),
    "latents": AnalysisList("maps of latents over an image's patches", latent_maps),
    "focus": AnalysisList("how well latents find the patches of an object", focus),
    "rivals": AnalysisList("one pass, draws, ensembles and Laplace", compared),
    "dropout_rivals": AnalysisList("Monte Carlo dropout of LoRA and VeRA", compared, "dropout"),
    "beta_rivals": AnalysisList("draws of PVeRA along β", compared, "beta_effects"),
}


def list_runs(profile: Profile, name: str, root) -> list[Job]:
    """List the runs of an experiment or an analysis that can be started now, with results below `root`."""
    choose("experiment", name, (*profile.experiments, *ANALYSES))
    if name in profile.experiments:
        return trainings(profile, root, name)
    kind = ANALYSES[name]
    return [
        run
        for trained in profile.analyses.get(name, [kind.trained])
        for run in kind.lists(profile, root, name, trained)
    ]
