"""Profiles: YAML files in experiments/profiles that say what is trained, read and checked."""

from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_type_hints

from pydantic import Field, model_validator

from pvera import backbones, text_encoders
from pvera.adapters import METHODS
from pvera.data import tasks
from pvera.encoders import POOLS
from pvera.errors import InputError
from pvera.study.protocol import PROTOCOLS
from pvera.study.training import PRECISIONS, TrainingConfig
from pvera.study.validation import (
    Count,
    Distinct,
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

#: Keys that the language experiment does not inherit.
IMAGES_ALONE = {"ablations", "alpha", "component_seeds", "effects", "experiments", "fixed_grid", "further_datasets",
                "further_seeds", "language", "noise", "published", "rivals", "search_rates", "weights"}  # fmt: skip


class Ablations(Settings):
    """PVeRA's rank and position (Tables 2 and 3), on the first backbone: the values train side by side as
    members of one run.

    targets: combinations of q, k and v. search: every value with each learning rate of the grid (`search_rates`,
    where there are some), not only with the most chosen one. seeds: these alone of the profile's.
    """

    datasets: Several[Name]
    rank: Several[Count]
    targets: Several[Text]
    search: bool
    seeds: Distinct[Natural] = []


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
    sizes: Distinct[Rate] = []
    dropout: Distinct[Share] = []


class Published(Settings):
    """The published protocol on every data set and the first backbone: each seed searches its own grid.

    methods: those that are trained. beta: of PVeRA. seeds: these alone.
    """

    methods: Several[Name]
    beta: Weight
    seeds: Several[Natural]


class Baselines(Settings):
    """What is held against PVeRA's draws, on the first backbone.

    methods: those whose adapters are compared. draws: numbers of draws, of PVeRA and of dropout.
    dropout: share of the adapters' input that LoRA and VeRA drop in trainings of their own.
    shifts: whether test images are corrupted. shifted_images: how many are, and how many of other data sets are given.
    shift_draws: number of draws for these images, and along β.
    betas: the values of β that PVeRA is trained with on the first data set of each category.
    """

    methods: Several[Name] = ["linear", "lora", "vera", "pvera"]
    draws: Several[Count] = [1, 4, 16]
    dropout: Share = 0.1
    shifts: bool = True
    shifted_images: Count = 250
    shift_draws: Count = 4
    betas: Distinct[Weight] = []


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
    component_seeds: of the experiments on PVeRA's components, which are left out where there are none.
    further_seeds: of VeRA and PVeRA, beside `seeds`.
    further_datasets: of the experiments on PVeRA's components alone: the other methods are not trained on them.
    experiments: those that are run where no others are asked for; by default all.
    out_of_distribution: the data sets whose models see each other's images; by default the first of each category.
    noise, published: two experiments that are left out where they are not described.
    draws: of Monte Carlo inference, the numbers that are compared; fewer draws are the first of the most.
    rivals: the methods of uncertainty beside PVeRA's draws.
    weights: per backbone a local file of its weights, instead of the hub's.
    deterministic: see `training.require_determinism`.
    images: for trials, how many images (or texts) of each split are used, the first ones.
    pool: of texts, "first" token or "mean" of the tokens; by default as the encoder was trained.
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
    fixed_grid: Distinct[Name] = []
    beta: Distinct[Weight] = []
    alpha: Distinct[Rate] = []
    search_rates: Distinct[Rate] = []
    search_once: bool = False
    component_seeds: Distinct[Natural] = []
    further_seeds: Distinct[Natural] = []
    further_datasets: Distinct[Name] = []
    experiments: Distinct[Name] = []
    ablations: Ablations | None = None
    effects: Effects | None = None
    out_of_distribution: Distinct[Name] = []
    noise: Noise | None = None
    published: Published | None = None
    draws: Several[Annotated[int, Field(ge=2)]] = [2, 4, 8, 16]
    rivals: Baselines | None = None
    weights: dict[Name, Text] = {}
    deterministic: bool = False
    images: Count | None = None
    pool: Literal[tuple(POOLS)] | None = None
    language: "Profile | None" = None
    text: bool = False

    @model_validator(mode="after")
    def _known_names(self) -> Self:
        if self.pool is not None and not self.text:
            raise ValueError("pool: is for texts, so it belongs to `language`")
        for name in self.backbones:
            if self.text:
                choose("text encoder", name, text_encoders.NAMES)
            else:
                backbones.architecture(name)
        for name in [*self.datasets, *self.further_datasets]:
            if (tasks.task(name, self.data).category == "language") != self.text:
                raise ValueError(f"datasets: {name!r} is a data set of {'images' if self.text else 'texts'}")
        for name, options in self.methods.items():
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
        for each in filter(None, (profile, profile.language)):
            each._check_references(path)
        return profile

    def of_language(self) -> Self:
        """Return the profile of the language experiment. InputError where there is none."""
        if self.language is None:
            raise InputError(f"profile {self.name!r} has no language experiment")
        return self.language

    def _check_references(self, path: Path) -> None:
        """Raise InputError for a name in one key of a file that the key to which it refers lacks."""
        parts = [("fixed_grid", "backbones", self.fixed_grid), ("weights", "backbones", self.weights)]
        if self.ablations:
            parts.append(("ablations.datasets", "datasets", self.ablations.datasets))
        if self.effects:
            parts += [(f"effects.{key}", key, getattr(self.effects, key)) for key in ("datasets", "methods", "seeds")]
        for key, whole, names in parts:
            for name in names:
                if name not in (known := getattr(self, whole)):
                    raise InputError(f"{path}: {key}: {name!r} is none of {whole} ({', '.join(map(str, known))})")


def _of_texts(content: dict) -> dict:
    """Return the section "language" with the keys of the whole file that it lacks.

    AdaptFormer, which needs a LayerNorm before the MLP, is left out, as in the paper.
    """
    section = content["language"]
    inherited = {key: value for key, value in content.items() if key not in IMAGES_ALONE}
    merged = inherited | section | {"text": True}
    for key in ("methods", "schedule"):
        if isinstance(section.get(key, {}), dict) and isinstance(inherited.get(key), dict):
            kept = {name: value for name, value in inherited[key].items() if name != "adaptformer"}
            merged[key] = kept | section.get(key, {})
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
    for values in grid.values():
        if options.get("most_chosen", values[0]) not in values:
            raise ValueError(f"{place}.most_chosen: {options['most_chosen']!r} is none of the grid's values {values}")
