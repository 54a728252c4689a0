"""Profiles: YAML files in experiments/profiles that say what is trained, read and checked."""

from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_type_hints

from pydantic import Field, model_validator

from pvera import backbones, text_encoders
from pvera.adapters import METHODS
from pvera.data import tasks
from pvera.errors import InputError
from pvera.study.protocol import PROTOCOLS
from pvera.study.training import PRECISIONS, TrainingConfig
from pvera.study.validation import (
    Count,
    Name,
    Natural,
    Rate,
    Settings,
    Several,
    Share,
    Text,
    Weight,
    check,
    choose,
    load_yaml,
)

#: Keys of a file that its section "language" need not repeat.
INHERITED = (
    "name",
    "seeds",
    "protocol",
    "methods",
    "schedule",
    "learning_rate",
    "precision",
    "beta",
    "search_once",
    "images",
)


class Ablations(Settings):
    """PVeRA's rank and position (Tables 2 and 3), on the first backbone: the values train side by side as
    members of one run.

    targets: combinations of q, k and v. search: every value with each learning rate of the grid, not only with the
    most chosen one.
    """

    datasets: Several[Name]
    rank: Several[Count]
    targets: Several[Text]
    search: bool


class Effects(Settings):
    """The runs that measure the differences between the two protocols, one at a time.

    They take the first backbone, these data sets, methods and seeds, and the most chosen value of each grid.

    grids: methods whose full grids measure what concerns a grid's members together (`Variant.grid`).
    """

    datasets: Several[Name]
    methods: Several[Name]
    seeds: Several[Natural]
    grids: Several[Name] = []


class Noise(Settings):
    """PVeRA with σ fixed and β = 0, and VeRA with dropout in its latent, on the first backbone (not in the paper).

    sigma: σ, on every data set. sizes, dropout: other values of σ, and shares of VeRA's latent that are dropped, on
    the first data set of each category.
    """

    sigma: Rate = 1.0
    sizes: list[Rate] = []
    dropout: list[Share] = []


class Published(Settings):
    """The published protocol on the first backbone: each seed searches its own grid.

    methods: those that are trained. beta: of PVeRA. seeds: these alone.
    """

    methods: Several[Name]
    beta: Weight
    seeds: Several[Natural]


class FullSets(Settings):
    """Text tasks on their full training sets, where the others take the first texts (`Profile.images`).

    methods: as in a profile, with other grids.
    """

    datasets: Several[Name]
    methods: Annotated[dict[Text, dict[Text, Any]], Field(min_length=1)]


class Baselines(Settings):
    """What is held against PVeRA's draws, on the first backbone.

    draws: numbers of draws, of PVeRA and of dropout.
    shifted_images: how many test images are corrupted, and how many of other data sets are given.
    shift_draws: number of draws for these images, and along β.
    betas: the values of β that PVeRA is trained with on the first data set of each category.
    """

    draws: Several[Count] = [1, 4, 16]
    shifted_images: Count = 250
    shift_draws: Count = 4
    betas: list[Weight] = []


class Profile(Settings):
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
    component_seeds: of the experiments on PVeRA's components, which are left out where there are none. VeRA and PVeRA
        have those of them that `seeds` lacks as well.
    subset: the data sets of dropout and `rivals`; by default all.
    out_of_distribution: data sets whose models see each other's images; by default the first of each category.
    experiments: those that are run where no others are asked for; by default all.
    noise, published: two experiments that are left out where they are not described.
    draws: of Monte Carlo inference, the numbers that are compared; fewer draws are the first of the most.
    rivals: the methods of uncertainty beside PVeRA's draws.
    weights: per backbone a local file of its weights, instead of the hub's.
    deterministic: see `training.require_determinism`.
    images: for trials, how many images (or texts) of each split are used, the first ones.
    full: of the language experiment, tasks that train on all their texts, each group with its methods.
    language: the language experiment, a profile of its own, whose data sets are text.
    name, text: the file's name, and whether this is a language experiment; the file does not set them.
    """

    name: Name
    data: Text
    backbones: Several[Name]
    datasets: Several[Name]
    seeds: Several[Natural]
    protocol: Literal[tuple(PROTOCOLS)]
    methods: Annotated[dict[Text, dict[Text, Any]], Field(min_length=1)]
    training: TrainingConfig = Field(TrainingConfig(), alias="schedule")
    learning_rate: Rate = 1e-4
    precision: Literal[tuple(PRECISIONS)] = "float32"
    fixed_grid: list[Name] = []
    beta: list[Weight] = []
    alpha: list[Rate] = []
    search_rates: list[Rate] = []
    search_once: bool = False
    component_seeds: list[Natural] = []
    subset: list[Name] = []
    out_of_distribution: list[Name] = []
    experiments: list[Name] = []
    ablations: Ablations | None = None
    effects: Effects | None = None
    noise: Noise | None = None
    published: Published | None = None
    draws: Several[Annotated[int, Field(ge=2)]] = [2, 4, 8, 16]
    rivals: Baselines | None = None
    weights: dict[Name, Text] = {}
    deterministic: bool = False
    images: Count | None = None
    full: list[FullSets] = []
    language: "Profile | None" = None
    text: bool = False

    @model_validator(mode="after")
    def _known_names(self) -> Self:
        for name in self.backbones:
            if self.text:
                choose("text encoder", name, text_encoders.NAMES)
            else:
                backbones.architecture(name)
        parts = [part.datasets for part in (self, self.ablations, self.effects, *self.full) if part]
        for name in chain(*parts, self.subset, self.out_of_distribution):
            if (tasks.task(name, self.data).category == "language") != self.text:
                raise ValueError(f"datasets: {name!r} is a data set of {'images' if self.text else 'texts'}")
        for name, options in chain(self.methods.items(), *(part.methods.items() for part in self.full)):
            choose("method", name, METHODS)
            _check_method(name, options)
        return self

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read the profile in a YAML file. InputError for a missing or malformed file, with the key that is wrong."""
        path = Path(path)
        if not path.is_file():
            raise InputError(f"unknown profile {path.stem!r}: there is no {path}")
        content = load_yaml(path)
        if isinstance(content, dict):
            content = content | {"name": path.stem, "text": False}
            if isinstance(content.get("language"), dict):
                content["language"] = _of_texts(content)
        profile = cls.build(content, path)
        for key in ("fixed_grid", "weights"):
            for name in getattr(profile, key):
                if name not in profile.backbones:
                    raise InputError(f"{path}: {key}: {name!r} is none of backbones ({', '.join(profile.backbones)})")
        return profile

    def of_language(self) -> Self:
        """Return the profile of the language experiment. InputError where there is none."""
        if self.language is None:
            raise InputError(f"profile {self.name!r} has no language experiment")
        return self.language


def _of_texts(content: dict) -> dict:
    """Return the section "language" with the keys of the whole file that it lacks.

    AdaptFormer, which needs a LayerNorm before the MLP, is left out, as in the paper.
    """
    section, inherited = content["language"], {key: content[key] for key in INHERITED if key in content}
    merged = inherited | section | {"text": True}
    for key in ("methods", "schedule"):
        if isinstance(inherited.get(key), dict) and isinstance(section.get(key, {}), dict):
            merged[key] = {name: value for name, value in inherited[key].items() if name != "adaptformer"}
            merged[key] |= section.get(key, {})
    return merged


def _check_method(name: str, options: dict) -> None:
    """Raise ValueError for settings that the method `name` does not have, or a malformed grid."""
    place, hints, grid = f"methods.{name}", get_type_hints(METHODS[name]), options.get("grid", {})
    types = {field.name: hints[field.name] for field in fields(METHODS[name])} | {"learning_rate": Rate}
    check(Annotated[dict[str, Several[Any]], Field(max_length=1)], grid, f"{place}.grid")
    settings = {key: [value] for key, value in options.items() if key not in ("grid", "most_chosen")}
    for key, values in [*settings.items(), *grid.items()]:
        if key not in types:
            raise ValueError(f"{place}.{key}: unknown hyperparameter; choose from {', '.join(types)}")
        for value in values:
            check(types[key], value, f"{place}.{key}")
            if key != "learning_rate":
                METHODS[name](**{key: value})
