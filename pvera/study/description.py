"""Profiles: YAML files in experiments/profiles that describe runs, read and checked."""

from dataclasses import asdict, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import Field

from pvera import backbones, text_encoders
from pvera.adapters import METHODS
from pvera.data import tasks
from pvera.encoders import POOLS
from pvera.errors import InputError
from pvera.study.protocol import protocol
from pvera.study.training import PRECISIONS, TrainingConfig
from pvera.study.validation import (
    GIVEN,
    Count,
    Distinct,
    Name,
    Natural,
    Rate,
    Several,
    Share,
    Switch,
    Text,
    Weight,
    at,
    build,
    check,
    choose,
    expected,
    load_yaml,
    shown,
    validated,
)

#: The checked types of the methods' hyperparameters.
STRICT = {int: Count, float: Rate, bool: Switch, str: Text}
Number = Annotated[int, Field(strict=True, ge=2), expected("a whole number from 2")]


@validated
class Ablations:
    """PVeRA's rank and position (Tables 2 and 3), on the first backbone: the values train side by side as
    members of one run.

    targets: combinations of q, k and v. search: every value with each learning rate of the grid (`search_rates`,
    where there are some), not only with the most chosen one. seeds: these alone of the profile's.
    """

    datasets: Several[Name]
    rank: Several[Count]
    targets: Several[Text]
    search: Switch
    seeds: Distinct[Natural] = field(default_factory=list)

    def __post_init__(self):
        with at("targets"):
            for targets in self.targets:
                METHODS["pvera"](targets=targets)


@validated
class Effects:
    """The runs that measure the differences between the two protocols, one at a time.

    They take the first backbone, these data sets, methods and seeds, and the most chosen value of each grid.

    grids: methods whose full grids measure what concerns a grid's members together (`Variant.grid`).
    """

    datasets: Several[Name]
    methods: Several[Name]
    seeds: Several[Natural]
    grids: Several[Name] = field(default_factory=list)


@validated
class Noise:
    """PVeRA with σ fixed and β = 0, and VeRA with dropout in its latent, on the first backbone (not in the paper).

    sigma: σ, on every data set. sizes, dropout: other values of σ, and shares of VeRA's latent that dropout drops, on
    the first data set of each category.
    """

    sigma: Rate = 1.0
    sizes: Distinct[Rate] = field(default_factory=list)
    dropout: Distinct[Share] = field(default_factory=list)


@validated
class Published:
    """The published protocol on every data set and the first backbone: each seed searches its own grid.

    methods: those that are trained. beta: of PVeRA.
    """

    methods: Several[Name]
    beta: Weight


@validated
class Draws:
    """Monte Carlo inference on the adapters of the benchmark.

    draws: the numbers of draws that are compared; fewer draws are the first of the most.
    truth_images, truth_draws: for the coverage of intervals, how many test images get how many further draws.
    """

    draws: Several[Number] = field(default_factory=lambda: [2, 4, 8, 16])
    truth_images: Count = 64
    truth_draws: Number = 256

    def __post_init__(self):
        if self.draws != sorted(self.draws):
            raise InputError(f"draws: must ascend, unlike {self.draws}")


@validated
class Rivals:
    """What is held against PVeRA's draws, on the first backbone.

    methods: those whose adapters are compared. draws: numbers of draws, of PVeRA and of dropout.
    dropout: share of the adapters' input that LoRA and VeRA drop in trainings of their own.
    shifts: whether test images are corrupted. shifted_images: how many are, and how many of other data sets are given.
    shift_draws: number of draws for these images, and along β.
    betas: the values of β that PVeRA is trained with on the first data set of each category.
    out: data set -> others that lie out of its distribution; by default the next one of its category (near) and the
        next one of another category (far).
    """

    methods: Several[Name] = field(default_factory=lambda: ["linear", "lora", "vera", "pvera"])
    draws: Several[Count] = field(default_factory=lambda: [1, 4, 16])
    dropout: Share = 0.1
    shifts: Switch = True
    shifted_images: Count = 250
    shift_draws: Count = 4
    betas: Distinct[Weight] = field(default_factory=list)
    out: dict[Name, Several[Name]] | None = None

    def __post_init__(self):
        with at("shift_draws"):
            if self.shift_draws not in self.draws:
                raise InputError(f"{self.shift_draws} is none of draws ({', '.join(map(str, self.draws))})")


@validated
class Description:
    """A profile's backbones, data sets, methods with their grids, seeds, budget and protocol.

    methods: per method its fixed hyperparameters, `grid` (one name with its values) and `most_chosen`, the
    value that backbones in `fixed_grid` take instead of searching.
    training: `schedule` in the file.
    learning_rate: of heads, and of adapters without a learning-rate grid (Section 4.2).
    precision: see `training.PRECISIONS`.
    beta: the values of β searched on data sets for which the published program states none.
    alpha: as many values of VeRA's α, which give it as many configurations to choose from.
    search_rates: the learning rates with which each value of β and α is tried, instead of the most chosen one.
    search_once: the first seed of an experiment searches each grid, and its other seeds train the value that it chose.
    component_seeds: of the experiments on PVeRA's components, which are left out where there are none.
    further_seeds: of VeRA and PVeRA, beside `seeds`.
    noise, published: two experiments that are left out where they are not described.
    weights: per backbone a local file of its weights, instead of the hub's.
    deterministic: see `training.deterministic`.
    images: for trials, how many images (or texts) of each split are used, the first ones.
    pool: of texts, "first" token or "mean" of the tokens; by default as the encoder was trained.
    language: the language experiment, a profile of its own (see `of_language`), whose data sets are text.
    """

    name: Name = field(metadata={GIVEN: True})
    data: Text
    backbones: Several[Name]
    datasets: Several[Name]
    seeds: Several[Natural]
    protocol: Text
    methods: Annotated[dict[Text, dict[Text, Any]], Field(min_length=1)]
    training: Annotated[TrainingConfig, Field(alias="schedule")] = TrainingConfig()
    learning_rate: Rate = 1e-4
    precision: Text = "float32"
    fixed_grid: Distinct[Name] = field(default_factory=list)
    beta: Distinct[Weight] = field(default_factory=list)
    alpha: Distinct[Rate] = field(default_factory=list)
    search_rates: Distinct[Rate] = field(default_factory=list)
    search_once: Switch = False
    component_seeds: Distinct[Natural] = field(default_factory=list)
    further_seeds: Distinct[Natural] = field(default_factory=list)
    ablations: Ablations | None = None
    effects: Effects | None = None
    noise: Noise | None = None
    published: Published | None = None
    uncertainty: Draws = Draws()
    rivals: Rivals | None = None
    weights: dict[Name, Text] = field(default_factory=dict)
    deterministic: Switch = False
    images: Count | None = None
    pool: Text | None = None
    language: "Description | None" = None
    text: Switch = field(default=False, metadata={GIVEN: True})

    def __post_init__(self):
        with at("protocol"):
            protocol(self.protocol)
        with at("precision"):
            choose("precision", self.precision, PRECISIONS)
        with at("pool"):
            if self.pool is not None:
                if not self.text:
                    raise InputError("is for texts, so it belongs to `language`")
                choose("pooling", self.pool, POOLS)
        with at("backbones"):
            for name in self.backbones:
                if self.text:
                    choose("text encoder", name, text_encoders.NAMES)
                else:
                    backbones.architecture(name)
        with at("datasets"):
            for name in self.datasets:
                if (tasks.task(name, self.data).category == "language") != self.text:
                    raise InputError(f"{name!r} is a data set of {'images' if self.text else 'texts'}")
        for name, options in self.methods.items():
            with at(f"methods.{name}"):
                choose("method", name, METHODS)
            _check_method(name, options)

    @classmethod
    def read(cls, path: str | Path) -> "Description":
        """Read the profile in a YAML file. InputError for a missing or malformed file, with the key that is wrong."""
        path = Path(path)
        if not path.exists():
            raise InputError(f"unknown profile {path.stem!r}: there is no {path}")
        content = load_yaml(path)
        section = content.pop("language", None) if isinstance(content, dict) else None
        profile = cls._build(content, path, "", {"name": path.stem})
        if section is not None:
            profile = replace(profile, language=profile._language(section, path))
        return profile

    @classmethod
    def _build(cls, content: Any, path: Path, section: str, given: dict) -> "Description":
        if isinstance(content, dict):
            if wrong := [item.name for item in fields(cls) if item.metadata.get(GIVEN) and item.name in content]:
                raise InputError(f"{path}: {'.'.join(filter(None, [section, wrong[0]]))}: cannot be set")
            content = content | given
        profile = build(cls, content, path, section)
        with at(str(path)):
            profile._check_references(section)
        return profile

    def _language(self, section: Any, path: Path) -> "Description":
        """Return the profile that the section "language" describes; keys that it lacks are as for images.

        AdaptFormer, which needs a LayerNorm before the MLP, is left out, as in the paper.
        """
        if not isinstance(section, dict):
            raise InputError(f"{path}: language: must be a mapping, not {shown(section)}")
        kept = {name: options for name, options in self.methods.items() if name != "adaptformer"}
        keys = [item.name for item in fields(self) if not item.metadata.get(GIVEN) and item.name != "training"]
        inherited = {key: getattr(self, key) for key in keys} | {
            "ablations": None,
            "effects": None,
            "noise": None,
            "published": None,
            "rivals": None,
            "alpha": [],
            "search_rates": [],
            "component_seeds": [],
            "further_seeds": [],
            "weights": {},
            "fixed_grid": [],
            "methods": kept,
            "schedule": asdict(self.training),
        }
        for name in ("methods", "schedule"):
            if isinstance(section.get(name), dict):
                section = section | {name: inherited[name] | section[name]}
        return self._build(inherited | section, path, "language", {"name": self.name, "text": True})

    def of_language(self) -> "Description":
        """Return the profile of the language experiment. InputError where there is none."""
        if self.language is None:
            raise InputError(f"profile {self.name!r} has no language experiment")
        return self.language

    def with_(self, **changes) -> "Description":
        """Return a copy with other values; None changes nothing. InputError for values that do not fit."""
        return replace(self, **{k: v for k, v in changes.items() if v is not None})

    def _check_references(self, section: str) -> None:
        """Raise InputError for a name in one key of a file that the key to which it refers lacks."""
        subsets = {
            "fixed_grid": ("backbones", self.fixed_grid),
            "weights": ("backbones", self.weights),
        }
        if self.ablations:
            subsets["ablations.datasets"] = "datasets", self.ablations.datasets
        if self.effects:
            subsets |= {
                f"effects.{name}": (name, getattr(self.effects, name)) for name in ("datasets", "methods", "seeds")
            }
        for key, (name, part) in subsets.items():
            whole = getattr(self, name)
            if unknown := [value for value in part if value not in whole]:
                place = ".".join(filter(None, [section, key]))
                raise InputError(f"{place}: {unknown[0]!r} is none of {name} ({', '.join(map(str, whole))})")


def _check_method(name: str, options: dict) -> None:
    """Raise InputError for settings that the method `name` does not have, or a malformed grid."""
    place = f"methods.{name}"
    fixed = {key: value for key, value in options.items() if key not in ("grid", "most_chosen")}
    for key, value in fixed.items():
        with at(f"{place}.{key}"):
            _check_hyperparameter(name, key, value)
    if "grid" not in options:
        if "most_chosen" in options:
            raise InputError(f"{place}.most_chosen: there is no grid that it could be of")
        return
    grid = options["grid"]
    if not isinstance(grid, dict) or len(grid) != 1:
        raise InputError(f"{place}.grid: must be one hyperparameter with its values, not {shown(grid)}")
    ((key, values),) = grid.items()
    with at(f"{place}.grid.{key}"):
        check(Several[Any], values)
        for value in values:
            _check_hyperparameter(name, key, value)
    if key in fixed:
        raise InputError(f"{place}.{key}: stands in the grid as well")
    if "most_chosen" in options and options["most_chosen"] not in values:
        raise InputError(f"{place}.most_chosen: {options['most_chosen']!r} is none of the grid's values {values}")


def _check_hyperparameter(method: str, name: str, value: Any) -> None:
    types = get_type_hints(METHODS[method])
    types = {item.name: types[item.name] for item in fields(METHODS[method])} | {"learning_rate": float}
    if name not in types:
        raise InputError(f"unknown hyperparameter; choose from {', '.join(types)}")
    check(STRICT.get(types[name], types[name]), value)
    if name != "learning_rate":
        METHODS[method](**{name: value})
