"""One run: a method's grid on one data set with one seed, from its description to its result file.

A `Run` is plain data, so it hashes and travels to worker processes; `plan` lists the runs of each experiment.
"""

import importlib.metadata
import platform
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import timm
import torch

from pvera import __version__, checkpoint
from pvera.data import inputs, tasks, vtab
from pvera.model import adapt
from pvera.seeding import derive
from pvera.study import results, training
from pvera.study.protocol import Protocol
from pvera.study.training import MemberConfig, TrainingConfig


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
    deterministic: bool = False
    images: int | None = None
    keep: bool = True

    @property
    def path(self) -> Path:
        """The result file."""
        return results.run_path(self.results_root, *(getattr(self, name) for name in results.IDENTITY))

    @property
    def name(self) -> str:
        return f"{self.backbone}/{self.dataset}/{self.method}/seed{self.seed}"

    def state(self) -> str:
        """Return 'missing', 'done', or 'different': a run of another configuration or other data lies there."""
        if not self.path.exists():
            return "missing"
        same = results.read(self.path)["config_hash"] == results.config_hash(self.config())
        return "done" if same else "different"

    def execute(self, device: str = "cpu", on_step: Callable[[int, int], None] = lambda step, limit: None) -> None:
        """Compute, and write the result file; `on_step` takes the steps that are done, and their number."""
        started = time.perf_counter()
        if device.startswith("cuda") and torch.cuda.is_initialized():  # before that there is no peak
            torch.cuda.reset_peak_memory_stats(device)
        if self.deterministic:
            training.require_determinism()
        with training.autocast(device, self.precision):
            record, files = self.compute(device, on_step)
            made_by = environment(device)
        identity = {"schema": results.SCHEMA} | {name: getattr(self, name) for name in results.IDENTITY}
        record["config_hash"] = results.config_hash(record["config"])
        record["environment"] = made_by | record.get("environment", {})
        if device.startswith("cuda"):
            peak = torch.cuda.max_memory_allocated(device)
        else:
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        cost = {"wall_seconds": round(time.perf_counter() - started, 2), "peak_memory_mb": peak // 2**20}
        results.write(self.path, identity | record | {"cost": cost}, **files)


@dataclass(frozen=True, kw_only=True)
class Run(Job):
    """One training, as its result file describes it. pool: of texts, see `pvera.adapt`."""

    members: tuple[MemberConfig, ...]
    training: TrainingConfig
    protocol: Protocol = field(hash=False)
    pool: str = "first"

    def config(self) -> dict:
        schedule = self.training.model_dump()
        return {
            "seed": self.seed,
            "members": [asdict(member) for member in self.members],
            "protocol": asdict(self.protocol),
            "max_epochs": schedule.pop("epochs"),
            **schedule,
            "precision": self.precision,
            "images": self.images,
            "pool": self.pool,
            **inputs.describe_backbone(self),
            "data_sha256": inputs.data_sha256(self),
        }

    def compute(self, device: str, on_step: Callable[[int, int], None]) -> tuple[dict, dict]:
        """Train the members side by side, choose one, and test it. Return the record and the files beside it."""
        frozen, (train, validation, test) = inputs.for_run(self, device)
        task, kind = tasks.task(self.dataset, self.data_root), inputs.kind(self.dataset)
        own_draws, chosen, scores, files = self.protocol.own_draws, None, None, {}
        seeds = [derive(self.seed, "member", m) if own_draws else self.seed for m in range(len(self.members))]
        with adapt(frozen.model, [member.method for member in self.members], task.classes, seeds, self.pool) as model:
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
                for config, member, history in zip(self.members, model.members, histories, strict=True)
            ]
            best = training.choose(histories, self.protocol)
            if best is not None:
                chosen = {"member": best, "epoch": histories[best].best_epoch, "grid": self.members[best].grid}
                model.active = [best]
                model.members[best].load_state_dict(histories[best].best_state, strict=False)
                adapter, labels = checkpoint.dumps(model), test.labels.cpu().numpy()
                probabilities = training.predict(model, test)
                scores = kind.scores(probabilities, labels)
                if self.keep:
                    files = {"probabilities": probabilities, "labels": labels, "adapter": adapter}
        made_by = {kind.PACKAGE: importlib.metadata.version(kind.PACKAGE)}
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
