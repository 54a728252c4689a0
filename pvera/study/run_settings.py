"""The runs of a profile's experiments: which there are, and the settings of each.

A *search* is a run whose choice among its members gives other runs their values. A run that needs a
value which a search has not found is not listed yet, and one that needs a search of other settings
is replaced by that search; whoever executes the runs lists them again afterwards.
"""

from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from pvera import text_encoders
from pvera.adapters import METHODS, Method
from pvera.errors import InputError
from pvera.study import results
from pvera.study.jobs import Run
from pvera.study.profiles import TRAINING_HYPERPARAMETERS, Experiment, Hyperparameters, Profile
from pvera.study.protocol import OFFICIAL_BETA, PROTOCOLS, Protocol
from pvera.study.training import MethodConfig


class NotChosen(Exception):
    """A run needs values that a search has not chosen yet."""

    def __init__(self, search_again: Run | None = None):
        super().__init__()
        #: The search, where its record is of other settings than the profile's: it has to run again
        #: first. None while it has no result, or where all its members diverged.
        self.search_again = search_again


@dataclass(frozen=True)
class PlannedRun:
    """One run of an experiment, before its settings are resolved."""

    #: Key of the experiment in the profile.
    experiment: str
    #: Folder of its results.
    folder: str
    backbone: str
    dataset: str
    method: str
    seed: int
    #: The value that the experiment varies, as {hyperparameter: value}, or empty.
    varied: Hyperparameters
    #: The experiment's, or where it varies the protocol that of the run.
    protocol: Protocol


def list_runs(profile: Profile, root: str | Path, name: str) -> list[Run]:
    """List the runs of an experiment that can start, by backbone and seed.

    Args:
        profile: Has the experiment.
        root: Folder of the results, which say what searches have chosen.
        name: Key of the experiment.
    """
    runs: dict[Run, None] = {}  # several may be replaced by the same search
    for planned in list_planned_runs(profile, name):
        try:
            runs[resolve(profile, root, planned)] = None
        except NotChosen as waiting:
            # The search takes its place where it has to run again; otherwise none does.
            if waiting.search_again:
                runs[waiting.search_again] = None
    return list(runs)


def list_planned_runs(profile: Profile, name: str) -> list[PlannedRun]:
    """List all runs of an experiment, also those that wait for a search."""
    experiment = profile.experiments[name]
    backbones = _selected(profile.backbones, experiment.backbones)
    seeds = experiment.seeds or profile.seeds
    folders = experiment.folders(name).items()
    datasets = _selected(profile.datasets, experiment.datasets)
    methods = _selected(list(profile.methods), experiment.methods)

    planned: list[PlannedRun] = []
    axes = product(backbones, seeds, folders, datasets, methods)
    for backbone, seed, (folder, values), dataset, method in axes:
        varied = dict(values)
        entry = PROTOCOLS[varied.pop("protocol", experiment.protocol or profile.protocol)]
        # A protocol that differs in one method alone trains that method alone.
        if entry.only_method in (None, method):
            planned.append(
                PlannedRun(name, folder, backbone, dataset, method, seed, varied, entry.protocol)
            )
    return planned


def _selected(names: list[str], selection: list[str] | None) -> list[str]:
    return [name for name in names if selection is None or name in selection]


def resolve(profile: Profile, root: str | Path, planned: PlannedRun) -> Run:
    """Return a run with its settings.

    `find_chosen` resolves the search in turn, to know where its record lies and whether its
    settings are still the profile's. This ends: the experiments of `inherit` form no cycle, and
    within an experiment all seeds wait for the first, which waits for none of them.

    Args:
        profile: Has the run's experiment.
        root: Folder of the results, which say what searches have chosen.
        planned: The run.

    Raises:
        NotChosen: A search that it needs has not chosen.
        InputError: As `_require_kept`.
    """
    experiment = profile.experiments[planned.experiment]
    inherited = _inherited(profile, root, planned)
    changed = experiment.set | planned.varied
    points = _grid_points(profile, root, planned)
    _require_kept(changed, points[0], planned)  # all points have the same keys
    shared = inherited | changed
    return Run(
        profile=profile.name,
        folder=planned.folder,
        backbone=planned.backbone,
        dataset=planned.dataset,
        method=planned.method,
        seed=planned.seed,
        member_configs=tuple(build_config(profile, planned, shared, point) for point in points),
        schedule=profile.schedule,
        protocol=planned.protocol,
        precision=profile.precision,
        data_root=profile.data,
        results_root=str(root),
        weights=profile.weights.get(planned.backbone),
        image_size=profile.image_size,
        images=None if experiment.all_images else profile.images,
        pool=text_encoders.pool(planned.backbone) if profile.is_text else "first",
    )


def _inherited(profile: Profile, root: str | Path, planned: PlannedRun) -> Hyperparameters:
    """Return the values that searches of other experiments chose, each with its first seed."""
    values: Hyperparameters = {}
    for name in profile.experiments[planned.experiment].inherit:
        other = profile.experiments[name]
        # Of several experiments each may have searched for other methods.
        if planned.method in (other.methods or profile.methods):
            search = replace(
                planned,
                experiment=name,
                folder=other.folder or name,
                seed=_first_seed(profile, other),
                varied={},
                protocol=PROTOCOLS[other.protocol or profile.protocol].protocol,
            )
            values |= find_chosen(profile, root, search)
    return values


def _grid_points(profile: Profile, root: str | Path, planned: PlannedRun) -> list[Hyperparameters]:
    """Return the point of each member of a run: the values in which it differs from the others."""
    experiment = profile.experiments[planned.experiment]
    is_fixed = planned.backbone in profile.fixed_grid and not experiment.grid
    if is_fixed or not experiment.search:
        return [default_values(profile, planned.method)]

    points = grid_points(experiment.grid or profile.methods[planned.method].get("grid", {}))
    # The first seed searches, and the others train what it chose.
    one_chooses = (experiment.choose or profile.choose) == "first_seed"
    search = replace(planned, seed=_first_seed(profile, experiment))
    if one_chooses and len(points) > 1 and search != planned:
        return [find_chosen(profile, root, search)]
    return points


def _require_kept(changed: Hyperparameters, point: Hyperparameters, planned: PlannedRun) -> None:
    """Raise InputError where a point of the grid would replace what the experiment changes."""
    for name in changed.keys() & point:
        raise InputError(
            f"experiments.{planned.experiment}: {name!r} is in 'set' or 'vary', and in the grid or "
            f"default of {planned.method}: name a 'grid' without it"
        )


def _first_seed(profile: Profile, experiment: Experiment) -> int:
    return (experiment.seeds or profile.seeds)[0]


def find_chosen(profile: Profile, root: str | Path, planned: PlannedRun) -> Hyperparameters:
    """Return the values that a search chose, from its record.

    Raises:
        NotChosen: It has chosen none.
    """
    search = resolve(profile, root, planned)
    if not search.path.exists():
        raise NotChosen
    record = results.read_record(search.path)
    if not search.is_recorded(record, compare_data=False):
        raise NotChosen(search)
    if record.chosen is None:
        raise NotChosen
    return record.chosen.grid


# One method's grid


def grid_points(grid: dict[str, list]) -> list[Hyperparameters]:
    """Return all combinations of a grid's values, each as {hyperparameter: value}."""
    return [dict(zip(grid, point, strict=True)) for point in product(*grid.values())]


def default_values(profile: Profile, method: str) -> Hyperparameters:
    """Return the values that replace a method's grid where it is not searched.

    Raises:
        InputError: The method has a grid and no default.
    """
    options = profile.methods[method]
    if "grid" in options and "default" not in options:
        raise InputError(
            f"profile {profile.name!r}: methods.{method}.default: is missing, the values that "
            "replace the grid where it is not searched"
        )
    return options.get("default", {})


def build_config(
    profile: Profile, planned: PlannedRun, shared: Hyperparameters, point: Hyperparameters
) -> MethodConfig:
    """Build what one member of a run's grid trains.

    Args:
        profile: Has the method's hyperparameters.
        planned: The run.
        shared: Hyperparameters of all members, instead of the profile's.
        point: Hyperparameters in which this member differs from the others.

    Raises:
        InputError: The official code has no β for the data set.
    """
    method, dataset = planned.method, planned.dataset
    hyperparameters = merged_hyperparameters(profile, method, planned.protocol, shared | point)
    rate = hyperparameters.get("learning_rate", profile.learning_rate)
    beta = hyperparameters.get("beta", 0.0)
    if beta == "published":
        if dataset not in OFFICIAL_BETA:
            raise InputError(
                f"the official code has no β for {dataset}: write a number instead of 'published' "
                "in the profile"
            )
        beta = OFFICIAL_BETA[dataset]
    return MethodConfig(
        method=build_method(method, hyperparameters),
        adapter_lr=rate,
        # Linear probing has no adapter: the searched rate is the head's.
        head_lr=rate if method == "linear" else profile.learning_rate,
        beta=beta,
        grid=point,
    )


def build_method(key: str, hyperparameters: Hyperparameters) -> Method:
    """Build a method from its `merged_hyperparameters`; those of training are left out."""
    others = ("grid", "default", *TRAINING_HYPERPARAMETERS)
    own = {name: value for name, value in hyperparameters.items() if name not in others}
    return METHODS[key](**own)


def merged_hyperparameters(
    profile: Profile, method: str, protocol: Protocol, values: Hyperparameters
) -> Hyperparameters:
    """Return all that is said of a method.

    A source replaces the ones before it: the profile, the protocol, the experiment's `inherit`,
    `set` and `vary`, and a point of the grid.

    Args:
        profile: Has the method's hyperparameters.
        method: Key of the method.
        protocol: Has hyperparameters that replace the profile's.
        values: What the other sources say, merged in their order.
    """
    return profile.methods[method] | protocol.adapters.get(method, {}) | values
