"""The runs of each experiment that can be started now, from the profile and the results that are there.

A run that needs a value that a search has not found, or an analysis whose training has left no adapter, is not listed
yet: whoever executes runs lists again afterwards.
"""

from itertools import product
from typing import Any

from pvera import text_encoders
from pvera.adapters import METHODS
from pvera.errors import InputError
from pvera.study import results
from pvera.study.profiles import Profile, choose
from pvera.study.protocol import PUBLISHED_BETA, Protocol, one_at_a_time
from pvera.study.runs import Job, Run
from pvera.study.training import MemberConfig

Place = tuple[str, str, str]  # backbone, data set, method


def list_runs(profile: Profile, name: str, root) -> list[Job]:
    """List the runs of an experiment or an analysis that can be started now, with results below `root`."""
    if name in profile.experiments:
        return trainings(profile, root, name)
    from pvera.study.analysis_plan import ANALYSES, list_analyses  # much that no training needs

    choose("experiment", name, (*profile.experiments, *ANALYSES))
    return list_analyses(profile, root, name)


def trainings(profile: Profile, root, name: str) -> list[Run]:
    """List the trainings of the experiment `name` that can start, backbone by backbone and seed by seed."""
    experiment, listed = profile.experiments[name], []
    backbones, datasets, methods = (
        [name for name in getattr(profile, key) if name in (getattr(experiment, key) or (name,))]
        for key in ("backbones", "datasets", "methods")
    )
    seeds, variants, protocols = experiment.seeds or profile.seeds, experiment.variants(name), one_at_a_time()
    for backbone, seed, folder, dataset, method in product(backbones, seeds, variants, datasets, methods):
        varied = dict(variants[folder])
        rules = protocols[varied.pop("protocol", experiment.protocol or profile.protocol)]
        if rules.method not in (None, method):
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
            if dataset not in PUBLISHED_BETA:
                advice = "write a number in place of 'published' in the profile"
                raise InputError(f"the paper has no β for {dataset}: {advice}")
            options["beta"] = PUBLISHED_BETA[dataset]
        run = Run(
            profile=profile.name,
            experiment=folder,
            backbone=backbone,
            dataset=dataset,
            method=method,
            seed=seed,
            members=tuple(candidate(profile, method, values, rules.protocol, **options) for values in members),
            training=profile.training,
            protocol=rules.protocol,
            precision=profile.precision,
            data_root=profile.data,
            results_root=str(root),
            weights=profile.weights.get(backbone),
            deterministic=profile.deterministic,
            image_size=profile.image_size,
            images=None if experiment.all_images else profile.images,
            pool=text_encoders.pool(backbone) if profile.text else "first",
            keep=experiment.keep,
        )
        listed.append(run)
    return listed


def members_of(profile: Profile, root, name: str, folder: str, place: Place, seed: int) -> list[dict]:
    """Return what the members of a run differ in: the grid, or what another seed chose from it; [] while it has not."""
    experiment, (backbone, _, method) = profile.experiments[name], place
    if not experiment.search:
        return [most_chosen(profile, method)]
    members = combinations(experiment.grid) if experiment.grid else grid(profile, backbone, method)
    chooser, first = experiment.choose or profile.choose, (experiment.seeds or profile.seeds)[0]
    if len(members) == 1 or chooser == "each_seed" or (chooser == "first_seed" and seed == first):
        return members
    if chooser == "first_seed":
        chosen = choice(profile, root, name, place, folder)
    else:
        chosen = choice(profile, root, chooser, place)
    return [member for member in members if member == chosen]


def choice(profile: Profile, root, name: str, place: Place, folder: str | None = None) -> dict | None:
    """Return what the first seed of an experiment chose; None while it has not, or where all diverged."""
    experiment = profile.experiments[name]
    seed = (experiment.seeds or profile.seeds)[0]
    path = results.run_path(root, profile.name, folder or experiment.folder or name, *place, seed)
    record = results.read(path) if path.exists() else None
    return record["chosen"]["grid"] if record and record["chosen"] else None


# One method's grid


def grid(profile: Profile, backbone: str, method: str) -> list[dict]:
    """Return the members of a method's grid by what differs; where the grid is fixed, the most chosen value alone."""
    if backbone in profile.fixed_grid:
        return [most_chosen(profile, method)]
    return combinations(profile.methods[method].get("grid", {}))


def combinations(values: dict[str, list]) -> list[dict]:
    """Return all combinations of the values, {name: value}."""
    return [dict(zip(values, combination, strict=True)) for combination in product(*values.values())]


def most_chosen(profile: Profile, method: str) -> dict:
    """Return the value that stands for a method's grid where it is not searched, {} without a grid."""
    options = profile.methods[method]
    if "grid" in options and "most_chosen" not in options:
        place = f"profile {profile.name!r}: methods.{method}.most_chosen"
        raise InputError(f"{place}: is missing, the value that is taken where the grid is not searched")
    return dict.fromkeys(options.get("grid", ()), options.get("most_chosen"))


def candidate(profile: Profile, method: str, values: dict, rules: Protocol, **options) -> MemberConfig:
    """Build one member of a method's grid.

    values: the hyperparameters by which it differs from the others. options: those of all, beside the profile's.
    """
    settings = profile.methods[method] | rules.adapters.get(method, {}) | options | values
    rate, beta = settings.pop("learning_rate", profile.learning_rate), settings.pop("beta", 0.0)
    try:
        built = METHODS[method](**{name: settings[name] for name in settings.keys() - {"grid", "most_chosen"}})
    except TypeError as error:
        raise InputError(f"{METHODS[method].title}: {error}") from None
    # Linear probing has no adapter: the searched rate is the head's.
    return MemberConfig(built, rate, rate if method == "linear" else profile.learning_rate, beta, values)
