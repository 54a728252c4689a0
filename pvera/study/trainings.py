"""The trainings of a profile's experiments: which there are, and the settings of each.

A training that needs a value which a search has not found is not listed yet, and one that needs a
search of other settings is replaced by that search; whoever executes the trainings lists them again
afterwards.
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
    """A training needs values that a search has not chosen yet.

    Its argument is that search where its record is of other settings than the profile's: it has to
    be run again first. There is none while the search has no result, or where all its members
    diverged.
    """


@dataclass(frozen=True)
class PlannedRun:
    """One training of an experiment, before its settings are resolved."""

    #: Key of the experiment in the profile.
    experiment: str
    #: Folder of its results.
    folder: str
    backbone: str
    dataset: str
    method: str
    seed: int
    #: The value of the hyperparameter that the experiment varies.
    varied: Hyperparameters
    protocol: Protocol


def list_trainings(profile: Profile, root: str | Path, name: str) -> list[Run]:
    """List the trainings of an experiment that can start, by backbone and seed.

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
            runs |= dict.fromkeys(waiting.args)
    return list(runs)


def list_planned_runs(profile: Profile, name: str) -> list[PlannedRun]:
    """List all trainings of an experiment, also those that wait for a search."""
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
    """Return a training with its settings.

    Args:
        profile: Has the training's experiment.
        root: Folder of the results, which say what searches have chosen.
        planned: The training.

    Raises:
        NotChosen: A search that it needs has not chosen.
    """
    experiment = profile.experiments[planned.experiment]
    inherited = _inherited(profile, root, planned)
    fixed = inherited | experiment.set | planned.varied
    grid = _grid(profile, root, planned)
    return Run(
        profile=profile.name,
        folder=planned.folder,
        backbone=planned.backbone,
        dataset=planned.dataset,
        method=planned.method,
        seed=planned.seed,
        member_configs=tuple(build_config(profile, planned, fixed, values) for values in grid),
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


def _grid(profile: Profile, root: str | Path, planned: PlannedRun) -> list[Hyperparameters]:
    """Return the values in which the members of a training differ, one dictionary per member."""
    experiment = profile.experiments[planned.experiment]
    is_fixed = planned.backbone in profile.fixed_grid and not experiment.grid
    if is_fixed or not experiment.search:
        return [default_values(profile, planned.method)]

    grid = combinations(experiment.grid or profile.methods[planned.method].get("grid", {}))
    # The first seed searches, and the others train what it chose.
    one_chooses = (experiment.choose or profile.choose) == "first_seed"
    search = replace(planned, seed=_first_seed(profile, experiment))
    if one_chooses and len(grid) > 1 and search != planned:
        return [find_chosen(profile, root, search)]
    return grid


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


def combinations(values: dict[str, list]) -> list[Hyperparameters]:
    """Return all combinations of the values, each by name."""
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


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
    profile: Profile, planned: PlannedRun, fixed: Hyperparameters, values: Hyperparameters
) -> MethodConfig:
    """Build what one member of a training's grid trains.

    Args:
        profile: Has the method's hyperparameters.
        planned: The training.
        fixed: Hyperparameters of all members, instead of the profile's.
        values: Hyperparameters in which this member differs from the others.

    Raises:
        InputError: The official code has no β for the data set.
    """
    method, protocol, dataset = planned.method, planned.protocol, planned.dataset
    hyperparameters = _merged(profile, method, protocol, fixed | values)
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
        method=build_method(profile, method, protocol, fixed | values),
        adapter_lr=rate,
        # Linear probing has no adapter: the searched rate is the head's.
        head_lr=rate if method == "linear" else profile.learning_rate,
        beta=beta,
        grid=values,
    )


def build_method(
    profile: Profile, method: str, protocol: Protocol, values: Hyperparameters
) -> Method:
    """Build a method with the profile's hyperparameters.

    Args:
        profile: Has the method's hyperparameters.
        method: Key of the method.
        protocol: Has hyperparameters that replace the profile's.
        values: Hyperparameters that replace both.
    """
    hyperparameters = _merged(profile, method, protocol, values)
    for name in ("grid", "default", *TRAINING_HYPERPARAMETERS):
        hyperparameters.pop(name, None)
    return METHODS[method](**hyperparameters)


def _merged(
    profile: Profile, method: str, protocol: Protocol, values: Hyperparameters
) -> Hyperparameters:
    """Return all that the profile says of a method, each source over the ones before it.

    They are the profile's method, the protocol, and in `values` the experiment's `inherit`, `set`,
    `vary` and the grid.
    """
    return profile.methods[method] | protocol.adapters.get(method, {}) | values
