"""The trainings of a profile's experiments: which there are, and the settings of each.

A training that needs a value which a search has not found is not listed yet; whoever executes the
trainings lists them again afterwards.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

from pvera import text_encoders
from pvera.adapters import METHODS, Method
from pvera.errors import InputError
from pvera.study import results
from pvera.study.jobs import Run
from pvera.study.profiles import TRAINING_HYPERPARAMETERS, Experiment, Hyperparameters, Profile
from pvera.study.protocol import PUBLISHED_BETA, SWITCHES, Protocol, Switch
from pvera.study.training import MethodConfig


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
    switch: Switch


def trainings(profile: Profile, root: str | Path, name: str) -> list[Run]:
    """List the trainings of an experiment that can start, by backbone and seed.

    Args:
        profile: Has the experiment.
        root: Folder of the results, which say what searches have chosen.
        name: Of the experiment.
    """
    experiment = profile.experiments[name]
    backbones = _selected(profile.backbones, experiment.backbones)
    seeds = experiment.seeds or profile.seeds
    folders = experiment.folders(name).items()
    datasets = _selected(profile.datasets, experiment.datasets)
    methods = _selected(list(profile.methods), experiment.methods)

    runs: list[Run] = []
    axes = product(backbones, seeds, folders, datasets, methods)
    for backbone, seed, (folder, values), dataset, method in axes:
        varied = dict(values)
        protocol = varied.pop("protocol", experiment.protocol or profile.protocol)
        switch = SWITCHES[protocol]
        if switch.method not in (None, method):
            continue
        planned = PlannedRun(name, folder, backbone, dataset, method, seed, varied, switch)
        run = resolve(profile, root, planned)
        if run is not None:
            runs.append(run)
    return runs


def _selected(names: list[str], selection: list[str] | None) -> list[str]:
    return [name for name in names if selection is None or name in selection]


def resolve(profile: Profile, root: str | Path, planned: PlannedRun) -> Run | None:
    """Return a training with its settings; None while a search that it needs has not ended."""
    experiment = profile.experiments[planned.experiment]
    inherited = _inherited(profile, root, planned)
    grid = _grid(profile, root, planned)
    if inherited is None or not grid:
        return None

    fixed = inherited | experiment.set | planned.varied
    protocol = planned.switch.protocol
    configs = [
        build_config(profile, planned.method, protocol, planned.dataset, fixed, values)
        for values in grid
    ]
    return Run(
        profile=profile.name,
        folder=planned.folder,
        backbone=planned.backbone,
        dataset=planned.dataset,
        method=planned.method,
        seed=planned.seed,
        configs=tuple(configs),
        schedule=profile.schedule,
        protocol=protocol,
        precision=profile.precision,
        data_root=profile.data,
        results_root=str(root),
        weights=profile.weights.get(planned.backbone),
        image_size=profile.image_size,
        images=None if experiment.all_images else profile.images,
        pool=text_encoders.pool(planned.backbone) if profile.is_text else "first",
        keep=experiment.keep,
    )


def _inherited(profile: Profile, root: str | Path, planned: PlannedRun) -> Hyperparameters | None:
    """Return what searches elsewhere chose for the method; None while one has not ended."""
    inherited: Hyperparameters = {}
    for name in profile.experiments[planned.experiment].inherit:
        other = profile.experiments[name]
        if planned.method not in (other.methods or profile.methods):
            continue
        choice = chosen_values(profile, root, planned, name)
        if choice is None:
            return None
        inherited |= choice
    return inherited


def _grid(profile: Profile, root: str | Path, planned: PlannedRun) -> list[Hyperparameters]:
    """Return the values in which the members of a training differ.

    They are the whole grid, or what another seed chose from it: nothing while it has not chosen.
    """
    experiment = profile.experiments[planned.experiment]
    is_fixed = planned.backbone in profile.fixed_grid and not experiment.grid
    if is_fixed or not experiment.search:
        return [default_values(profile, planned.method)]

    grid = combinations(experiment.grid or profile.methods[planned.method].get("grid", {}))
    chooser = experiment.choose or profile.choose
    is_first = planned.seed == _first_seed(profile, experiment)
    if len(grid) == 1 or chooser == "each_seed" or is_first:
        return grid
    choice = chosen_values(profile, root, planned, planned.experiment, planned.folder)
    return [values for values in grid if values == choice]


def chosen_values(
    profile: Profile, root: str | Path, planned: PlannedRun, name: str, folder: str | None = None
) -> Hyperparameters | None:
    """Return what the first seed of an experiment chose for a method on a data set.

    Args:
        profile: Has the experiment.
        root: Folder of the results.
        planned: Names backbone, data set and method.
        name: Of the experiment.
        folder: Of the experiment's results, by default its own or its name.

    Returns:
        The values; None while there is no result, or where all members diverged.
    """
    experiment = profile.experiments[name]
    identity = {
        **vars(planned),
        "profile": profile.name,
        "experiment": folder or experiment.folder or name,
        "seed": _first_seed(profile, experiment),
    }
    path = results.path_of(root, identity)
    if not path.exists():
        return None
    chosen = results.read(path).chosen
    return chosen.grid if chosen else None


def _first_seed(profile: Profile, experiment: Experiment) -> int:
    return (experiment.seeds or profile.seeds)[0]


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
    profile: Profile,
    method: str,
    protocol: Protocol,
    dataset: str,
    fixed: Hyperparameters,
    values: Hyperparameters,
) -> MethodConfig:
    """Build what one member of a method's grid trains.

    Args:
        profile: Has the method's hyperparameters.
        method: Its key.
        protocol: May have hyperparameters of its own.
        dataset: Whose β is meant where the profile says "published".
        fixed: Hyperparameters of all members, instead of the profile's.
        values: Those in which this member differs from the others.

    Raises:
        InputError: The paper has no β for the data set.
    """
    hyperparameters = _merged(profile, method, protocol, fixed | values)
    rate = hyperparameters.get("learning_rate", profile.learning_rate)
    beta = hyperparameters.get("beta", 0.0)
    if beta == "published":
        if dataset not in PUBLISHED_BETA:
            raise InputError(
                f"the paper has no β for {dataset}: write a number instead of 'published' in the "
                "profile"
            )
        beta = PUBLISHED_BETA[dataset]
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
        method: Its key.
        protocol: Its hyperparameters replace the profile's.
        values: They replace both.
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
