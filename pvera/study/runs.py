"""One run: a method's grid on one data set with one seed, from its description to its result file.

A `Run` is plain data, so it hashes and travels to worker processes; `plan` lists the runs of each experiment.
"""

import importlib.metadata
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import timm
import torch

from pvera import __version__, checkpoint
from pvera.adapters import Method
from pvera.data import own, splits, tasks
from pvera.errors import InputError
from pvera.model import adapt
from pvera.seeding import derive
from pvera.study import results, training
from pvera.study.inputs import Inputs
from pvera.study.protocol import Protocol
from pvera.study.training import TrainingConfig

SYMBOLS = {"beta": "β", "alpha": "α"}
#: Stands in `Run.searched` for the whole grid, of which one candidate is to be found.
GRID = "grid"


@dataclass(frozen=True)
class Candidate:
    """One member of the grid: hyperparameters, learning rates and β (None: its search is still to find it).

    grid: the values by which it differs from the others.
    """

    method: Method
    adapter_lr: float
    head_lr: float
    beta: float | None
    grid: dict = field(hash=False)

    def with_(self, hyperparameter: str, value: float) -> "Candidate":
        """Return the candidate with another β, or another value of one of its method's hyperparameters."""
        if hyperparameter == "beta":
            return replace(self, beta=value)
        return replace(self, method=replace(cast(Any, self.method), **{hyperparameter: value}))


@dataclass(frozen=True)
class Run:
    """One training, as its result file describes it.

    searched: the hyperparameters that are still to be found, each with the result file of the run that finds it; `GRID`
        for the best of the candidates.
    keep: predictions and adapter are kept beside the record.
    """

    profile: str
    experiment: str
    backbone: str
    dataset: str
    method: str
    seed: int
    candidates: tuple[Candidate, ...]
    training: TrainingConfig
    protocol: Protocol = field(hash=False)
    precision: str
    data_root: str
    results_root: str
    weights: str | None = None  # a local file
    deterministic: bool = False
    images: int | None = None  # of each split, at most
    pool: str = "first"  # of texts: see `pvera.adapt`
    searched: tuple[tuple[str, str], ...] = ()
    keep: bool = False

    @property
    def path(self) -> Path:
        return results.run_path(self.results_root, *(getattr(self, name) for name in results.IDENTITY))

    @property
    def name(self) -> str:
        return f"{self.backbone}/{self.dataset}/{self.method}/seed{self.seed}"

    @property
    def steps(self) -> int:
        """Steps that `execute` counts up to."""
        return self.training.epochs

    @property
    def waits(self) -> bool:
        """Whether a hyperparameter is still to be found."""
        return bool(self.searched)

    @property
    def awaited(self) -> tuple[Path, ...]:
        """The result files that it waits for."""
        return tuple(Path(record) for _, record in self.searched)

    def resolved(self) -> "Run | None":
        """Return the run with the values that were found; those whose result is missing stay in `searched`.

        None where there is nothing to run (`analyses.Analysis`).
        """
        run = self
        for name, record in self.searched:
            chosen = results.read(record)["chosen"] if Path(record).exists() else None
            if chosen is None:
                break
            if name == GRID:
                found = (run.candidates[chosen["member"]],)
            else:
                found = tuple(candidate.with_(name, chosen["grid"][name]) for candidate in run.candidates)
            run = replace(run, candidates=found, searched=run.searched[1:])
        return run

    def config(self, inputs: Inputs | None = None) -> dict:
        """Return everything that influences the numbers of the result, and nothing else."""
        inputs, training_config = inputs or Inputs(), asdict(self.training)
        shortened = {} if self.images is None else {"images": self.images}
        pooled = {} if self.pool == "first" else {"pool": self.pool}
        return {
            "seed": self.seed,
            "members": [asdict(c) | {"method": c.method.describe()} for c in self.candidates],
            "protocol": asdict(self.protocol),
            "max_epochs": training_config.pop("epochs"),
            **training_config,
            **inputs.describe_backbone(self),
            "data_sha256": inputs.splits_sha256(self),
            "precision": self.precision,
            **shortened,
            **pooled,
        }

    def state(self, inputs: Inputs | None = None) -> str:
        """Return 'missing', 'done', or 'different': of another configuration or copy of the data."""
        if not self.path.exists():
            return "missing"
        inputs = inputs or Inputs()
        config = self.resolved().config(inputs)
        return results.state(self.path, results.config_hash(config), inputs.copy_name(self))

    def execute(
        self,
        device: str = "cpu",
        on_step: Callable[[int], None] = lambda step: None,
        inputs: Inputs | None = None,
    ) -> None:
        """Train, choose, test and write the result file. InputError while it waits for a search."""
        execute(self, device, on_step, inputs)


def execute(
    run: Run,
    device: str = "cpu",
    on_epoch: Callable[[int], None] = lambda epoch: None,
    inputs: Inputs | None = None,
) -> None:
    """Train, choose, test and write the result file of `run`. InputError while it waits for a search."""
    run, inputs = run.resolved(), inputs or Inputs()
    if run.searched:
        name, record = run.searched[0]
        what = "the best of the grid" if name == GRID else SYMBOLS.get(name, name)
        raise InputError(f"{what} of {run.dataset} is not known: {record} is missing, or all of it diverged")
    started = time.perf_counter()
    frozen, (train, validation, test) = inputs.for_training(run, device)
    kind, labels, count = splits.kind(run.dataset), test.labels.cpu().numpy(), len(run.candidates)
    seeds = [derive(run.seed, "member", m) if run.protocol.own_draws else run.seed for m in range(count)]
    task = tasks.task(run.dataset, run.data_root)
    model = adapt(frozen.model, [c.method for c in run.candidates], task.classes, seeds, run.pool)
    try:
        chosen, scores, probabilities, adapter = None, None, None, None
        with training.deterministic(run.deterministic), training.autocast(device, run.precision):
            histories = training.fit(
                model,
                train,
                validation,
                [(c.adapter_lr, c.head_lr) for c in run.candidates],
                [c.beta for c in run.candidates],
                run.training,
                run.protocol,
                run.seed,
                on_epoch,
            )
            best = training.choose(histories, run.protocol)
            if best is not None:
                chosen = {
                    "member": best,
                    "epoch": histories[best].best_epoch,
                    "grid": run.candidates[best].grid,
                }
                model.active = [best]
                model.members[best].load_state_dict(histories[best].best_state, strict=False)
                adapter = checkpoint.dumps(model)
                probabilities = training.predict(model, test)
                scores = kind.scores(probabilities, labels)
            made_by = environment(device) | {
                "weights_file_sha256": frozen.file_sha256,
                kind.PACKAGE: importlib.metadata.version(kind.PACKAGE),
            }
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
            for candidate, history, member in zip(run.candidates, histories, model.members, strict=True)
        ]
    finally:
        model.unload()
    config = run.config(inputs)
    record = {
        "schema": results.SCHEMA,
        **{name: getattr(run, name) for name in results.IDENTITY},
        "category": task.category,
        "protocol": run.protocol.name,
        "data_copy": inputs.copy_name(run),
        **own.provenance(run.data_root, run.dataset),
        "config": config,
        "config_hash": results.config_hash(config),
        "members": members,
        "chosen": chosen,
        "test": scores,
        "environment": made_by,
        "cost": {
            "wall_seconds": round(time.perf_counter() - started, 2),
            "peak_memory_mb": peak_memory(device),
        },
    }
    if run.keep:
        results.write(run.path, record, probabilities, labels, adapter)
    else:
        results.write(run.path, record)


def environment(device: str) -> dict:
    """Return versions, device and threads: where all are the same, so is every bit of a result."""
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


def peak_memory(device: str) -> int:
    """Return the peak of memory in use, in MiB: on the device, or of this process since it started."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated() // 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit // 2**20
