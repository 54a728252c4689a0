"""Profiles: YAML files in experiments/profiles that say what is trained, read and checked.

A wrong key is one line, here and in other settings:

my.yaml: schedule.epochs: Input should be a valid integer, not 'ten'
"""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from ruamel.yaml import YAML

from pvera import backbones, text_encoders
from pvera.adapters import METHODS
from pvera.data import tasks
from pvera.errors import InputError, as_input_error
from pvera.study.protocol import PROTOCOLS, VARIANTS

# Settings whose types are checked

T = TypeVar("T")
STRICT = ConfigDict(strict=True, allow_inf_nan=False)
WORDS = {"extra_forbidden": "unknown key", "missing": "is missing"}


def _distinct(values: list) -> list:
    if twice := [value for index, value in enumerate(values) if value in values[:index]]:
        raise ValueError(f"{twice[0]!r} stands twice")
    return values


Share = Annotated[float, Field(ge=0, lt=1)]
Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$")]
Name = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
Several = Annotated[list[T], Field(min_length=1), AfterValidator(_distinct)]


class Settings(BaseModel):
    """Frozen settings whose values have exactly their fields' types."""

    model_config = STRICT | ConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True
    )

    @classmethod
    def build(cls, content: Any, place: str | Path = "") -> Self:
        """Build from a mapping. InputError names `place` and the keys that are wrong."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise InputError(": ".join(filter(None, [str(place), one_line(error)]))) from None

    def with_(self, **changes) -> Self:
        """Return a copy with other values; None changes nothing. InputError for values that do not fit."""
        return self.build(
            dict(self) | {key: value for key, value in changes.items() if value is not None}
        )


def one_line(error: ValidationError) -> str:
    """Return the first error, with its keys, on one line."""
    first = error.errors()[0]
    message = WORDS.get(first["type"], first["msg"]).removeprefix("Value error, ")
    if first["type"] not in (*WORDS, "value_error"):
        message += f", not {repr(first['input'])[:60]}"
    keys = ".".join(str(key) if str(key).isprintable() else repr(key) for key in first["loc"])
    return ": ".join(filter(None, [keys, message]))


def check(type_: Any, value: Any, place: str) -> None:
    """Raise ValueError, which names `place`, for a value that is not of the type."""
    try:
        TypeAdapter(type_, config=STRICT).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"{place}: {one_line(error)}") from None


def choose(what: str, name: str, among: Iterable[str]) -> None:
    """Raise InputError unless `name` is one of `among`."""
    if name not in among:
        raise InputError(f"unknown {what} {name!r}; choose from {', '.join(among)}")


def load_yaml(path: str | Path) -> Any:
    """Read a file in YAML 1.2, in which 1e-3 is a number and a key stands once. InputError names the wrong line."""
    with as_input_error(f"{path} cannot be read"):
        return YAML(typ="safe", pure=True).load(Path(path).read_text(encoding="utf-8"))


# Profiles

#: Of the products in the forward and backward pass; trained tensors, loss and KL term are always fp32.
PRECISIONS = ("float32", "bfloat16")
#: Hyperparameters of every method: the adapters' learning rate, and β of the loss. "published" is the data set's β in
#: `protocol.PUBLISHED_BETA`.
OF_TRAINING = {"learning_rate": PositiveFloat, "beta": NonNegativeFloat | Literal["published"]}

#: Each seed searches a grid, or the first one for all.
CHOICES = ("each_seed", "first_seed")

Hyperparameters = dict[Text, Any]


class TrainingConfig(Settings):
    """The paper's training settings (Section 4.2); learning rates are the members' own."""

    batch_size: PositiveInt = 16
    epochs: PositiveInt = 500
    patience: PositiveInt = 20
    tolerance: Share = 1e-3
    weight_decay: NonNegativeFloat = 1e-4


class Experiment(Settings):
    """One training experiment: every method on every backbone and data set with every seed, but for what it says.

    methods, backbones, datasets: those of the profile that stand here, by default all.
    seeds: by default the profile's.
    protocol: one of `protocol.VARIANTS`, by default the profile's. A difference that concerns one method trains
        that method alone.
    set: hyperparameters of all runs, instead of the profile's.
    inherit: experiments whose first seed has searched hyperparameters of the method on the same data set. Their choice
        replaces the profile's values; `set` and `grid` replace the choice.
    vary: one hyperparameter, or "protocol", with its values. The runs of each value lie below "<experiment>_<value>".
    grid: hyperparameters with the values that are searched, all combinations; by default the grid of the method.
    search: without, the method's `default` replaces its grid.
    choose: who chooses from the grid: "each_seed" for itself, the "first_seed" for all, or the first seed of another
        experiment; by default as the profile says.
    folder: of the results, by default the experiment's name. Experiments may share one.
    keep: predictions and adapters stay beside the records.
    all_images: train and test on all images (texts), whatever the profile's `images`.
    on_request: runs only where it is asked for.
    """

    methods: Several[Name] | None = None
    backbones: Several[Name] | None = None
    datasets: Several[Name] | None = None
    seeds: Several[NonNegativeInt] | None = None
    protocol: Text | None = None
    set: Hyperparameters = {}
    inherit: list[Name] = []
    vary: Annotated[dict[Text, Several[Any]], Field(max_length=1)] = {}
    grid: dict[Text, Several[Any]] = {}
    search: bool = True
    choose: Name | None = None
    folder: Name | None = None
    keep: bool = False
    all_images: bool = False
    on_request: bool = False

    @model_validator(mode="after")
    def _known_protocols(self) -> Self:
        for name in filter(None, (self.protocol, *self.vary.get("protocol", ()))):
            choose("protocol", name, VARIANTS)
        return self

    def variants(self, name: str) -> dict[str, Hyperparameters]:
        """Return the folders of results with the value that each varies; `name`: of the experiment."""
        folder = self.folder or name
        if not self.vary:
            return {folder: {}}
        ((key, values),) = self.vary.items()
        texts = [f"{value:g}" if isinstance(value, float) else value for value in values]
        return {f"{folder}_{text}": {key: value} for text, value in zip(texts, values, strict=True)}


class Profile(Settings):
    """A profile's backbones, data sets, methods with their grids, seeds, budget, protocol and experiments.

    title: of its tasks and backbone in tables and figures; by default its name.
    methods: per method its fixed hyperparameters, `grid` (hyperparameters with the values that are searched) and
        `default`, the values that replace the grid where it is not searched.
    training: `schedule` in the file.
    learning_rate: of heads, and of adapters without a learning-rate grid (Section 4.2).
    precision: one of `PRECISIONS`.
    choose: see `Experiment`.
    experiments: the trainings by name; by default the benchmark.
    analyses: the analyses that run where no others are asked for, each with the experiments whose adapters it reads; by
        default all, most of them of the benchmark.
    out_of_distribution: data sets whose models see each other's images; by default the first of each category.
    pictures: whether results may hold test images; those of VTAB-1k's public copies may not be passed on.
    gpu: whether `run_all.sh` asks for one.
    weights: per backbone a local file of its weights, instead of the hub's.
    image_size: pixels of an image's side on all backbones, instead of their own.
    images: for trials, how many images (or texts) of each split are used, the first ones.
    name: of the file, which does not set it.
    """

    name: Name
    title: Text | None = None
    data: Text
    backbones: Several[Name]
    datasets: Several[Name]
    seeds: Several[NonNegativeInt]
    protocol: Literal[tuple(PROTOCOLS)]
    methods: Annotated[dict[Text, Hyperparameters], Field(min_length=1)]
    training: TrainingConfig = Field(TrainingConfig(), alias="schedule")
    learning_rate: PositiveFloat = 1e-4
    precision: Literal[PRECISIONS] = "float32"
    fixed_grid: list[Name] = []
    choose: Literal[CHOICES] = "each_seed"
    experiments: dict[Name, Experiment] = {"benchmark": Experiment(keep=True)}
    analyses: dict[Name, Several[Name]] = {}
    out_of_distribution: list[Name] = []
    pictures: bool = True
    gpu: bool = False
    weights: dict[Name, Text] = {}
    image_size: PositiveInt | None = None
    images: PositiveInt | None = None

    @property
    def text(self) -> bool:
        """Whether the data sets are of texts."""
        return self.backbones[0] in text_encoders.NAMES

    @model_validator(mode="after")
    def _known_names(self) -> Self:
        for name in self.backbones:
            if self.text:
                choose("text encoder", name, text_encoders.NAMES)
            else:
                backbones.architecture(name, self.image_size)
        named = [
            name for experiment in self.experiments.values() for name in experiment.datasets or ()
        ]
        for name in (*self.datasets, *self.out_of_distribution, *named):
            if (tasks.find_task(name, self.data).category == "language") != self.text:
                raise ValueError(
                    f"datasets: {name!r} is a data set of {'images' if self.text else 'texts'}"
                )
        for name, options in self.methods.items():
            choose("method", name, METHODS)
            grid, default, place = (
                options.get("grid", {}),
                options.get("default", {}),
                f"methods.{name}",
            )
            check(dict[str, Several[Any]], grid, f"{place}.grid")
            check(dict[str, Any], default, f"{place}.default")
            fixed = {key: value for key, value in options.items() if key not in ("grid", "default")}
            _check_hyperparameters(place, name, fixed | default, grid)
        for name, experiment in self.experiments.items():
            for other in (*experiment.inherit, experiment.choose or CHOICES[0]):
                choose("experiment", other, (*CHOICES, *self.experiments))
            varied = {key: values for key, values in experiment.vary.items() if key != "protocol"}
            for method in experiment.methods or self.methods:
                choose("method", method, METHODS)
                _check_hyperparameters(
                    f"experiments.{name}", method, experiment.set, varied | experiment.grid
                )
        return self

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read the profile in a YAML file. InputError for a missing or malformed file, with the key that is wrong."""
        path = Path(path)
        content = _with_base(path)
        if isinstance(content, dict):
            content = content | {"name": path.stem}
        profile = cls.build(content, path)
        for key in ("fixed_grid", "weights"):
            for name in getattr(profile, key):
                if name not in profile.backbones:
                    raise InputError(
                        f"{path}: {key}: {name!r} is none of backbones ({', '.join(profile.backbones)})"
                    )
        return profile


def _with_base(path: Path, *derived: Path) -> Any:
    """Return a file's content; its keys replace those of its `base`, and its methods those of the same name.

    A method that is null is left out. `derived`: the profiles that this one is the base of. InputError for a missing
    file, and for a profile that is its own base.
    """
    if path in derived:
        raise InputError(f"{path}: base: a profile cannot be its own base")
    if not path.is_file():
        raise InputError(f"unknown profile {path.stem!r}: there is no {path}")
    content = load_yaml(path)
    if not isinstance(content, dict) or "base" not in content:
        return content
    base = path.with_name(f"{content.pop('base')}.yaml")
    inherited = _with_base(base, path, *derived)
    if not isinstance(inherited, dict):
        return inherited  # which `Profile` refuses

    merged = inherited | content
    methods = inherited.get("methods"), content.get("methods", {})
    if all(isinstance(of_file, dict) for of_file in methods):
        both = methods[0] | methods[1]
        merged["methods"] = {name: options for name, options in both.items() if options is not None}
    return merged


def _check_hyperparameters(
    place: str, method: str, fixed: dict[str, Any], searched: dict[str, list]
) -> None:
    """Raise ValueError, which names `place`, for hyperparameters that the method does not have or refuses."""
    hints = get_type_hints(METHODS[method])
    types = {field.name: hints[field.name] for field in fields(METHODS[method])} | OF_TRAINING
    for key, values in [*((key, [value]) for key, value in fixed.items()), *searched.items()]:
        if key not in types:
            raise ValueError(
                f"{place}.{key}: unknown hyperparameter; choose from {', '.join(types)}"
            )
        for value in values:
            check(types[key], value, f"{place}.{key}")
            if key not in OF_TRAINING:
                METHODS[method](**{key: value})
