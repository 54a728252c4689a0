"""The runs of each experiment that can be started now, from the profile and the results that are there.

A run that needs a value that a search has not found, or an analysis whose training has left no adapter, is not listed
yet: whoever executes runs lists again afterwards. Each function takes a profile and the folder of results.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from pvera import text_encoders
from pvera.adapters import METHODS
from pvera.data import suite, tasks
from pvera.errors import InputError
from pvera.files import plain
from pvera.study import analyses, results, uncertainty_baselines
from pvera.study.analyses import Analysis
from pvera.study.profiles import Profile
from pvera.study.protocol import PROTOCOLS, PUBLISHED, PUBLISHED_BETA, Protocol, one_at_a_time
from pvera.study.runs import Candidate, Run

#: The method to which a searched hyperparameter belongs.
SEARCHED = {"beta": "pvera", "alpha": "vera"}
#: The methods that the benchmark trains on all data sets before the others.
FIRST = ("linear", "vera", "pvera", "lora")
#: What a configuration says of weights and data.
OF_INPUTS = {"weights_sha256", "image_size", "max_length", "data_sha256"}


class Place(NamedTuple):
    """Where the results of a training lie."""

    experiment: str
    backbone: str
    dataset: str
    method: str
    seed: int


def places(profile: Profile, experiment: str, datasets: Sequence, seeds: Sequence, *methods: str) -> list[Place]:
    """Return the places on the first backbone, of those methods that the profile has."""
    known = [method for method in methods if method in profile.methods]
    return [
        Place(experiment, profile.backbones[0], dataset, method, seed)
        for dataset, seed, method in product(datasets, seeds, known)
    ]


# One training


def grid(profile: Profile, backbone: str, method: str, fixed: bool = False) -> list[dict]:
    """Return a method's grid, a dict per member: where it is `fixed`, or is on this backbone, the most chosen value."""
    options = profile.methods[method]
    if "grid" not in options:
        return [{}]
    ((name, values),) = options["grid"].items()
    if fixed or backbone in profile.fixed_grid:
        if "most_chosen" not in options:
            raise InputError(
                f"profile {profile.name!r}: methods.{method}.most_chosen: is missing, the value that {backbone} takes "
                "where the grid is not searched"
            )
        values = [options["most_chosen"]]
    return [{name: value} for value in values]


def training(
    profile: Profile, root, place: Place, members: list[dict], rules: Protocol | None = None, keep=False, **options
) -> Run:
    """Build one training.

    members: the hyperparameters by which they differ. rules: instead of the profile's protocol.
    keep: predictions and adapter are kept. options: hyperparameters of all members, beside the profile's.
    """
    method, rules = place.method, rules or PROTOCOLS[profile.protocol]
    of_profile = {name: value for name, value in profile.methods[method].items() if name not in ("grid", "most_chosen")}
    shared = of_profile | rules.adapters.get(method, {}) | options
    return Run(
        profile=profile.name,
        **place._asdict(),
        candidates=tuple(_candidate(profile, method, shared | member, member) for member in members),
        training=profile.training,
        protocol=rules,
        precision=profile.precision,
        data_root=profile.data,
        results_root=str(root),
        weights=profile.weights.get(place.backbone),
        deterministic=profile.deterministic,
        images=profile.images,
        pool=(profile.pool or text_encoders.pool(place.backbone)) if profile.text else "first",
        keep=keep,
    )


def _candidate(profile: Profile, method: str, settings: dict, member: dict) -> Candidate:
    settings = dict(settings)
    rate, beta = settings.pop("learning_rate", profile.learning_rate), settings.pop("beta", 0.0)
    try:
        built = METHODS[method](**settings)
    except TypeError as error:
        raise InputError(f"{METHODS[method].title}: {error}") from None
    # Linear probing has no adapter: the searched rate is the head's.
    return Candidate(built, rate, rate if method == "linear" else profile.learning_rate, beta, member)


def crossed(profile: Profile, values: list[dict], method: str, rates: bool, fixed: bool) -> tuple[list[dict], dict]:
    """Return the members that try each value on the first backbone, and what all of them share.

    rates: each value is tried with each of `search_rates`, where the profile has them. fixed: of the method's grid
    the most chosen value is taken.
    """
    if rates and profile.search_rates:
        values = [value | {"learning_rate": rate} for value in values for rate in profile.search_rates]
    of_grid = grid(profile, profile.backbones[0], method, fixed)
    if len(of_grid) == 1:
        return values, of_grid[0]
    return [value | entry for value in values for entry in of_grid], {}


def chosen_grid(run: Run) -> dict | None:
    """Return what the chosen member of a finished run differs by; None without result, or where all diverged."""
    record = results.read(run.path) if run.path.exists() else None
    return record["chosen"]["grid"] if record and record["chosen"] else None


def found(profile: Profile, root, search: str, place: Place) -> dict | None:
    """Return the hyperparameter that the experiment `search` settles for a training; None while it is not known.

    {} for a method that has none. PVeRA's β is the published one where there is one; a single value needs no search.
    """
    name = search.removeprefix("language_")
    values = getattr(profile, name)
    if place.method != SEARCHED[name]:
        return {}
    if name == "beta" and place.dataset in PUBLISHED_BETA:
        return {name: PUBLISHED_BETA[place.dataset]}
    if len(values) == 1:
        return {name: values[0]}
    searched = training(profile, root, place._replace(experiment=search, seed=profile.seeds[0]), [{}])
    chosen = chosen_grid(searched)
    return chosen and {name: chosen[name]}


def searching(
    profile: Profile, root, place: Place, search: str, seeds: list[int], changes: dict, folder: str | None = None
) -> list[Run]:
    """Return the training that searches its grid, or with `search_once` takes what the first of `seeds` chose.

    [] while a value is not known, or where that first seed has a result of another configuration.
    folder: the experiment of that first seed, if not this one. changes: hyperparameters.
    """
    values = {} if "beta" in changes else found(profile, root, search, place)
    if values is None:
        return []
    members = grid(profile, place.backbone, place.method)
    run = training(profile, root, place, members, keep=True, **values | changes)
    if not profile.search_once or len(members) == 1 or place.seed == seeds[0]:
        return [run]
    first = replace(run, seed=seeds[0], experiment=folder or place.experiment)
    chosen = chosen_grid(first)
    if chosen is None:
        return []
    config = {key: value for key, value in results.read(first.path)["config"].items() if key not in OF_INPUTS}
    if results.config_hash(config) != results.config_hash(first.settings()):
        return []
    return [replace(run, candidates=tuple(each for each in run.candidates if plain(each.grid) == chosen))]


# Trainings


def benchmark(profile: Profile, root, experiment: str = "benchmark", search: str = "beta") -> list[Run]:
    """List every method on every data set with every seed (Tables 1, 4 and 6 to 8, and the language table).

    Seed by seed, and the methods of the first figure before the others: tables can be made early.
    """
    first, others = [n for n in FIRST if n in profile.methods], [n for n in profile.methods if n not in FIRST]
    listed = []
    for backbone, seed, methods in product(profile.backbones, profile.seeds, (first, others)):
        for dataset, method in product(profile.datasets, methods):
            place = Place(experiment, backbone, dataset, method, seed)
            listed += searching(profile, root, place, search, profile.seeds, {})
    return listed


def search(profile: Profile, root, experiment: str) -> list[Run]:
    """List the runs that choose a hyperparameter on the validation loss, with the first seed, one per data set.

    PVeRA's β (Section 3.2), where the data set has no published value; VeRA's α, where the profile has an equal budget.
    A single value needs no search. InputError where the profile has no values of β to choose from.
    """
    name = experiment.removeprefix("language_")
    method, values = SEARCHED[name], getattr(profile, name)
    datasets = [dataset for dataset in profile.datasets if name != "beta" or dataset not in PUBLISHED_BETA]
    if method not in profile.methods or not datasets or (name == "alpha" and not values):
        return []
    if not values:
        raise InputError(f"profile {profile.name!r}: {name}: is missing, the values to search for {datasets[0]}")
    if len(values) == 1:
        return []
    members, shared = crossed(profile, [{name: value} for value in values], method, rates=True, fixed=True)
    return [
        training(profile, root, Place(experiment, backbone, dataset, method, profile.seeds[0]), members, **shared)
        for backbone, dataset in product(profile.backbones, datasets)
    ]


#: What `components` trains, by name: the method, and the values that differ from the benchmark's.
COMPONENTS: dict[str, tuple[str, dict]] = {
    "vera": ("vera", {}),
    "no_noise": ("pvera", {"noise": False, "beta": 0.0}),
    "no_kl": ("pvera", {"beta": 0.0}),
    "pvera": ("pvera", {}),
}


def components(profile: Profile, root) -> list[Run]:
    """List VeRA, PVeRA without noise and KL term, without the KL term, and PVeRA; each below "components_<name>".

    The benchmark trains the first and the last with the profile's seeds; these are further ones.
    """
    listed = []
    for name, (method, changes) in COMPONENTS.items():
        seeds = profile.component_seeds if changes else profile.further_seeds
        searchers, folder = (seeds, None) if changes else (profile.seeds, "benchmark")
        for place in places(profile, f"components_{name}", profile.datasets, seeds, method):
            listed += searching(profile, root, place, "beta", searchers, changes, folder)
    return listed


def noise(profile: Profile, root) -> list[Run]:
    """List PVeRA with σ fixed and β = 0, and VeRA with dropout in its latent; each below "noise_<name>".

    The seeds are those of PVeRA's components, with which they are compared.
    """
    if not profile.noise:
        return []
    variants = [
        (f"dropout_{share:g}", "vera", {"dropout": share, "dropped": "latent"}) for share in profile.noise.dropout
    ]
    for sigma in (profile.noise.sigma, *profile.noise.sizes):
        variants.append((f"sigma_{sigma:g}", "pvera", {"sigma": sigma, "beta": 0.0}))
    seeds, listed = profile.component_seeds, []
    for name, method, changes in variants:
        datasets = profile.datasets if changes.get("sigma") == profile.noise.sigma else first_of_categories(profile)
        for place in places(profile, f"noise_{name}", datasets, seeds, method):
            listed += searching(profile, root, place, "beta", seeds, changes)
    return listed


def published(profile: Profile, root) -> list[Run]:
    """List the trainings under the published protocol; each seed searches its own grid, as there."""
    if not profile.published:
        return []
    everywhere, beta = profile.with_(fixed_grid=[]), {"pvera": {"beta": profile.published.beta}}
    listed = []
    for place in places(profile, "published", profile.datasets, profile.seeds, *profile.published.methods):
        members = grid(everywhere, place.backbone, place.method)
        listed.append(training(profile, root, place, members, PUBLISHED, keep=True, **beta.get(place.method, {})))
    return listed


def equal_budget(profile: Profile, root) -> list[Run]:
    """List VeRA with the α that `search` chose, where the profile has values of α."""
    seeds = profile.component_seeds if profile.alpha else []
    listed = []
    for place in places(profile, "equal_budget", profile.datasets, seeds, "vera"):
        listed += searching(profile, root, place, "alpha", seeds, {})
    return listed


def ablation(profile: Profile, root, experiment: str, hyperparameter: str) -> list[Run]:
    """List PVeRA with several ranks (Table 2), or on several combinations of query, key and value (Table 3)."""
    ablations = profile.ablations
    if not ablations or "pvera" not in profile.methods:
        return []
    values, searches = [{hyperparameter: value} for value in getattr(ablations, hyperparameter)], ablations.search
    members, shared = crossed(profile, values, "pvera", searches, fixed=not searches or bool(profile.search_rates))
    datasets = [dataset for dataset in ablations.datasets if dataset in profile.datasets]
    seeds = [seed for seed in profile.seeds if seed in (ablations.seeds or profile.seeds)]
    listed = []
    for place in places(profile, experiment, datasets, seeds, "pvera"):
        beta = found(profile, root, "beta", place)
        if beta is not None:
            listed.append(training(profile, root, place, members, **shared | beta))
    return listed


def protocol_effects(profile: Profile, root) -> list[Run]:
    """List both protocols, and the corrected one with one difference at a time, each below "protocol_<name>".

    A difference that concerns one method is measured on that method, one that concerns the grid where every seed
    searches it.
    """
    effects, listed = profile.effects, []
    if not effects:
        return []
    everywhere = profile.with_(fixed_grid=[])
    datasets = [dataset for dataset in effects.datasets if dataset in profile.datasets]
    seeds = [seed for seed in effects.seeds if seed in profile.seeds]
    for seed, (name, variant) in product(seeds, one_at_a_time().items()):
        methods = effects.grids if variant.grid else effects.methods
        concerned = [method for method in methods if variant.method in (None, method)]
        for place in places(profile, f"protocol_{name}", datasets, [seed], *concerned):
            beta = found(profile, root, "beta", place)
            if beta is not None:
                searched = everywhere if variant.grid else profile
                members = grid(searched, place.backbone, place.method, fixed=not variant.grid)
                listed.append(training(profile, root, place, members, variant.protocol, **beta))
    return listed


def dropout(profile: Profile, root) -> list[Run]:
    """List LoRA and VeRA with dropout, whose masks are drawn again at inference; with the grid's most chosen value."""
    if not profile.rivals:
        return []
    methods = [name for name in ("lora", "vera") if name in profile.rivals.methods]
    of_all = places(profile, "dropout", profile.datasets, profile.seeds, *methods)
    return [_fixed(profile, root, place, dropout=profile.rivals.dropout) for place in of_all]


def beta_effects(profile: Profile, root) -> list[Run]:
    """List PVeRA along β on the first data set of each category; each value below "beta_effects_<β>"."""
    listed = []
    for beta in profile.rivals.betas if profile.rivals else ():
        of_beta = places(profile, f"beta_effects_{beta:g}", first_of_categories(profile), profile.seeds, "pvera")
        listed += [_fixed(profile, root, place, beta=beta) for place in of_beta]
    return listed


def _fixed(profile: Profile, root, place: Place, **options) -> Run:
    """Return a training with the grid's most chosen value, and these hyperparameters."""
    members = grid(profile, place.backbone, place.method, fixed=True)
    return training(profile, root, place, members, keep=True, **options)


# Analyses of adapters


def on_first_backbone(profile: Profile, root, trainings: Callable, methods: Sequence[str]) -> list[Run]:
    """Return the trainings of these methods on the first backbone, finished or not."""
    runs = trainings(profile.with_(backbones=profile.backbones[:1]), root)
    return [run for run in runs if run.method in methods]


def adapters(profile: Profile, root, trainings: Callable, *methods: str) -> list[Run]:
    """Return the trainings of these methods on the first backbone that have left an adapter."""
    return [run for run in on_first_backbone(profile, root, trainings, methods) if chosen_grid(run) is not None]


def uncertainty(profile: Profile, root) -> list[Analysis]:
    """List Monte Carlo inference with every PVeRA adapter (Section 4.3, appendix C)."""
    settings = profile.uncertainty.model_dump()
    return [
        Analysis.of(run, "uncertainty", analyses.uncertainties, **settings)
        for run in adapters(profile, root, benchmark, "pvera")
    ]


def out_of_distribution(profile: Profile, root) -> list[Analysis]:
    """List the adapters of the profile's data sets for this, each on all of these (Section 4.4).

    By default they are the first of each category: the paper has three, and does not name them.
    """
    tested = tuple(profile.out_of_distribution) or first_of_categories(profile)
    return [
        Analysis.of(run, "out_of_distribution", analyses.out_of_distribution, tested)
        for run in adapters(profile, root, benchmark, "vera", "pvera")
        if run.dataset in tested
    ]


def latent_maps(profile: Profile, root) -> list[Analysis]:
    """List latent maps of five images and four draws on the first data set with the first seed (Section 4.4).

    The first data set of the paper's profile is the paper's.
    """
    return [
        Analysis.of(run, "latents", analyses.latent_maps, shown=5, draws=4)
        for run in adapters(profile, root, benchmark, "vera", "pvera")
        if run.dataset == profile.datasets[0] and run.seed == profile.seeds[0]
    ]


def focus(profile: Profile, root) -> list[Analysis]:
    """List the adapters of the demonstration suite's tasks with objects, whose pixels it knows (Section 4.4)."""
    return [
        Analysis.of(run, "focus", analyses.focus)
        for run in adapters(profile, root, benchmark, "vera", "pvera")
        if run.dataset in suite.WITH_OBJECTS
    ]


def compared(profile: Profile, root, experiment: str, trainings: Callable, trained: str) -> list[Analysis]:
    """List an analysis of all seeds' adapters per data set, method and variant of finished `trainings`.

    experiment, trained: the folders of analyses and trainings, without the variant.
    """
    if not profile.rivals:
        return []
    settings = profile.rivals.model_dump(include={"draws", "shifts", "shifted_images", "shift_draws"})
    along_beta = trainings is beta_effects
    if along_beta:
        settings |= {"shifts": False, "draws": [k for k in settings["draws"] if k <= settings["shift_draws"]]}
    seeds_of: dict[tuple, list[Run]] = {}
    for run in on_first_backbone(profile, root, trainings, profile.rivals.methods):
        seeds_of.setdefault((run.experiment, run.dataset, run.method), []).append(run)
    listed = []
    for (folder, dataset, _), runs in seeds_of.items():
        with_adapters = [run for run in runs if chosen_grid(run) is not None]
        if with_adapters and all(run.path.exists() for run in runs):
            name = experiment + folder.removeprefix(trained)
            tested = (dataset, *(() if along_beta else out_of(profile, dataset)))
            listed.append(Analysis.of(with_adapters, name, uncertainty_baselines.compare, tested, **settings))
    return listed


def out_of(profile: Profile, dataset: str) -> tuple[str, ...]:
    """Return the data sets that lie out of the distribution of `dataset`: see `profiles.Baselines.out`."""
    if profile.rivals.out is not None:
        return tuple(profile.rivals.out.get(dataset, ()))
    place = profile.datasets.index(dataset)
    category = {name: tasks.task(name, profile.data).category for name in profile.datasets}
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
