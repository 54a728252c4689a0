"""The runs of each experiment that can be started now, from the profile and the results that are there.

A run that needs a value that a search has not found, or an analysis whose training has left no adapter, is not listed
yet: whoever executes runs lists again afterwards. Each list takes a profile, the folder of results, and the name of its
experiment.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path

from pvera import text_encoders
from pvera.adapters import METHODS
from pvera.data import suite, tasks
from pvera.errors import InputError
from pvera.study import analyses, results, uncertainty_baselines
from pvera.study.analyses import Analysis
from pvera.study.profiles import Profile
from pvera.study.protocol import PROTOCOLS, PUBLISHED, PUBLISHED_BETA, Protocol, one_at_a_time
from pvera.study.runs import Candidate, Job, Run
from pvera.study.validation import choose

#: The method to which a searched hyperparameter belongs.
SEARCHED = {"beta": "pvera", "alpha": "vera"}
#: The methods that the benchmark trains on all data sets before the others.
FIRST = ("linear", "vera", "pvera", "lora")


# One method's grid


def grid(profile: Profile, backbone: str, method: str) -> list[dict]:
    """Return the members of a method's grid by what differs; where the grid is fixed, the most chosen value alone."""
    options = profile.methods[method]
    if "grid" not in options:
        return [{}]
    if backbone in profile.fixed_grid:
        return [most_chosen(profile, method)]
    ((name, values),) = options["grid"].items()
    return [{name: value} for value in values]


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


def candidate(profile: Profile, method: str, member: dict, rules: Protocol, **options) -> Candidate:
    """Build one member of a method's grid.

    member: the hyperparameters by which it differs from the others. options: those of all, beside the profile's.
    """
    of_profile = {name: value for name, value in profile.methods[method].items() if name not in ("grid", "most_chosen")}
    settings = of_profile | rules.adapters.get(method, {}) | options | member
    rate, beta = settings.pop("learning_rate", profile.learning_rate), settings.pop("beta", 0.0)
    try:
        built = METHODS[method](**settings)
    except TypeError as error:
        raise InputError(f"{METHODS[method].title}: {error}") from None
    # Linear probing has no adapter: the searched rate is the head's.
    return Candidate(built, rate, rate if method == "linear" else profile.learning_rate, beta, member)


# Trainings of an experiment


def trainings(
    profile: Profile,
    root,
    experiment: str,
    methods: Sequence[str],
    *,
    datasets: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    members: list[dict] | None = None,
    rules: Protocol | None = None,
    keep: bool = True,
    search: str | None = None,
    **options,
) -> list[Run]:
    """List the trainings on the first backbone that can start, of those methods that the profile has.

    datasets, seeds: by default the profile's; with `search_once` the first of `seeds` searches a grid, and the others
    take what it chose. members: by default those of the grid. rules: by default the profile's protocol.
    keep: predictions and adapter are kept beside the record. search: the experiment that searches β or α; by default
    there is nothing to search, or it stands in `options`: hyperparameters of all members, beside the profile's.
    """
    datasets, seeds = profile.datasets if datasets is None else datasets, profile.seeds if seeds is None else seeds
    known, backbone = [method for method in methods if method in profile.methods], profile.backbones[0]
    rules, listed = rules or PROTOCOLS[profile.protocol], []
    for dataset, seed, method in product(datasets, seeds, known):
        value = found(profile, root, search, dataset, method) if search else {}
        of_grid = members or grid(profile, backbone, method)
        if profile.search_once and len(of_grid) > 1 and seed != seeds[0]:
            first = results.run_path(root, profile.name, experiment, backbone, dataset, method, seeds[0])
            chosen = chosen_grid(first)
            of_grid = [member for member in of_grid if member == chosen]
        if value is None or not of_grid:
            continue
        run = Run(
            profile=profile.name,
            experiment=experiment,
            backbone=backbone,
            dataset=dataset,
            method=method,
            seed=seed,
            candidates=tuple(candidate(profile, method, member, rules, **options | value) for member in of_grid),
            training=profile.training,
            protocol=rules,
            precision=profile.precision,
            data_root=profile.data,
            results_root=str(root),
            weights=profile.weights.get(backbone),
            deterministic=profile.deterministic,
            images=profile.images,
            pool=text_encoders.pool(backbone) if profile.text else "first",
            keep=keep,
        )
        listed.append(run)
    return listed


def chosen_grid(path: Path) -> dict | None:
    """Return what the chosen member of a finished run differs by; None without result, or where all diverged."""
    record = results.read(path) if path.exists() else None
    return record["chosen"]["grid"] if record and record["chosen"] else None


def found(profile: Profile, root, search: str, dataset: str, method: str) -> dict | None:
    """Return the hyperparameter that the experiment `search` settles for a training; None while it is not known.

    {} for a method that has none. PVeRA's β is the published one where there is one; a single value needs no search.
    """
    name = search.removeprefix("language_")
    values = getattr(profile, name)
    if method != SEARCHED[name]:
        return {}
    if name == "beta" and dataset in PUBLISHED_BETA:
        return {name: PUBLISHED_BETA[dataset]}
    if len(values) == 1:
        return {name: values[0]}
    place = results.run_path(root, profile.name, search, profile.backbones[0], dataset, method, profile.seeds[0])
    chosen = chosen_grid(place)
    return chosen and {name: chosen[name]}


def benchmark(profile: Profile, root, name: str = "benchmark") -> list[Run]:
    """List every method on every data set with every seed (Tables 1, 4 and 6 to 8, and the language table).

    Seed by seed, and the methods of the first figure before the others: tables can be made early.
    """
    methods, listed = [*FIRST, *(method for method in profile.methods if method not in FIRST)], []
    search = "language_beta" if profile.text else "beta"
    for backbone in profile.backbones:
        runs = trainings(profile.with_(backbones=[backbone]), root, name, methods, search=search)
        listed += sorted(runs, key=lambda run: (profile.seeds.index(run.seed), run.method not in FIRST))
    return listed


def full_sets(profile: Profile, root, name: str) -> list[Run]:
    """List the text tasks that train on all their texts, with every seed (not in the paper)."""
    listed = []
    for part in profile.full:
        listed += benchmark(profile.with_(methods=part.methods, datasets=part.datasets), root, name)
    chosen = [run for run in listed if run.dataset in profile.datasets and run.method in profile.methods]
    return [replace(run, images=None) for run in chosen]


def searches(profile: Profile, root, name: str) -> list[Run]:
    """List the runs that choose a hyperparameter on the validation loss, with the first seed, one per data set.

    PVeRA's β (Section 3.2), where the data set has no published value; VeRA's α, where the profile has an equal budget.
    A single value needs no search. InputError where the profile has no values of β to choose from.
    """
    hyperparameter = name.removeprefix("language_")
    method, values, datasets = SEARCHED[hyperparameter], getattr(profile, hyperparameter), profile.datasets
    if hyperparameter == "beta":
        datasets = [name for name in datasets if name not in PUBLISHED_BETA]
        if method in profile.methods and datasets and not values:
            raise InputError(f"profile {profile.name!r}: beta: is missing, the values to search for {datasets[0]}")
    if method not in profile.methods or len(values) < 2:
        return []
    rates = [{"learning_rate": rate} for rate in profile.search_rates] or [{}]
    members, listed = [{hyperparameter: value} | rate for value, rate in product(values, rates)], []
    how = {"datasets": datasets, "seeds": profile.seeds[:1], "members": members, "keep": False}
    for backbone in profile.backbones:
        of_one = profile.with_(backbones=[backbone])
        listed += trainings(of_one, root, name, [method], **how, **most_chosen(profile, method))
    return listed


#: What `components` trains, by name: the method, and the values that differ from the benchmark's.
COMPONENTS: dict[str, tuple[str, dict]] = {
    "vera": ("vera", {}),
    "no_noise": ("pvera", {"noise": False, "beta": 0.0}),
    "no_kl": ("pvera", {"beta": 0.0}),
    "pvera": ("pvera", {}),
}


def components(profile: Profile, root, name: str) -> list[Run]:
    """List VeRA, PVeRA without noise and KL term, without the KL term, and PVeRA; each below "components_<name>".

    The benchmark trains the first and the last with the profile's seeds.
    """
    listed, further = [], [seed for seed in profile.component_seeds if seed not in profile.seeds]
    for component, (method, changes) in COMPONENTS.items():
        folder = f"{name}_{component}"
        if changes:
            listed += trainings(profile, root, folder, [method], seeds=profile.component_seeds, keep=False, **changes)
            continue
        seeds = [profile.seeds[0], *further]  # the first has searched the grid for the others
        runs = trainings(profile, root, "benchmark", [method], seeds=seeds, search="beta", keep=False)
        listed += [replace(run, experiment=folder) for run in runs if run.seed in further]
    return listed


def noise(profile: Profile, root, name: str) -> list[Run]:
    """List PVeRA with σ fixed and β = 0, below "noise_sigma_<σ>", with the seeds of PVeRA's components; other sizes,
    and VeRA with part of its latent dropped ("noise_dropout_<share>"), on one data set of each category.

    There the adapters of the first σ are kept for `uncertainty`, those of the profile's seeds.
    """
    if not profile.noise:
        return []
    few, sigma = first_of_categories(profile), profile.noise.sigma
    fixed = partial(trainings, profile, root, methods=["pvera"], beta=0.0, keep=False)
    of_all = fixed(experiment=f"{name}_sigma_{sigma:g}", sigma=sigma, seeds=profile.component_seeds)
    listed = [replace(run, keep=run.dataset in few and run.seed in profile.seeds) for run in of_all]
    for sigma in profile.noise.sizes:
        listed += fixed(experiment=f"{name}_sigma_{sigma:g}", datasets=few, sigma=sigma)
    for share in profile.noise.dropout:
        dropped = {"datasets": few, "dropout": share, "dropout_on": "latent", "keep": False}
        listed += trainings(profile, root, f"{name}_dropout_{share:g}", ["vera"], **dropped)
    return listed


def published(profile: Profile, root, name: str) -> list[Run]:
    """List the trainings under the published protocol; each seed searches its own grid, as there."""
    if not profile.published:
        return []
    everywhere, listed = profile.with_(fixed_grid=[], search_once=False), []
    for method in profile.published.methods:
        beta = {"beta": profile.published.beta} if method == "pvera" else {}
        how = {"seeds": profile.published.seeds, "rules": PUBLISHED, "keep": False}
        listed += trainings(everywhere, root, name, [method], **how, **beta)
    return listed


def equal_budget(profile: Profile, root, name: str) -> list[Run]:
    """List VeRA with the α that was searched, where the profile has values of α."""
    seeds = profile.component_seeds if profile.alpha else []
    return trainings(profile, root, name, ["vera"], seeds=seeds, search="alpha", keep=False)


def ablation(profile: Profile, root, name: str) -> list[Run]:
    """List PVeRA with several ranks (Table 2), or on several combinations of query, key and value (Table 3)."""
    ablations = profile.ablations
    if not ablations or "pvera" not in profile.methods:
        return []
    hyperparameter = {"rank": "rank", "position": "targets"}[name]
    if ablations.search:
        rates, fixed = grid(profile, profile.backbones[0], "pvera"), {}
    else:
        rates, fixed = [{}], most_chosen(profile, "pvera")
    members = [{hyperparameter: value} | rate for value, rate in product(getattr(ablations, hyperparameter), rates)]
    datasets = [dataset for dataset in ablations.datasets if dataset in profile.datasets]
    how = {"datasets": datasets, "members": members, "keep": False, "search": "beta"}
    return trainings(profile.with_(search_once=False), root, name, ["pvera"], **how, **fixed)


def protocol_effects(profile: Profile, root, name: str) -> list[Run]:
    """List both protocols, and the corrected one with one difference at a time, each below "protocol_<name>".

    A difference that concerns one method is measured on that method, one that concerns the grid where every seed
    searches it.
    """
    effects, listed = profile.effects, []
    if not effects:
        return []
    everywhere = profile.with_(fixed_grid=[], search_once=False)
    fixed = profile.with_(fixed_grid=profile.backbones)
    how = {"datasets": [name for name in effects.datasets if name in profile.datasets], "keep": False, "search": "beta"}
    seeds = [seed for seed in effects.seeds if seed in profile.seeds]
    for seed, (switch, variant) in product(seeds, one_at_a_time().items()):
        searched, methods = (everywhere, effects.grids) if variant.grid else (fixed, effects.methods)
        concerned = [method for method in methods if variant.method in (None, method)]
        place = f"{name}_{switch}"
        listed += trainings(searched, root, place, concerned, seeds=[seed], rules=variant.protocol, **how)
    return listed


def dropout(profile: Profile, root, name: str) -> list[Run]:
    """List LoRA and VeRA with dropout, whose masks are drawn again at inference; with the grid's most chosen value."""
    if not profile.rivals:
        return []
    fixed = profile.with_(fixed_grid=profile.backbones)
    return trainings(fixed, root, name, ["lora", "vera"], datasets=subset(profile), dropout=0.1)


def beta_effects(profile: Profile, root, name: str) -> list[Run]:
    """List PVeRA along β on the first data set of each category; each value below "beta_effects_<β>"."""
    fixed, few, listed = profile.with_(fixed_grid=profile.backbones), first_of_categories(profile), []
    for beta in profile.rivals.betas if profile.rivals else ():
        listed += trainings(fixed, root, f"{name}_{beta:g}", ["pvera"], datasets=few, beta=beta)
    return listed


# Analyses of adapters


def adapters(profile: Profile, root, *methods: str) -> list[Run]:
    """Return the benchmark's trainings of these methods on the first backbone that have left an adapter."""
    runs = benchmark(profile.with_(backbones=profile.backbones[:1]), root)
    return [run for run in runs if run.method in methods and chosen_grid(run.path) is not None]


def uncertainty(profile: Profile, root, name: str) -> list[Analysis]:
    """List Monte Carlo inference with every PVeRA adapter (Section 4.3, appendix C).

    Those with noise of fixed size stand below "uncertainty_noise_sigma_<σ>".
    """
    # The recorded configurations hold two settings of further draws, which are no longer made.
    settings = {"draws": sorted(profile.draws), "truth_images": 64, "truth_draws": 256}
    analysed = partial(Analysis.of, function=analyses.uncertainties, **settings)
    listed = [analysed(run, name) for run in adapters(profile, root, "pvera")]
    for run in noise(profile, root, "noise"):
        if run.keep and chosen_grid(run.path) is not None:
            listed.append(analysed(run, f"{name}_{run.experiment}"))
    return listed


def out_of_distribution(profile: Profile, root, name: str) -> list[Analysis]:
    """List the adapters of the profile's data sets for this, each on all of these (Section 4.4).

    By default they are the first of each category: the paper has three, and does not name them.
    """
    tested = tuple(profile.out_of_distribution) or first_of_categories(profile)
    return [
        Analysis.of(run, name, analyses.out_of_distribution, tested)
        for run in adapters(profile, root, "vera", "pvera")
        if run.dataset in tested
    ]


def latent_maps(profile: Profile, root, name: str) -> list[Analysis]:
    """List latent maps of five images and four draws on the first data set with the first seed (Section 4.4).

    The first data set of the paper's profile is the paper's.
    """
    return [
        Analysis.of(run, name, analyses.latent_maps, shown=5, draws=4)
        for run in adapters(profile, root, "vera", "pvera")
        if run.dataset == profile.datasets[0] and run.seed == profile.seeds[0]
    ]


def focus(profile: Profile, root, name: str) -> list[Analysis]:
    """List the adapters of the demonstration suite's tasks with objects, whose pixels it knows (Section 4.4)."""
    return [
        Analysis.of(run, name, analyses.focus)
        for run in adapters(profile, root, "vera", "pvera")
        if run.dataset in suite.WITH_OBJECTS
    ]


#: The trainings whose adapters a comparison of uncertainties reads.
COMPARED = {
    "rivals": ("benchmark", benchmark),
    "dropout_rivals": ("dropout", dropout),
    "beta_rivals": ("beta_effects", beta_effects),
}


def compared(profile: Profile, root, name: str) -> list[Analysis]:
    """List an analysis of all seeds' adapters per data set, method and variant, where all trainings have ended.

    Along β they are given the test images alone; otherwise corrupted ones too, and those of two other data sets.
    """
    if not profile.rivals:
        return []
    profile = profile.with_(backbones=profile.backbones[:1], datasets=subset(profile))
    settings = {"shifts": True} | profile.rivals.model_dump(exclude={"betas"})
    along_beta = name == "beta_rivals"
    if along_beta:
        settings |= {"shifts": False, "draws": [k for k in settings["draws"] if k <= settings["shift_draws"]]}
    trained, lists = COMPARED[name]
    seeds_of: dict[tuple, list[Run]] = {}
    for run in lists(profile, root, trained):
        if run.method in uncertainty_baselines.METHODS:
            seeds_of.setdefault((run.experiment, run.dataset, run.method), []).append(run)
    listed = []
    for (folder, dataset, _), runs in seeds_of.items():
        with_adapters = [run for run in runs if chosen_grid(run.path) is not None]
        if with_adapters and all(run.path.exists() for run in runs):
            tested = (dataset,) if along_beta else (dataset, *near_and_far(profile, dataset))
            place, function = name + folder.removeprefix(trained), uncertainty_baselines.compare
            listed.append(Analysis.of(with_adapters, place, function, tested, **settings))
    return listed


def near_and_far(profile: Profile, dataset: str) -> tuple[str, ...]:
    """Return the next data set of the same category, and the next one of another, as out of distribution."""
    category = {name: tasks.task(name, profile.data).category for name in profile.datasets}
    place = profile.datasets.index(dataset)
    others = profile.datasets[place + 1 :] + profile.datasets[:place]
    near = [name for name in others if category[name] == category[dataset]]
    far = [name for name in others if category[name] != category[dataset]]
    return (*near[:1], *far[:1])


def subset(profile: Profile) -> list[str]:
    """Return the data sets of the experiments that take long, out of the profile's."""
    return [name for name in profile.subset or profile.datasets if name in profile.datasets]


def first_of_categories(profile: Profile) -> tuple[str, ...]:
    """Return the first data set of each category, in the profile's order."""
    first: dict[str, str] = {}
    for name in profile.datasets:
        first.setdefault(tasks.task(name, profile.data).category, name)
    return tuple(first.values())


# The registry: scripts, workers and the report read it; docs/extending.md adds to it


@dataclass(frozen=True)
class Experiment:
    """One experiment.

    name: the folder of its results; variants of one experiment are "<name>_<variant>".
    title, about: a short name for tables, and one line for a script's --help.
    lists: (profile, folder of results, name) -> runs that can be started.
    script: in experiments/, starts it: train, train_language (its runs read text), or analyse (they read adapters).
    """

    name: str
    title: str
    about: str
    lists: Callable[[Profile, object, str], list]
    script: str = "train"


ENTRIES = [
    Experiment("beta", "Search of β", "PVeRA's β where the paper gives none; the others need it", searches),
    Experiment("alpha", "Search of α", "VeRA's α, so that it chooses from as much as PVeRA", searches),
    Experiment("benchmark", "Benchmark", "every method on every data set with every seed", benchmark),
    Experiment("components", "Components", "PVeRA without its noise or KL term, and more seeds", components),
    Experiment("noise", "Noise of fixed size", "PVeRA with noise of fixed size", noise),
    Experiment("published", "Published protocol", "the published protocol on every data set", published),
    Experiment("equal_budget", "Equal budget", "VeRA with an α that was searched as PVeRA's β", equal_budget),
    Experiment("rank", "Ablation of the rank", "PVeRA with several ranks", ablation),
    Experiment("position", "Ablation of positions", "PVeRA on several of query, key and value", ablation),
    Experiment("protocol", "Differences of the protocols", "each difference alone", protocol_effects),
    Experiment("uncertainty", "Monte Carlo inference", "several draws of every test image", uncertainty, "analyse"),
    Experiment("out_of_distribution", "Out of distribution", "latents of images", out_of_distribution, "analyse"),
    Experiment("latents", "Latents", "maps of latents over an image's patches", latent_maps, "analyse"),
    Experiment("focus", "Focus", "how well latents find the patches of an object", focus, "analyse"),
    Experiment("dropout", "Dropout", "LoRA and VeRA with dropout, for Monte Carlo dropout", dropout),
    Experiment("beta_effects", "Effects of β", "PVeRA along β", beta_effects),
    Experiment("rivals", "Rivals", "one pass, draws, ensembles and Laplace", compared, "analyse"),
    Experiment("dropout_rivals", "Rivals, dropout", "Monte Carlo dropout of LoRA and VeRA", compared, "analyse"),
    Experiment("beta_rivals", "Rivals along β", "draws of PVeRA along β", compared, "analyse"),
    Experiment("language_beta", "Search of β, text", "PVeRA's β", searches, "train_language"),
    Experiment("language", "Text", "every method on every task with every seed", benchmark, "train_language"),
    Experiment("full_sets", "Text, full sets", "tasks on all their texts", full_sets, "train_language"),
]
EXPERIMENTS: dict[str, Experiment] = {entry.name: entry for entry in ENTRIES}


def of_script(script: str) -> tuple[str, ...]:
    """Return the names of the experiments that experiments/`script`.py starts, in their order."""
    return tuple(name for name, experiment in EXPERIMENTS.items() if experiment.script == script)


def of_profile(profile: Profile, script: str) -> list[str]:
    """Return the names of the experiments that a script runs for a profile where no others are asked for."""
    return [name for name in of_script(script) if name in (profile.experiments or EXPERIMENTS)]


def named(folder: str) -> Experiment:
    """Return the experiment whose results lie in `folder`, a variant's as well. InputError for none."""
    names = [name for name in EXPERIMENTS if folder == name or folder.startswith(f"{name}_")]
    if names:
        return EXPERIMENTS[max(names, key=len)]
    raise InputError(f"there is no experiment {folder!r}; choose from {', '.join(EXPERIMENTS)}")


def list_runs(profile: Profile, experiment: str, root) -> list[Job]:
    """List the runs of an experiment that can be started now, with results below `root`."""
    choose("experiment", experiment, EXPERIMENTS)
    entry = EXPERIMENTS[experiment]
    if (entry.script == "train_language") != profile.text:
        kinds = ("images", "texts") if profile.text else ("texts", "images")
        raise InputError(f"{experiment} reads {kinds[0]}, this profile describes {kinds[1]}")
    return entry.lists(profile, root, experiment)
