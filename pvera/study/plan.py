"""The runs of each experiment, from the profile alone: no result is read, and no weights or data.

Each function takes a profile, the entry of its experiment in `experiments`, and the folder of results. Two things
depend on results, so they are settled when runs are started (`Run.resolved`): the values that a search chose, and
whether a training left an adapter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from pvera import text_encoders
from pvera.adapters import METHODS
from pvera.data import tasks
from pvera.errors import InputError
from pvera.study import results
from pvera.study.analyses import Analysis
from pvera.study.protocol import PUBLISHED_BETA, Protocol, one_at_a_time, protocol
from pvera.study.rivals import Ensemble
from pvera.study.runs import GRID, Candidate, Run

if TYPE_CHECKING:
    from pvera.study.experiments import Experiment
    from pvera.study.profiles import Profile


def benchmark(profile: Profile, experiment: Experiment, root) -> list[Run]:
    """List every method on every data set with every seed (Tables 1, 4 and 6 to 8, and the language table)."""
    return [
        training_run(profile, experiment, root, backbone, dataset, method, seed)
        for backbone in profile.backbones
        for dataset in profile.datasets
        for seed in profile.seeds
        for method in profile.methods
    ]


#: The method to which a searched hyperparameter belongs.
SEARCHED = {"beta": "pvera", "alpha": "vera"}


def search(profile: Profile, experiment: Experiment, root) -> list[Run]:
    """List the runs that choose a hyperparameter on the validation loss, with the first seed, one per data set.

    PVeRA's β (Section 3.2), where the data set has no published value; VeRA's α, where the profile has an equal budget.
    A single value needs no search. InputError where the profile has no values of β to choose from.
    """
    name, method = experiment.searches, SEARCHED[experiment.searches]
    searched = [dataset for dataset in profile.datasets if name != "beta" or dataset not in PUBLISHED_BETA]
    if method not in profile.methods or not searched or (name == "alpha" and not profile.alpha):
        return []
    if not getattr(profile, name):
        raise InputError(f"profile {profile.name!r}: {name}: is missing, the values to search for {searched[0]}")
    if len(getattr(profile, name)) == 1:
        return []
    values = with_rates(profile, [{name: value} for value in getattr(profile, name)])
    return [
        training_run(profile, experiment, root, backbone, dataset, method, profile.seeds[0], fixed=True, values=values)
        for backbone in profile.backbones
        for dataset in searched
    ]


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


def components(profile: Profile, experiment: Experiment, root) -> list[Run]:
    """List VeRA, PVeRA without noise and KL term, without the KL term, and PVeRA; each below "components_<name>".

    The benchmark trains the first and the last with the profile's seeds; these are further ones.
    """
    return [
        training_run(
            profile, experiment, root, backbone, dataset, method, seed, variant=name, changes=changes,
            chooser=None if changes else "benchmark", seeds=profile.component_seeds if changes else None,
        )
        for name, (method, changes) in COMPONENTS.items()
        for backbone in profile.backbones[:1]
        for dataset in profile.datasets
        for seed in (profile.component_seeds if changes else profile.further_seeds)
        if method in profile.methods
    ]  # fmt: skip


def noise(profile: Profile, experiment: Experiment, root) -> list[Run]:
    """List PVeRA with σ fixed and β = 0, and VeRA with dropout in its latent; each below "noise_<name>".

    The seeds are those of PVeRA's components, with which they are compared.
    """
    if not profile.noise:
        return []
    first = first_of_categories(profile)
    variants: list[tuple[str, str, dict, Sequence[str]]] = [
        (f"sigma_{sigma:g}", "pvera", {"sigma": sigma, "beta": 0.0}, datasets)
        for sigma, datasets in [
            (profile.noise.sigma, profile.datasets),
            *((size, first) for size in profile.noise.sizes),
        ]
    ]
    variants += [
        (f"dropout_{share:g}", "vera", {"dropout": share, "dropped": "latent"}, first)
        for share in profile.noise.dropout
    ]
    return [
        training_run(
            profile, experiment, root, profile.backbones[0], dataset, method, seed, variant=name, changes=changes,
            seeds=profile.component_seeds,
        )
        for name, method, changes, datasets in variants
        for dataset in datasets
        for seed in profile.component_seeds
        if method in profile.methods
    ]  # fmt: skip


def published(profile: Profile, experiment: Experiment, root) -> list[Run]:
    """List the trainings under the published protocol; each seed searches its own grid, as there."""
    if not profile.published:
        return []
    searched = replace(profile, fixed_grid=[], search_once=False)
    return [
        training_run(
            searched, experiment, root, profile.backbones[0], dataset, method, seed, rules=protocol("published"),
            changes={"beta": profile.published.beta} if method == "pvera" else None,
        )
        for dataset in profile.datasets
        for seed in profile.seeds
        for method in profile.published.methods
        if method in profile.methods
    ]  # fmt: skip


def equal_budget(profile: Profile, experiment: Experiment, root) -> list[Run]:
    """List VeRA with the α that `search` chose, where the profile has values of α."""
    return [
        training_run(profile, experiment, root, backbone, dataset, "vera", seed, seeds=profile.component_seeds)
        for backbone in profile.backbones[:1]
        for dataset in profile.datasets
        for seed in profile.component_seeds
        if profile.alpha and "vera" in profile.methods
    ]


def rank_ablation(profile: Profile, experiment: Experiment, root) -> list[Run]:
    """List PVeRA with several ranks (Table 2)."""
    return _ablation(profile, experiment, root, "rank")


def position_ablation(profile: Profile, experiment: Experiment, root) -> list[Run]:
    """List PVeRA on several combinations of query, key and value (Table 3)."""
    return _ablation(profile, experiment, root, "targets")


def protocol_effects(profile: Profile, experiment: Experiment, root) -> list[Run]:
    """List both protocols, and the corrected one with one difference at a time, each below "protocol_<name>".

    A difference that concerns one method is measured on that method, one that concerns the grid where every seed
    searches it.
    """
    if not profile.effects:
        return []
    searched = replace(profile, fixed_grid=[], search_once=False)
    return [
        training_run(
            searched if variant.grid else profile,
            experiment,
            root,
            backbone,
            dataset,
            method,
            seed,
            variant=name,
            rules=variant.protocol,
            fixed=not variant.grid,
        )
        for seed in profile.effects.seeds
        if seed in profile.seeds
        for name, variant in one_at_a_time().items()
        for backbone in profile.backbones[:1]
        for dataset in profile.effects.datasets
        if dataset in profile.datasets
        for method in (profile.effects.grids if variant.grid else profile.effects.methods)
        if method in profile.methods and variant.method in (None, method)
    ]


def uncertainty(profile: Profile, experiment: Experiment, root) -> list[Analysis]:
    """List Monte Carlo inference with every PVeRA adapter (Section 4.3, appendix C)."""
    return [
        Analysis.of(run, experiment.name, experiment.compute, (run.dataset,), **asdict(profile.uncertainty))
        for run in adapters(profile, experiment, root, "pvera")
    ]


def dropout(profile: Profile, experiment: Experiment, root) -> list[Run]:
    """List LoRA and VeRA with dropout, whose masks are drawn again at inference; with the grid's most chosen value."""
    return [
        training_run(
            profile, experiment, root, backbone, dataset, method, seed, fixed=True,
            changes={"dropout": profile.rivals.dropout},
        )
        for backbone in profile.backbones[:1]
        for dataset in profile.datasets
        for seed in profile.seeds
        for method in ("lora", "vera")
        if profile.rivals and method in profile.methods and method in profile.rivals.methods
    ]  # fmt: skip


def beta_effects(profile: Profile, experiment: Experiment, root) -> list[Run]:
    """List PVeRA along β on the first data set of each category; each value below "beta_effects_<β>"."""
    return [
        training_run(
            profile, experiment, root, backbone, dataset, "pvera", seed, fixed=True, variant=f"{beta:g}",
            changes={"beta": beta},
        )
        for beta in (profile.rivals.betas if profile.rivals and "pvera" in profile.methods else ())
        for backbone in profile.backbones[:1]
        for dataset in first_of_categories(profile)
        for seed in profile.seeds
    ]  # fmt: skip


def rivals(profile: Profile, experiment: Experiment, root) -> list[Ensemble]:
    """List an analysis of all seeds' adapters per data set, method and variant of the trainings before."""
    if not profile.rivals:
        return []
    settings = asdict(profile.rivals)
    along_beta = experiment.after.lists is beta_effects
    chosen = ("draws", "shifts", "shifted_images", "shift_draws")
    settings = {name: settings[name] for name in chosen}
    if along_beta:
        draws = [k for k in settings["draws"] if k <= settings["shift_draws"]]
        settings |= {"shifts": False, "draws": draws}
    of_adapters: dict[tuple, list[Run]] = {}
    for run in adapters(profile, experiment, root, *profile.rivals.methods):
        of_adapters.setdefault((run.experiment, run.dataset, run.method), []).append(run)
    listed = []
    for (trained, dataset, _), runs in of_adapters.items():
        name = experiment.name + trained.removeprefix(experiment.after.name)
        tested = (dataset, *(() if along_beta else out_of(profile, dataset)))
        first = Ensemble.of(runs[0], name, experiment.compute, tested, **settings)
        listed.append(replace(first, fitted=True, records=tuple(str(run.path) for run in runs)))
    return listed


def out_of(profile: Profile, dataset: str) -> tuple[str, ...]:
    """Return the data sets that lie out of the distribution of `dataset`: see `Rivals.out`."""
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


def out_of_distribution(profile: Profile, experiment: Experiment, root) -> list[Analysis]:
    """List the adapters of the first data set of each category, each on all of these data sets (Section 4.4).

    The paper does not name its three.
    """
    tested = first_of_categories(profile)
    return [
        Analysis.of(run, experiment.name, experiment.compute, tested)
        for run in adapters(profile, experiment, root, "vera", "pvera")
        if run.dataset in tested
    ]


def latent_maps(profile: Profile, experiment: Experiment, root) -> list[Analysis]:
    """List latent maps of five images and four draws on the first data set with the first seed (Section 4.4).

    The first data set of the paper's profile is the paper's.
    """
    return [
        Analysis.of(run, experiment.name, experiment.compute, (run.dataset,), shown=5, draws=4)
        for run in adapters(profile, experiment, root, "vera", "pvera")
        if run.dataset == profile.datasets[0] and run.seed == profile.seeds[0]
    ]


def adapters(profile: Profile, experiment: Experiment, root, *methods: str) -> Iterator[Run]:
    """Yield the runs on the first backbone whose adapters the analysis `experiment` reads, of these methods."""
    trained = experiment.after
    for run in trained.runs(profile.with_(backbones=profile.backbones[:1]), root):
        if run.method in methods:
            yield run


def training_run(
    profile: Profile,
    experiment: Experiment,
    root,
    backbone: str,
    dataset: str,
    method: str,
    seed: int,
    *,
    variant: str | None = None,
    rules: Protocol | None = None,
    fixed: bool = False,
    values: list[dict] | None = None,
    changes: dict | None = None,
    chooser: str | None = None,
    seeds: Sequence[int] | None = None,
) -> Run:
    """Build one training of a profile.

    variant: its folder is "<experiment>_<variant>".   rules: instead of the profile's protocol.
    fixed: the grid's most chosen value instead of all.   values: the members, each with every value of the grid.
    changes: hyperparameters that differ from the profile's.
    chooser: the folder of the first seed's run that searches the grid for this one (`search_once`), if not its own.
    seeds: those that are trained in that folder, if not the profile's: the first of them searches.
    """
    rules, options = rules or protocol(profile.protocol), dict(profile.methods[method])
    grid, most_chosen = options.pop("grid", {}), options.pop("most_chosen", None)
    name = experiment.name if variant is None else f"{experiment.name}_{variant}"
    after, searched, changes = experiment.after, [], changes or {}
    searcher = (seeds or profile.seeds)[0]

    def record(folder: str, seed: int) -> str:
        return str(results.run_path(root, profile.name, folder, backbone, dataset, method, seed))

    if after and after.searches and SEARCHED[after.searches] == method and after.searches not in changes:
        key = after.searches
        if key == "beta":
            options[key] = PUBLISHED_BETA.get(dataset)
        if options.get(key) is None and len(getattr(profile, key)) == 1:
            (options[key],) = getattr(profile, key)
        if options.get(key) is None:
            searched.append((key, record(after.name, profile.seeds[0])))
    if fixed or backbone in profile.fixed_grid:
        if grid and most_chosen is None:
            raise InputError(
                f"profile {profile.name!r}: methods.{method}.most_chosen: is missing, the value that "
                f"{name} on {backbone} takes instead of searching the grid"
            )
        grid = {hyperparameter: [most_chosen] for hyperparameter in grid}
    points = [{key: value} for key, choices in grid.items() for value in choices] or [{}]
    if values and len(points) == 1:
        options, points = options | points[0], values
    elif values:
        points = [value | point for value in values for point in points]
    elif profile.search_once and len(points) > 1 and seed != searcher:
        searched.append((GRID, record(chooser or name, searcher)))
    options |= rules.adapters.get(method, {}) | changes
    return Run(
        profile.name,
        name,
        backbone,
        dataset,
        method,
        seed,
        tuple(_candidate(profile, method, options, point) for point in points),
        profile.training,
        rules,
        profile.precision,
        profile.data,
        str(root),
        weights=profile.weights.get(backbone),
        deterministic=profile.deterministic,
        images=profile.images,
        pool=(profile.pool or text_encoders.pool(backbone)) if profile.text else "first",
        searched=tuple(searched),
        keep=experiment.keep,
    )


def _ablation(profile: Profile, experiment: Experiment, root, hyperparameter: str) -> list[Run]:
    if not profile.ablations or "pvera" not in profile.methods:
        return []
    values = [{hyperparameter: value} for value in getattr(profile.ablations, hyperparameter)]
    fixed = not profile.ablations.search or bool(profile.search_rates)
    if profile.ablations.search:
        values = with_rates(profile, values)
    return [
        training_run(profile, experiment, root, backbone, dataset, "pvera", seed, fixed=fixed, values=values)
        for backbone in profile.backbones[:1]
        for dataset in profile.ablations.datasets
        if dataset in profile.datasets
        for seed in profile.seeds
        if not profile.ablations.seeds or seed in profile.ablations.seeds
    ]


def _candidate(profile: Profile, method: str, options: dict, point: dict) -> Candidate:
    settings = options | point
    rate, beta = settings.pop("learning_rate", profile.learning_rate), settings.pop("beta", 0.0)
    try:
        built = METHODS[method](**settings)
    except TypeError as error:
        raise InputError(f"{METHODS[method].title}: {error}") from None
    # Linear probing has no adapter: the searched rate is the head's.
    return Candidate(built, rate, rate if method == "linear" else profile.learning_rate, beta, point)
