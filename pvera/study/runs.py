"""Runs: which ones a profile's experiments can start now, and one run from its description to its result file.

A run is a method's grid on one data set with one seed: plain data, so it hashes and travels to worker processes. One
that needs a value that a search has not found, or an analysis whose training has left no adapter, is not listed yet:
whoever executes runs lists again afterwards.
"""

import importlib.metadata
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch

from pvera import __version__, checkpoint, metrics, text_encoders
from pvera.adapters import METHODS
from pvera.adapters.base import derive
from pvera.data import inputs, tasks, vtab
from pvera.errors import InputError
from pvera.model import adapt
from pvera.study import results, training
from pvera.study.profiles import Profile, choose
from pvera.study.protocol import PUBLISHED_BETA, VARIANTS, Protocol
from pvera.study.training import MemberConfig, TrainingConfig

Place = tuple[str, str, str]  # backbone, data set, method

ENDED = ("done", "diverged")  # states of runs that have their result


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a worker executes: a training (`Run`) or an analysis (`analyses.Analysis`). It leaves one result file.

    `config` returns everything that influences the numbers of the result, and nothing else; `compute` computes them.

    weights: a local file. images: of each split, at most. keep: arrays and adapter are kept beside the record.
    """

    profile: str
    experiment: str
    backbone: str
    dataset: str
    method: str
    seed: int
    precision: str
    data_root: str
    results_root: str
    weights: str | None = None
    image_size: int | None = None
    images: int | None = None
    keep: bool = True

    @property
    def path(self) -> Path:
        """The result file."""
        return results.path_of(self.results_root, vars(self))

    @property
    def name(self) -> str:
        return f"{self.backbone}/{self.dataset}/{self.method}/seed{self.seed}"

    def specified(self) -> dict:
        """Return the part of `config` that is known without data and weights."""
        return {"image_size": self.image_size} if self.image_size else {}

    def measured(self) -> dict:
        """Return the part of `config` that is read from data and weights: hashes, and sizes."""
        return inputs.describe_backbone(self)

    def config(self) -> dict:
        return self.specified() | self.measured()

    def state(self, measure: bool = True) -> str:
        """Return 'missing', 'done', 'diverged' or 'different'.

        'diverged' is a training that ended without a usable member; 'different' is a result of
        another configuration or of other data.

        measure: compare data and weights too; otherwise the record's own hashes are taken as right.
        """
        if not self.path.exists():
            return "missing"
        record = results.read(self.path)
        config = self.config() if measure else record["config"] | self.specified()
        if results.config_hash(config) != record["config_hash"]:
            return "different"
        return "diverged" if record.get("chosen", {}) is None else "done"

    def execute(
        self, device: str = "cpu", on_step: Callable[[int, int], None] = lambda step, limit: None
    ) -> None:
        """Compute, and write the result file; `on_step` takes the steps that are done, and their number."""
        started = time.perf_counter()
        if (
            device.startswith("cuda") and torch.cuda.is_initialized()
        ):  # before that there is no peak
            torch.cuda.reset_peak_memory_stats(device)
        with training.autocast(device, self.precision):
            record, files = self.compute(device, on_step)
            made_by = environment(device)
        identity = {"schema": results.SCHEMA} | {
            name: getattr(self, name) for name in results.IDENTITY
        }
        record["config_hash"] = results.config_hash(record["config"])
        record["environment"] = made_by | record.get("environment", {})
        if device.startswith("cuda"):
            peak = torch.cuda.max_memory_allocated(device)
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
                1 if sys.platform == "darwin" else 1024
            )
        cost = {
            "wall_seconds": round(time.perf_counter() - started, 2),
            "peak_memory_mb": peak // 2**20,
        }
        results.write(self.path, identity | record | {"cost": cost}, **files)


@dataclass(frozen=True, kw_only=True)
class Run(Job):
    """One training, as its result file describes it. pool: of texts, see `pvera.adapt`."""

    members: tuple[MemberConfig, ...]
    training: TrainingConfig
    protocol: Protocol = field(hash=False)
    pool: str = "first"

    def specified(self) -> dict:
        schedule = self.training.model_dump()
        return super().specified() | {
            "seed": self.seed,
            "members": [asdict(member) for member in self.members],
            "protocol": asdict(self.protocol),
            "max_epochs": schedule.pop("epochs"),
            **schedule,
            "precision": self.precision,
            "images": self.images,
            "pool": self.pool,
        }

    def measured(self) -> dict:
        return super().measured() | {"data_sha256": inputs.data_sha256(self)}

    def compute(self, device: str, on_step: Callable[[int, int], None]) -> tuple[dict, dict]:
        """Train the members side by side, choose one, and test it. Return the record and the files beside it."""
        frozen, (train, validation, test) = inputs.load_for_job(self, device)
        task = tasks.find_task(self.dataset, self.data_root)
        text = task.category == "language"
        own_draws, chosen, scores, files = self.protocol.own_draws, None, None, {}
        seeds = [
            derive(self.seed, "member", m) if own_draws else self.seed
            for m in range(len(self.members))
        ]
        with adapt(
            frozen.model, [member.method for member in self.members], task.classes, seeds, self.pool
        ) as model:
            settings = self.members, self.training, self.protocol, self.seed
            histories = training.fit(model, train, validation, *settings, on_step)
            members = [
                {
                    "grid": config.grid,
                    "status": history.status,
                    "best_validation_loss": history.best_loss,
                    "best_epoch": history.best_epoch,
                    "epochs": history.epochs,
                    **{f"{part}_parameters": number for part, number in member.count().items()},
                    "curve": history.curve,
                }
                for config, member, history in zip(
                    self.members, model.members, histories, strict=True
                )
            ]
            best = training.choose(histories, self.protocol)
            if best is not None:
                chosen = {
                    "member": best,
                    "epoch": histories[best].best_epoch,
                    "grid": self.members[best].grid,
                }
                model.active = [best]
                model.members[best].load_state_dict(histories[best].best_state, strict=False)
                adapter, labels = checkpoint.dumps(model), test.labels.cpu().numpy()
                probabilities = training.predict(model, test)
                scores = metrics.evaluate(probabilities, labels)
                if text:  # GLUE reports it for some tasks
                    scores["matthews"] = metrics.matthews(probabilities, labels)
                if self.keep:
                    files = {"probabilities": probabilities, "labels": labels, "adapter": adapter}
        package = "transformers" if text else "timm"
        made_by = {package: importlib.metadata.version(package)}
        record = {
            "category": task.category,
            "protocol": self.protocol.name,
            **(vtab if task.suite == "vtab" else tasks).provenance(self.data_root, self.dataset),
            "config": self.config(),
            "members": members,
            "chosen": chosen,
            "test": scores,
            "environment": {"weights_file_sha256": frozen.file_sha256} | made_by,
        }
        return record, files


def environment(device: str) -> dict:
    """Return versions, device and threads. Another of them rounds differently; so may a processor of the same name."""
    versions = {m.__name__: m.__version__ for m in (torch, timm, np)}
    return {
        "pvera": __version__,
        "python": platform.python_version(),
        **versions,
        "device": torch.cuda.get_device_name()
        if device.startswith("cuda")
        else f"cpu: {_processor()}",
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


# The runs of an experiment


def list_runs(profile: Profile, name: str, root) -> list[Job]:
    """List the runs of an experiment or an analysis that can be started now, with results below `root`."""
    if name in profile.experiments:
        return trainings(profile, root, name)
    from pvera.study.analysis_plan import ANALYSES  # much that no training needs

    choose("experiment", name, (*profile.experiments, *ANALYSES))
    lists, trained = ANALYSES[name]
    return [
        analysis
        for each in profile.analyses.get(name, [trained])
        if each in profile.experiments
        for analysis in lists(profile, root, name, each)
    ]


def trainings(profile: Profile, root, name: str) -> list[Run]:
    """List the trainings of the experiment `name` that can start, backbone by backbone and seed by seed."""
    experiment, listed = profile.experiments[name], []
    backbones, datasets, methods = (
        [name for name in getattr(profile, key) if name in (getattr(experiment, key) or (name,))]
        for key in ("backbones", "datasets", "methods")
    )
    seeds, variants = experiment.seeds or profile.seeds, experiment.variants(name)
    for backbone, seed, folder, dataset, method in product(
        backbones, seeds, variants, datasets, methods
    ):
        varied = dict(variants[folder])
        rules = VARIANTS[varied.pop("protocol", experiment.protocol or profile.protocol)]
        if rules.method not in (None, method):
            continue
        place = backbone, dataset, method
        taken = [
            choice(profile, root, other, place)
            for other in experiment.inherit
            if method in (profile.experiments[other].methods or profile.methods)
        ]
        members = members_of(profile, root, name, folder, place, seed)
        if None in taken or not members:
            continue
        options: dict[str, Any] = {}
        for part in (*taken, experiment.set, varied):
            options |= part
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
            members=tuple(
                candidate(profile, method, values, rules.protocol, **options) for values in members
            ),
            training=profile.training,
            protocol=rules.protocol,
            precision=profile.precision,
            data_root=profile.data,
            results_root=str(root),
            weights=profile.weights.get(backbone),
            image_size=profile.image_size,
            images=None if experiment.all_images else profile.images,
            pool=text_encoders.pool(backbone) if profile.text else "first",
            keep=experiment.keep,
        )
        listed.append(run)
    return listed


def members_of(
    profile: Profile, root, name: str, folder: str, place: Place, seed: int
) -> list[dict]:
    """Return what the members of a run differ in: the grid, or what another seed chose from it; [] while it has not."""
    experiment, (backbone, _, method) = profile.experiments[name], place
    if not experiment.search or (backbone in profile.fixed_grid and not experiment.grid):
        return [default(profile, method)]
    members = combinations(experiment.grid or profile.methods[method].get("grid", {}))
    chooser, first = experiment.choose or profile.choose, (experiment.seeds or profile.seeds)[0]
    if len(members) == 1 or chooser == "each_seed" or (chooser == "first_seed" and seed == first):
        return members
    if chooser == "first_seed":
        chosen = choice(profile, root, name, place, folder)
    else:
        chosen = choice(profile, root, chooser, place)
    return [member for member in members if member == chosen]


def choice(
    profile: Profile, root, name: str, place: Place, folder: str | None = None
) -> dict | None:
    """Return what the first seed of an experiment chose; None while it has not, or where all diverged."""
    experiment = profile.experiments[name]
    seed = (experiment.seeds or profile.seeds)[0]
    identity = profile.name, folder or experiment.folder or name, *place, seed
    path = results.path_of(root, dict(zip(results.IDENTITY, identity, strict=True)))
    record = results.read(path) if path.exists() else None
    return record["chosen"]["grid"] if record and record["chosen"] else None


# One method's grid


def combinations(values: dict[str, list]) -> list[dict]:
    """Return all combinations of the values, {name: value}."""
    return [
        dict(zip(values, combination, strict=True)) for combination in product(*values.values())
    ]


def default(profile: Profile, method: str) -> dict:
    """Return the values that replace a method's grid where it is not searched, {} without a grid."""
    options = profile.methods[method]
    if "grid" in options and "default" not in options:
        raise InputError(
            f"profile {profile.name!r}: methods.{method}.default: is missing, the values that replace the grid where "
            "it is not searched"
        )
    return options.get("default", {})


def candidate(
    profile: Profile, method: str, values: dict, rules: Protocol, **options
) -> MemberConfig:
    """Build one member of a method's grid.

    values: the hyperparameters by which it differs from the others. options: those of all, beside the profile's.
    """
    settings = profile.methods[method] | rules.adapters.get(method, {}) | options | values
    rate, beta = settings.pop("learning_rate", profile.learning_rate), settings.pop("beta", 0.0)
    built = METHODS[method](
        **{name: settings[name] for name in settings.keys() - {"grid", "default"}}
    )
    # Linear probing has no adapter: the searched rate is the head's.
    return MemberConfig(
        built, rate, rate if method == "linear" else profile.learning_rate, beta, values
    )
