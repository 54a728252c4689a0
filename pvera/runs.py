"""One run: a method's grid on one data set with one seed, from its description to its result file.

A `Run` is plain data, so it hashes and travels to worker processes. `Profile` reads a YAML file of
`experiments/profiles` and lists the runs; `execute` does one.
"""

import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import timm
import torch
import yaml

from . import __version__, backbones, data, metrics, results, training, vtab
from .adapters import METHODS, Method
from .errors import InputError
from .model import adapt
from .protocol import PUBLISHED_BETA, Protocol, protocol
from .seeding import derive
from .training import PRECISIONS, Schedule

@dataclass(frozen=True)
class Candidate:
    """One member of the grid: hyperparameters, learning rates and β; `grid` is what tells it from the others."""

    method: Method
    adapter_lr: float
    head_lr: float
    beta: float
    grid: dict = field(hash=False)


@dataclass(frozen=True)
class Run:
    """What one result file holds."""

    profile: str
    experiment: str
    backbone: str
    dataset: str
    method: str
    seed: int
    candidates: tuple[Candidate, ...]
    schedule: Schedule
    protocol: Protocol = field(hash=False)
    precision: str
    data_root: str
    results_root: str
    weights: str | None = None
    deterministic: bool = False
    images: int | None = None

    @property
    def path(self) -> Path:
        return results.run_path(self.results_root, *(getattr(self, name) for name in results.IDENTITY))

    @property
    def name(self) -> str:
        return f"{self.backbone}/{self.dataset}/{self.method}/seed{self.seed}"

    @property
    def waits(self) -> bool:
        """Whether β is still to be found by `Profile.beta_search`."""
        return any(candidate.beta is None for candidate in self.candidates)

    def config(self) -> dict:
        """Everything that influences the numbers of the result, and nothing else."""
        frozen, schedule = _backbone(self.backbone, self.weights), asdict(self.schedule)
        shortened = {} if self.images is None else {"images": self.images}
        return {
            "seed": self.seed,
            "members": [asdict(c) for c in self.candidates],
            "protocol": asdict(self.protocol),
            "max_epochs": schedule.pop("epochs"),
            **schedule,
            "weights_sha256": frozen.weights_sha256,
            "image_size": frozen.image_size,
            "data_sha256": _splits(self.data_root, self.dataset, frozen.image_size, self.images)[1],
            "precision": self.precision,
            **shortened,
        }

    def state(self) -> str:
        """'missing', 'done', or 'different': the file holds a run of another configuration or copy of the data."""
        if not self.path.exists():
            return "missing"
        return results.state(self.path, results.config_hash(self.config()), _copy(self.data_root, self.dataset))


@dataclass(frozen=True)
class Profile:
    """A YAML file: backbones, data sets, methods with their grids, seeds, budget and protocol.

    methods: per method its fixed hyperparameters, `grid` (one name with its values) and `most_chosen`, the
    value that backbones in `fixed_grid` take instead of searching.
    learning_rate: of heads, and of adapters without a learning-rate grid (Section 4.2).
    precision: see `training.PRECISIONS`.
    beta: the values of β searched on data sets for which the published program states none.
    weights: per backbone a local file of its weights, instead of the hub's.
    deterministic: see `training.deterministic`.
    images: for trials, how many images of each split are used, the first ones; None for all.
    """

    name: str
    data: str
    backbones: list[str]
    datasets: list[str]
    seeds: list[int]
    protocol: str
    methods: dict[str, dict]
    schedule: Schedule = Schedule()
    learning_rate: float = 1e-4
    precision: str = "float32"
    fixed_grid: list[str] = field(default_factory=list)
    beta: list[float] = field(default_factory=list)
    weights: dict[str, str] = field(default_factory=dict)
    deterministic: bool = False
    images: int | None = None

    @classmethod
    def read(cls, path: str | Path) -> "Profile":
        """InputError for a missing or malformed file, and as `with_`."""
        path = Path(path)
        try:
            content = yaml.safe_load(path.read_text())
            content["schedule"] = Schedule(**content.get("schedule", {}))
            profile = cls(name=path.stem, **content).with_()
        except FileNotFoundError:
            raise InputError(f"unknown profile {path.stem!r}: there is no {path}") from None
        except (yaml.YAMLError, TypeError, AttributeError) as error:
            raise InputError(f"{path}: {' '.join(str(error).split())}") from None
        if unknown := profile.weights.keys() - set(profile.backbones):
            raise InputError(f"{path}: weights of {min(unknown)!r}, which is not one of its backbones")
        return profile

    def with_(self, **changes) -> "Profile":
        """A copy with other values; None changes nothing. InputError for a method, data set, protocol or
        precision that does not exist."""
        profile = replace(self, **{k: v for k, v in changes.items() if v is not None})
        for name in profile.methods:
            if name not in METHODS:
                raise InputError(f"unknown method {name!r}; choose from {', '.join(METHODS)}")
        for name in profile.datasets:
            data.task(name)
        protocol(profile.protocol)
        if profile.precision not in PRECISIONS:
            raise InputError(f"unknown precision {profile.precision!r}; choose from {', '.join(PRECISIONS)}")
        return profile

    def benchmark(self, results_root: str | Path) -> list[Run]:
        """Every method on every data set with every seed."""
        return [
            self._run("benchmark", backbone, dataset, method, seed, results_root)
            for backbone in self.backbones
            for dataset in self.datasets
            for seed in self.seeds
            for method in self.methods
        ]

    def beta_search(self, results_root: str | Path) -> list[Run]:
        """The runs that choose PVeRA's β on the validation loss (Section 3.2), one per data set, for data sets
        without a published value; they come before the benchmark."""
        return [
            self._run("beta", backbone, dataset, "pvera", self.seeds[0], results_root)
            for backbone in self.backbones
            for dataset in self.datasets
            if "pvera" in self.methods and dataset not in PUBLISHED_BETA
        ]

    def _run(self, experiment, backbone, dataset, method, seed, root) -> Run:
        rules, options = protocol(self.protocol), dict(self.methods[method])
        grid, most_chosen = options.pop("grid", {}), options.pop("most_chosen", None)
        points = [{name: value} for name, values in grid.items() for value in values] or [{}]
        if experiment == "beta":
            options |= {name: most_chosen for name in grid}
            points = [{"beta": beta} for beta in self.beta]
        else:
            if backbone in self.fixed_grid:
                points = [{name: most_chosen} for name in grid]
            if method == "pvera":
                options["beta"] = self._beta(backbone, dataset, root)
        options |= rules.adapters.get(method, {})
        candidates = tuple(self._candidate(method, options, point) for point in points)
        return Run(self.name, experiment, backbone, dataset, method, seed, candidates, self.schedule, rules,
                   self.precision, self.data, str(root), self.weights.get(backbone), self.deterministic, self.images)

    def _candidate(self, method: str, options: dict, point: dict) -> Candidate:
        settings = options | point
        rate, beta = settings.pop("learning_rate", self.learning_rate), settings.pop("beta", 0.0)
        try:
            built = METHODS[method](**settings)
        except TypeError as error:
            raise InputError(f"{METHODS[method].title}: {error}") from None
        # Linear probing has no adapter: the rate that is searched is the head's.
        return Candidate(built, rate, rate if method == "linear" else self.learning_rate, beta, point)

    def _beta(self, backbone: str, dataset: str, root) -> float | None:
        """β of this data set: published, or chosen by `beta_search`; None while that has not run."""
        if dataset in PUBLISHED_BETA:
            return PUBLISHED_BETA[dataset]
        path = results.run_path(root, self.name, "beta", backbone, dataset, "pvera", self.seeds[0])
        return results.read(path)["chosen"]["grid"]["beta"] if path.exists() else None


def prepare(runs: Iterable[Run]) -> None:
    """Decode what the runs read, so that damaged data is found before any of them trains."""
    for root, dataset, size in dict.fromkeys(
        (run.data_root, run.dataset, _backbone(run.backbone, run.weights).image_size) for run in runs
    ):
        data.prepare(root, dataset, size)


def execute(run: Run, device: str = "cpu", on_epoch: Callable[[int], None] = lambda epoch: None) -> None:
    """Train, choose, test and write the result file of `run`. InputError while it waits for β."""
    if run.waits:
        raise InputError(f"β of {run.dataset} is not there yet: its search has no result")
    started = time.perf_counter()
    frozen = _backbone(run.backbone, run.weights)
    frozen.model.to(device)
    splits, _ = _splits(run.data_root, run.dataset, frozen.image_size, run.images)
    train, validation, test = (
        training.Data(split, frozen, torch.device(device), in_memory=name != "test")
        for name, split in zip(data.RUN_SPLITS, splits)
    )
    count = len(run.candidates)
    seeds = [derive(run.seed, "member", m) if run.protocol.own_draws else run.seed for m in range(count)]
    task = data.task(run.dataset)
    model = adapt(frozen.model, [c.method for c in run.candidates], task.classes, seeds)
    try:
        chosen, scores, probabilities = None, None, None
        with training.deterministic(run.deterministic), training.autocast(device, run.precision):
            histories = training.fit(
                model, train, validation,
                [(c.adapter_lr, c.head_lr) for c in run.candidates], [c.beta for c in run.candidates],
                run.schedule, run.protocol, run.seed, on_epoch,
            )
            best = training.choose(histories)
            if best is not None:
                chosen = {"member": best, "epoch": histories[best].best_epoch, "grid": run.candidates[best].grid}
                model.active = [best]
                model.members[best].load_state_dict(histories[best].best_state, strict=False)
                probabilities = training.predict(model, test)
                scores = metrics.evaluate(probabilities, splits[2].labels)
            environment = _environment(device) | {"weights_file_sha256": frozen.file_sha256}
        members = [
            {
                "grid": candidate.grid,
                "status": history.status,
                "best_validation_loss": history.best_loss,
                "best_epoch": history.best_epoch,
                "epochs": history.epochs,
                "adapter_parameters": member.count()["adapter"],
                "head_parameters": member.count()["head"],
                "curve": {
                    "train_loss": history.train_loss,
                    "kl": history.kl,
                    "validation_loss": history.validation_loss,
                    "validation_accuracy": history.validation_accuracy,
                },
            }
            for candidate, history, member in zip(run.candidates, histories, model.members)
        ]
    finally:
        model.unload()
    config = run.config()
    record = {
        "schema": results.SCHEMA,
        **{name: getattr(run, name) for name in results.IDENTITY},
        "category": task.category,
        "protocol": run.protocol.name,
        "data_copy": _copy(run.data_root, run.dataset),
        "config": config,
        "config_hash": results.config_hash(config),
        "members": members,
        "chosen": chosen,
        "test": scores,
        "environment": environment,
        "cost": {"wall_seconds": round(time.perf_counter() - started, 2), "peak_memory_mb": _peak_memory(device)},
    }
    results.write(run.path, record, probabilities, splits[2].labels)


@lru_cache(maxsize=1)
def _backbone(name: str, weights: str | None) -> backbones.Backbone:
    return backbones.load(name, weights=weights)


@lru_cache(maxsize=1)
def _splits(root: str, dataset: str, size: int, images: int | None) -> tuple[tuple[data.Split, ...], str]:
    """Training, validation and test split, and a hash of all that training and testing read of them."""
    splits = tuple(data.load_split(root, dataset, name, size).first(images) for name in data.RUN_SPLITS)
    return splits, data.digest(splits)


@lru_cache(maxsize=1)
def _copy(root: str, dataset: str) -> str | None:
    return vtab.copy_name(root, dataset)


def _environment(device: str) -> dict:
    """What else made the numbers: same versions, same kind of machine and same threads give the same bits."""
    versions = {m.__name__: m.__version__ for m in (torch, timm, np)}
    return {
        "pvera": __version__,
        "python": platform.python_version(),
        **versions,
        "device": torch.cuda.get_device_name() if device.startswith("cuda") else f"cpu: {_processor()}",
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _peak_memory(device: str) -> int:
    """Most memory that was in use, in MiB: on the device, or of this process since it started."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() // 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit // 2**20
