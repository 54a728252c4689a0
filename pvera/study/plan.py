"""The runs of each experiment that can be started now, from the profile and the results that are there.

A run that needs a value that a search has not found, or an analysis whose training has left no adapter, is not listed
yet: whoever executes runs lists again afterwards. Each function takes a profile and the folder of results.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import NamedTuple

from pvera import text_encoders
from pvera.adapters import METHODS
from pvera.data import tasks
from pvera.errors import InputError
from pvera.files import plain
from pvera.study import analyses, results, rivals
from pvera.study.analyses import Analysis
from pvera.study.profiles import Profile
from pvera.study.protocol import PUBLISHED_BETA, Protocol, one_at_a_time, protocol
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


# One training


def grid(profile: Profile, backbone: str, method: str, fixed: bool = False) -> list[dict]:
    """Return a method's grid, a dict per member: where it is `fixed`, or is on this backbone, the most chosen value."""
    options = profile.methods[method]
    values = options.get("grid", {})
    if values and (fixed or backbone in profile.fixed_grid):
        if "most_chosen" not in options:
            raise InputError(
                f"profile {profile.name!r}: methods.{method}.most_chosen: is missing, the value that {backbone} takes "
                "where the grid is not searched"
            )
        values = {name: [options["most_chosen"]] for name in values}
    return [{name: value} for name, choices in values.items() for value in choices] or [{}]


def training(
    profile: Profile, root, place: Place, members: list[dict], rules: Protocol | None = None, keep=False, **options
) -> Run:
    """Build one training.

    members: the hyperparameters by which they differ. rules: instead of the profile's protocol.
    keep: predictions and adapter are kept. options: hyperparameters of all members, beside the profile's.
    """
    method, rules = place.method, rules or protocol(profile.protocol)
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


def crossed(values: list[dict], of_grid: list[dict]) -> tuple[list[dict], dict]:
    """Return the members that try each value with each entry of a grid, and what all share if it has one entry."""
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


def of_first_seed(run: Run, first: Run) -> Run | None:
    """Return `run` with the one member that the search of another seed, `first`, chose.

    None while there is no such result, or where it is of another configuration.
    """
    grid = chosen_grid(first)
    if grid is None:
        return None
    config = {key: value for key, value in results.read(first.path)["config"].items() if key not in OF_INPUTS}
    if results.config_hash(config) != results.config_hash(first.settings()):
        return None
    chosen = tuple(candidate for candidate in run.candidates if plain(candidate.grid) == grid)
    return replace(run, candidates=chosen)


def searching(
    profile: Profile, root, place: Place, search: str, seeds: list[int], changes: dict, folder: str | None = None
) -> list[Run]:
    """Return the training that searches its grid, or with `search_once` what the first of `seeds` chose; [] while that
    is not known. folder: the experiment of that first seed, if not this one. changes: hyperparameters."""
    values = {} if "beta" in changes else found(profile, root, search, place)
    if values is None:
        return []
    members = grid(profile, place.backbone, place.method)
    run = training(profile, root, place, members, keep=True, **values | changes)
    if profile.search_once and len(members) > 1 and place.seed != seeds[0]:
        run = of_first_seed(run, replace(run, seed=seeds[0], experiment=folder or place.experiment))
    return [run] if run else []


# Trainings


def benchmark(profile: Profile, root, experiment: str = "benchmark", search: str = "beta") -> list[Run]:
    """List every method on every data set with every seed (Tables 1, 4 and 6 to 8, and the language table).

    Seed by seed, and the methods of the first figure before the others: tables can be made early.
    """
    parts = [[name for name in FIRST if name in profile.methods], [n for n in profile.methods if n not in FIRST]]
    places = [
        Place(experiment, backbone, dataset, method, seed)
        for backbone, seed, methods in product(profile.backbones, profile.seeds, parts)
        for dataset, method in product(profile.datasets, methods)
    ]
    return [run for place in places for run in searching(profile, root, place, search, profile.seeds, {})]


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
    listed = []
    for backbone, dataset in product(profile.backbones, datasets):
        tried = with_rates(profile, [{name: value} for value in values])
        members, shared = crossed(tried, grid(profile, backbone, method, fixed=True))
        place = Place(experiment, backbone, dataset, method, profile.seeds[0])
        listed.append(training(profile, root, place, members, **shared))
    return listed


def with_rates(profile: Profile, values: list[dict]) -> list[dict]:
    """Cross the values of a hyperparameter with `search_rates`, where the profile has them."""
    rates = [{"learning_rate": rate} for rate in profile.search_rates] or [{}]
    return [value | rate for value in values for rate in rates]


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
        for dataset, seed in product(profile.datasets, seeds if method in profile.methods else ()):
            place = Place(f"components_{name}", profile.backbones[0], dataset, method, seed)
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
    seeds, first, listed = profile.component_seeds, first_of_categories(profile), []
    for name, method, changes in variants:
        datasets = profile.datasets if changes.get("sigma") == profile.noise.sigma else first
        for dataset, seed in product(datasets, seeds if method in profile.methods else ()):
            place = Place(f"noise_{name}", profile.backbones[0], dataset, method, seed)
            listed += searching(profile, root, place, "beta", seeds, changes)
    return listed


def published(profile: Profile, root) -> list[Run]:
    """List the trainings under the published protocol; each seed searches its own grid, as there."""
    if not profile.published:
        return []
    backbone, everywhere, listed = profile.backbones[0], profile.with_(fixed_grid=[]), []
    methods = [method for method in profile.published.methods if method in profile.methods]
    for dataset, seed, method in product(profile.datasets, profile.seeds, methods):
        place, members = Place("published", backbone, dataset, method, seed), grid(everywhere, backbone, method)
        beta = {"beta": profile.published.beta} if method == "pvera" else {}
        listed.append(training(profile, root, place, members, protocol("published"), keep=True, **beta))
    return listed


def equal_budget(profile: Profile, root) -> list[Run]:
    """List VeRA with the α that `search` chose, where the profile has values of α."""
    seeds = profile.component_seeds if profile.alpha and "vera" in profile.methods else []
    listed = []
    for dataset, seed in product(profile.datasets, seeds):
        place = Place("equal_budget", profile.backbones[0], dataset, "vera", seed)
        listed += searching(profile, root, place, "alpha", seeds, {})
    return listed


def ablation(profile: Profile, root, experiment: str, hyperparameter: str) -> list[Run]:
    """List PVeRA with several ranks (Table 2), or on several combinations of query, key and value (Table 3)."""
    ablations = profile.ablations
    if not ablations or "pvera" not in profile.methods:
        return []
    values = [{hyperparameter: value} for value in getattr(ablations, hyperparameter)]
    if ablations.search:
        values = with_rates(profile, values)
    backbone, listed = profile.backbones[0], []
    fixed = not ablations.search or bool(profile.search_rates)
    members, shared = crossed(values, grid(profile, backbone, "pvera", fixed))
    for dataset, seed in product(ablations.datasets, profile.seeds):
        place = Place(experiment, backbone, dataset, "pvera", seed)
        if dataset in profile.datasets and seed in (ablations.seeds or profile.seeds):
            beta = found(profile, root, "beta", place)
            if beta is not None:
                listed.append(training(profile, root, place, members, **shared | beta))
    return listed


def protocol_effects(profile: Profile, root) -> list[Run]:
    """List both protocols, and the corrected one with one difference at a time, each below "protocol_<name>".

    A difference that concerns one method is measured on that method, one that concerns the grid where every seed
    searches it.
    """
    effects, backbone, listed = profile.effects, profile.backbones[0], []
    if not effects:
        return []
    seeds = [seed for seed in effects.seeds if seed in profile.seeds]
    datasets = [dataset for dataset in effects.datasets if dataset in profile.datasets]
    everywhere = profile.with_(fixed_grid=[])
    for seed, (name, variant), dataset in product(seeds, one_at_a_time().items(), datasets):
        for method in effects.grids if variant.grid else effects.methods:
            if method not in profile.methods or variant.method not in (None, method):
                continue
            place = Place(f"protocol_{name}", backbone, dataset, method, seed)
            beta = found(profile, root, "beta", place)
            if beta is not None:
                members = grid(everywhere if variant.grid else profile, backbone, method, fixed=not variant.grid)
                listed.append(training(profile, root, place, members, variant.protocol, **beta))
    return listed


def dropout(profile: Profile, root) -> list[Run]:
    """List LoRA and VeRA with dropout, whose masks are drawn again at inference; with the grid's most chosen value."""
    if not profile.rivals:
        return []
    backbone, listed = profile.backbones[0], []
    methods = [name for name in ("lora", "vera") if name in profile.methods and name in profile.rivals.methods]
    for dataset, seed, method in product(profile.datasets, profile.seeds, methods):
        place, members = Place("dropout", backbone, dataset, method, seed), grid(profile, backbone, method, fixed=True)
        listed.append(training(profile, root, place, members, keep=True, dropout=profile.rivals.dropout))
    return listed


def beta_effects(profile: Profile, root) -> list[Run]:
    """List PVeRA along β on the first data set of each category; each value below "beta_effects_<β>"."""
    if not profile.rivals or "pvera" not in profile.methods:
        return []
    backbone, listed = profile.backbones[0], []
    for beta, dataset, seed in product(profile.rivals.betas, first_of_categories(profile), profile.seeds):
        place = Place(f"beta_effects_{beta:g}", backbone, dataset, "pvera", seed)
        members = grid(profile, backbone, "pvera", fixed=True)
        listed.append(training(profile, root, place, members, keep=True, beta=beta))
    return listed


# Analyses of adapters


def on_first_backbone(
    profile: Profile, root, trainings: Callable[[Profile, object], list[Run]], *methods: str
) -> list[Run]:
    """Return the trainings of these methods on the first backbone, finished or not."""
    runs = trainings(profile.with_(backbones=profile.backbones[:1]), root)
    return [run for run in runs if run.method in methods]


def adapters(profile: Profile, root, trainings: Callable[[Profile, object], list[Run]], *methods: str) -> list[Run]:
    """Return the trainings of these methods on the first backbone that have left an adapter."""
    return [run for run in on_first_backbone(profile, root, trainings, *methods) if chosen_grid(run) is not None]


def uncertainty(profile: Profile, root) -> list[Analysis]:
    """List Monte Carlo inference with every PVeRA adapter (Section 4.3, appendix C)."""
    settings = profile.uncertainty.model_dump()
    return [
        Analysis.of(run, "uncertainty", analyses.uncertainties, **settings)
        for run in adapters(profile, root, benchmark, "pvera")
    ]


def out_of_distribution(profile: Profile, root) -> list[Analysis]:
    """List the adapters of the first data set of each category, each on all of these data sets (Section 4.4).

    The paper does not name its three.
    """
    tested = first_of_categories(profile)
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


def compared(profile: Profile, root, experiment: str, trainings: Callable, trained: str) -> list[Analysis]:
    """List an analysis of all seeds' adapters per data set, method and variant of finished `trainings`.

    experiment, trained: the folders of analyses and trainings, without the variant.
    """
    settings = profile.rivals
    if not settings:
        return []
    along_beta = trainings is beta_effects
    draws = [k for k in settings.draws if not along_beta or k <= settings.shift_draws]
    chosen = {"draws": draws, "shifts": settings.shifts and not along_beta, "shifted_images": settings.shifted_images,
              "shift_draws": settings.shift_draws}  # fmt: skip
    seeds_of: dict[tuple, list[Run]] = {}
    for run in on_first_backbone(profile, root, trainings, *settings.methods):
        seeds_of.setdefault((run.experiment, run.dataset, run.method), []).append(run)
    listed = []
    for (folder, dataset, _), runs in seeds_of.items():
        with_adapters = [run for run in runs if chosen_grid(run) is not None]
        if with_adapters and all(run.path.exists() for run in runs):
            name = experiment + folder.removeprefix(trained)
            tested = (dataset, *(() if along_beta else out_of(profile, dataset)))
            listed.append(Analysis.of(with_adapters, name, rivals.compare, tested, **chosen))
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
    category = {name: tasks.task(name, profile.data).category for name in reversed(profile.datasets)}
    first = {of: name for name, of in category.items()}
    return tuple(name for name in profile.datasets if name in first.values())
