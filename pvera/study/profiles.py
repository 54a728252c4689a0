"""Profiles: YAML files in experiments/profiles that say what is trained, read and checked."""

from dataclasses import fields
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import (
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from pvera import backbones, text_encoders
from pvera.adapters import METHODS
from pvera.data import tasks
from pvera.errors import InputError
from pvera.study.checked import (
    DistinctList,
    Name,
    OneLine,
    StrictModel,
    load_yaml,
    require_known,
    require_type,
)
from pvera.study.protocol import PROTOCOLS

#: How the products in the forward and backward pass are computed; trained tensors, loss and KL
#: term are always fp32.
Precision = Literal["float32", "bfloat16"]
PRECISIONS = get_args(Precision)

#: Who searches a grid: each seed, or the first one for all.
Chooser = Literal["each_seed", "first_seed"]

#: Hyperparameters of every method: the adapters' learning rate, and β of the loss. "published" is
#: the data set's β in `protocol.OFFICIAL_BETA`.
TRAINING_HYPERPARAMETERS = {
    "learning_rate": PositiveFloat,
    "beta": NonNegativeFloat | Literal["published"],
}

Hyperparameters = dict[OneLine, Any]


class Schedule(StrictModel):
    """The paper's training settings (Section 4.2); learning rates are the members' own.

    Its fields are part of `config_hash`: to rename or add one changes every result.
    """

    batch_size: PositiveInt = 16
    epochs: PositiveInt = 500
    patience: PositiveInt = 20
    tolerance: Annotated[float, Field(ge=0, lt=1)] = 1e-3
    weight_decay: NonNegativeFloat = 1e-4


class Experiment(StrictModel):
    """One training experiment: by default every method on every backbone, data set and seed."""

    #: Methods, backbones and data sets of the profile that take part, by default all.
    methods: DistinctList[Name] | None = None
    backbones: DistinctList[Name] | None = None
    datasets: DistinctList[Name] | None = None
    #: Seeds, by default the profile's.
    seeds: DistinctList[NonNegativeInt] | None = None
    #: A key of `protocol.PROTOCOLS`, by default the profile's. A difference that concerns one
    #: method trains that method alone.
    protocol: OneLine | None = None
    #: Values of hyperparameters, such as {beta: 0.0}, for every method that takes part and all
    #: members of its grid. They replace the profile's; what the grid gives, or without a search a
    #: method's `default`, is refused here and in `vary`.
    set: Hyperparameters = {}
    #: Experiments whose values are used, those that their first seed chose. They replace the
    #: profile's; `set`, `vary` and the grid replace them.
    inherit: list[Name] = []
    #: One hyperparameter, or "protocol", with its values. The results of each value lie in the
    #: folder "<experiment>_<value>".
    vary: Annotated[dict[OneLine, DistinctList[Any]], Field(max_length=1)] = {}
    #: Hyperparameters with the values that are searched, all combinations; by default the grid of
    #: the method.
    grid: dict[OneLine, DistinctList[Any]] = {}
    #: Whether grids are searched; otherwise a method's `default` replaces its grid. On backbones of
    #: `Profile.fixed_grid` only `grid` above is searched.
    search: bool = True
    #: Who chooses from a grid, by default as the profile says.
    choose: Chooser | None = None
    #: Folder of the results, by default the experiment's name. Experiments may share one.
    folder: Name | None = None
    #: Whether all images (texts) are used, whatever the profile's `images`.
    all_images: bool = False
    #: Whether it is trained only where it is asked for.
    on_request: bool = False

    def folders(self, name: str) -> dict[str, Hyperparameters]:
        """Return the folders of the results, each with the value that it varies.

        Args:
            name: Key of the experiment.
        """
        folder = self.folder or name
        # `vary` has one key at most.
        if not self.vary:
            return {folder: {}}
        ((key, values),) = self.vary.items()
        return {f"{folder}_{value}": {key: value} for value in values}


class Profile(StrictModel):
    """A profile's backbones, data sets, methods with their grids, seeds, and experiments."""

    #: Set by `read` from the name of the file, which has no such key.
    name: Name
    #: How tables and figures call its tasks and backbone; by default its name.
    title: OneLine | None = None
    #: Folder of the data sets.
    data: OneLine
    backbones: DistinctList[Name]
    datasets: DistinctList[Name]
    seeds: DistinctList[NonNegativeInt]
    protocol: Literal["corrected", "published"]
    #: For each method its fixed hyperparameters, `grid` (hyperparameters with the values that are
    #: searched) and `default`, the values that replace the grid where it is not searched.
    methods: Annotated[dict[OneLine, Hyperparameters], Field(min_length=1)]
    #: Schedule of all trainings.
    schedule: Schedule = Schedule()
    #: Learning rate of heads, and of adapters without a grid of it (Section 4.2).
    learning_rate: PositiveFloat = 1e-4
    precision: Precision = "float32"
    #: Backbones on which the methods' grids are not searched, as with `Experiment.search` false.
    fixed_grid: list[Name] = []
    #: Who chooses from a grid.
    choose: Chooser = "each_seed"
    #: The trainings by name; by default the one named "benchmark", which trains all methods.
    experiments: dict[Name, Experiment] = {"benchmark": Experiment()}
    #: Experiments that each train a variant of one method, with the variants' titles.
    variants: dict[Name, OneLine] = {}
    #: The analyses that run where no others are asked for, each with the experiments whose
    #: adapters it reads; by default all that there are, of the benchmark.
    analyses: dict[Name, DistinctList[Name]] | None = None
    #: Data sets whose models see each other's images; by default the first of each category.
    out_of_distribution: list[Name] = []
    #: Whether results may hold test images; those of VTAB-1k's public copies may not be shared.
    pictures: bool = True
    #: Whether `run_all.sh` asks for one.
    gpu: bool = False
    #: For backbones a local file of its weights, instead of the hub's.
    weights: dict[Name, OneLine] = {}
    #: Pixels of an image's side on all backbones, instead of their own.
    image_size: PositiveInt | None = None
    #: For trials: how many images (or texts) of each split are used, the first ones.
    images: PositiveInt | None = None

    @property
    def is_text(self) -> bool:
        """Whether the data sets are of texts."""
        return self.backbones[0] in text_encoders.NAMES

    # Checked in two steps. What follows holds of every profile, also of one that options narrow to
    # some methods or data sets (`replaced`). `_check_references` is of files alone: after that the
    # experiments may name what the options left out.

    @model_validator(mode="after")
    def _check_content(self) -> Self:
        """Check names, hyperparameters, and what experiments wait for."""
        for name in self.backbones:
            if self.is_text:
                require_known("text encoder", name, text_encoders.NAMES)
            else:
                backbones.architecture(name, self.image_size)  # for its error
        self._check_datasets()
        for name, options in self.methods.items():
            _check_method(name, options)
        for name, experiment in self.experiments.items():
            self._check_experiment(name, experiment)
        order = TopologicalSorter({name: each.inherit for name, each in self.experiments.items()})
        try:
            order.prepare()
        except CycleError as error:
            name = error.args[1][0]
            raise ValueError(f"experiments.{name}.inherit: {name!r} waits for itself") from None
        return self

    def _check_datasets(self) -> None:
        names = [*self.datasets, *self.out_of_distribution]
        for experiment in self.experiments.values():
            names += experiment.datasets or ()
        for name in names:
            is_text = tasks.find_data_set(name, self.data).category == "language"
            if is_text != self.is_text:
                kind = "texts" if is_text else "images"
                raise ValueError(f"datasets: {name!r} is a data set of {kind}")

    def _check_experiment(self, name: str, experiment: Experiment) -> None:
        for other in experiment.inherit:
            require_known("experiment", other, self.experiments)
            self._check_inherited(name, other)
        # A protocol can be varied as hyperparameters are, but is none.
        searched = dict(experiment.vary)
        for each in searched.pop("protocol", [experiment.protocol or self.protocol]):
            require_known("protocol", each, PROTOCOLS)
        searched |= experiment.grid
        for method in experiment.methods or self.methods:
            require_known("method", method, METHODS)
            _check_hyperparameters(f"experiments.{name}", method, experiment.set, searched)

    def _check_inherited(self, name: str, other: str) -> None:
        """Raise ValueError where an experiment would wait for a choice that is never made."""
        key = f"experiments.{name}.inherit: {other!r}"
        if self.experiments[other].vary:
            raise ValueError(f"{key} has 'vary', so it chooses no single value")
        for kind in ("backbones", "datasets"):
            known = getattr(self, kind)
            needed = getattr(self.experiments[name], kind) or known
            trained = getattr(self.experiments[other], kind) or known
            lacking = set(needed) & set(known) - set(trained)
            if lacking:
                raise ValueError(f"{key} lacks {min(lacking)!r} in its {kind}")

    @classmethod
    def read(cls, path: str | Path, derived: tuple[Path, ...] = ()) -> Self:
        """Read the profile in a YAML file.

        Args:
            path: The file.
            derived: Files that have it as their base.

        Raises:
            InputError: The file is missing or a key is wrong; names the key.
        """
        path = Path(path)
        if path in derived:
            raise InputError(f"{path}: base: the file is its own base")
        if not path.is_file():
            raise InputError(f"unknown profile {path.stem!r}: there is no {path}")
        written = load_yaml(path)
        content = written
        if isinstance(content, dict):  # `build` refuses another value
            if "base" in content:
                content = _on_base(path, content, derived)
            content = content | {"name": path.stem}
        profile = cls.build(content, path)
        profile._check_references(path, written)
        return profile

    def _check_references(self, path: Path, written: dict[str, Any]) -> None:
        """Raise InputError for names that refer to other keys of the file and do not fit.

        Experiments of a base, which are not in what is written, may name what the file leaves out.

        Args:
            path: The file, which messages name.
            written: What it holds itself, without its base.
        """
        references = [
            ("fixed_grid", self.fixed_grid, self.backbones),
            ("weights", self.weights, self.backbones),
            ("variants", self.variants, self.experiments),
        ]
        for name, experiments in (self.analyses or {}).items():
            references.append((f"analyses.{name}", experiments, self.experiments))
        for name in written.get("experiments", ()):
            for key in ("methods", "backbones", "datasets"):
                named = getattr(self.experiments[name], key) or ()
                references.append((f"experiments.{name}.{key}", named, getattr(self, key)))
        for key, names, known in references:
            for name in names:
                if name not in known:
                    raise InputError(f"{path}: {key}: {name!r} is none of {', '.join(known)}")

        for name in self.variants:
            methods = self.experiments[name].methods or ()
            if len(methods) != 1:
                raise InputError(
                    f"{path}: variants: experiment {name!r} must name the one method that it varies"
                )


def _on_base(path: Path, content: dict[str, Any], derived: tuple[Path, ...]) -> dict[str, Any]:
    """Return a profile's content on top of that of its base.

    A key replaces the one of the base, and a method the one of its name; a method that is null is
    left out.
    """
    base = Profile.read(path.with_name(f"{content['base']}.yaml"), (*derived, path))
    inherited = base.model_dump(exclude_unset=True)
    merged = inherited | content
    del merged["base"]
    if isinstance(merged["methods"], dict):  # `build` refuses another value
        methods = inherited["methods"] | merged["methods"]
        merged["methods"] = {name: each for name, each in methods.items() if each is not None}
    return merged


def _check_method(name: str, options: Hyperparameters) -> None:
    """Raise ValueError for wrong hyperparameters of a method."""
    require_known("method", name, METHODS)
    key = f"methods.{name}"
    fixed = dict(options)
    grid = fixed.pop("grid", {})
    default = fixed.pop("default", {})
    require_type(dict[str, DistinctList[Any]], grid, f"{key}.grid")
    require_type(dict[str, Any], default, f"{key}.default")
    _check_hyperparameters(key, name, fixed | default, grid)


def _check_hyperparameters(
    key: str, method: str, fixed: Hyperparameters, searched: dict[str, list]
) -> None:
    """Raise ValueError, which names `key`, for what the method does not have or refuses."""
    own_names = [field.name for field in fields(METHODS[method])]
    candidates = [(name, [value]) for name, value in fixed.items()]
    for name, values in [*candidates, *searched.items()]:
        for value in values:
            if name in own_names:
                METHODS[method](**{name: value})
            elif name in TRAINING_HYPERPARAMETERS:
                require_type(TRAINING_HYPERPARAMETERS[name], value, f"{key}.{name}")
            else:
                known = ", ".join([*own_names, *TRAINING_HYPERPARAMETERS])
                raise ValueError(f"{key}.{name}: unknown hyperparameter; choose from {known}")
