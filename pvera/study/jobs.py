"""Jobs: one training or one analysis, from its description to its result file.

A job is plain data, so it can be hashed and sent to worker processes.
"""

import importlib.metadata
import platform
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import timm
import torch

from pvera import __version__, checkpoint, metrics
from pvera.data import inputs, tasks
from pvera.data.inputs import Data
from pvera.model import AdaptedModel, adapt
from pvera.seeds import derive
from pvera.study import prediction, results
from pvera.study.profiles import Schedule
from pvera.study.protocol import Protocol
from pvera.study.records import IDENTITY, SCHEMA, Record
from pvera.study.stopping import History, choose
from pvera.study.training import MethodConfig, fit

#: What has become of a job. "diverged": it is a training that ended without a usable member;
#: "different": its result is of another configuration or of other data. A result file alone does
#: not tell "running" and "failed"; see `status.current_state`.
State = Literal["done", "diverged", "running", "failed", "missing", "different"]

#: States of jobs that have their result.
ENDED = ("done", "diverged")


@dataclass(frozen=True, kw_only=True)
class Job(inputs.Source):
    """What a worker executes: a training (`Run`) or an `Analysis`; it leaves one result file.

    `Source` adds backbone, weights, image_size, data_root, dataset and images. A subclass adds to
    `known_config` and `data_config` whatever else influences its numbers, and computes them in
    `compute`.
    """

    profile: str
    #: Folder of the results, "experiment" in records: the experiment's name, unless it has a folder
    #: or varied values of its own.
    folder: str
    method: str
    seed: int
    precision: str
    results_root: str

    @property
    def experiment(self) -> str:
        """The folder, as records call it."""
        return self.folder

    @property
    def path(self) -> Path:
        """The result file."""
        return results.path_of(self.results_root, self.identity)

    @property
    def identity(self) -> dict[str, Any]:
        """The values that name the record, by key of `IDENTITY`."""
        return {key: getattr(self, key) for key in IDENTITY}

    @property
    def label(self) -> str:
        """What messages call the job: all of its path below the profile."""
        return "/".join(self.path.with_suffix("").parts[-5:])

    def known_config(self) -> dict:
        """Return the part of `config` that is known without data and weights."""
        # All keys below are hashed, also the fields' names of Protocol, MethodConfig, Schedule and
        # the methods, and those of `Analysis.settings`: to rename or add one makes every committed
        # result differ. A size that is set is known here too, so that a changed one shows without
        # loading the backbone, of which `data_config` has it.
        return {"image_size": self.image_size} if self.image_size else {}

    def data_config(self) -> dict:
        """Return the part of `config` that is read from data and weights: hashes and sizes."""
        return inputs.describe_backbone(self.model_key)

    def config(self) -> dict:
        """Return everything that influences the numbers of the result, and nothing else."""
        return self.known_config() | self.data_config()

    def state(self, compare_data: bool = True) -> State:
        """Compare the job with its result file.

        Args:
            compare_data: Compare hashes of data and weights too, which reads both; otherwise the
                recorded hashes are trusted.

        Returns:
            "missing", "done", "diverged" or "different".
        """
        if not self.path.exists():
            return "missing"

        record = results.read_record(self.path)
        if not self.is_recorded(record, compare_data):
            return "different"
        return "diverged" if record.diverged else "done"

    def is_recorded(self, record: Record, compare_data: bool = True) -> bool:
        """Return whether a record is of the job's configuration; as `state`."""
        # Unless data are compared, the record stands in for what would have to be read of them.
        expected = self.config() if compare_data else record.config | self.known_config()
        return results.config_hash(expected) == record.config_hash

    def compute(self, device: str) -> tuple[dict, dict]:
        """Return the job's part of its record, and what `results.write` keeps with it.

        `execute` computes inside the autocast of the job's precision, and adds the rest.

        Returns:
            Keys of `Record`: config, category and protocol, and of those that have a default
            whatever the job knows. `execute` adds versions and device to its environment.
            Arguments of `results.write`: {"arrays": by name, "adapter": bytes}, or some of these.
        """
        raise NotImplementedError

    def execute(self, device: str = "cpu") -> None:
        """Compute on a device and write the result file."""
        started = time.perf_counter()
        with prediction.autocast(device, self.precision):
            computed, files = self.compute(device)

        record = {
            "schema": SCHEMA,
            **self.identity,
            **computed,
            "environment": environment(device) | computed.get("environment", {}),
            "config_hash": results.config_hash(computed["config"]),
            "cost": {"wall_seconds": round(time.perf_counter() - started, 2)},
        }
        results.write(self.path, record, **files)


@dataclass(frozen=True, kw_only=True)
class Run(Job):
    """One training, called a run: a method's grid on one data set with one seed."""

    member_configs: tuple[MethodConfig, ...]
    schedule: Schedule
    protocol: Protocol = field(hash=False)  # its dictionary has no hash; equality compares it
    #: What the head reads of texts; see `pvera.adapt`.
    pool: str = "first"

    def known_config(self) -> dict:
        """Add the members, the protocol and the schedule."""
        schedule = self.schedule.model_dump()
        config = {
            "seed": self.seed,
            "members": [asdict(each) for each in self.member_configs],
            "protocol": asdict(self.protocol),
            "max_epochs": schedule.pop("epochs"),
            **schedule,
            "precision": self.precision,
            "images": self.images,
            "pool": self.pool,
        }
        return super().known_config() | config

    def data_config(self) -> dict:
        """Add the hash of all three splits."""
        return super().data_config() | {"data_sha256": inputs.data_sha256(self.data_key())}

    def compute(self, device: str) -> tuple[dict, dict]:
        """Train the members in parallel, choose one, and test it."""
        frozen, (train, validation, test) = inputs.load_for_job(self.data_key(), device)
        info = tasks.find_data_set(self.dataset, self.data_root)
        is_text = info.category == "language"
        methods = [config.method for config in self.member_configs]

        # What stays None where every member diverges is filled after the training.
        record: dict[str, Any] = {
            "category": info.category,
            "protocol": self.protocol.name,
            **inputs.provenance(self.data_root, self.dataset),
            "config": self.config(),
            "chosen": None,
            "test": None,
            "environment": {"weights_file_sha256": frozen.file_sha256},
        }
        if is_text:
            record["environment"]["transformers"] = importlib.metadata.version("transformers")
        files: dict[str, Any] = {}
        with adapt(frozen.model, methods, info.classes, self._member_seeds(), self.pool) as model:
            # The head reads the class token alone, so the last MLP skips the others.
            model.last_mlp_on_class_token = True
            histories = fit(
                model,
                train,
                validation,
                self.member_configs,
                self.schedule,
                self.protocol,
                self.seed,
            )
            record["members"] = self._describe_members(model, histories)
            best = choose(histories, self.protocol)
            if best is not None:
                history = histories[best]
                grid = self.member_configs[best].grid
                record["chosen"] = {"member": best, "epoch": history.best_epoch, "grid": grid}
                record["test"], files = self._test(model, best, history, test, is_text)
        return record, files

    def _member_seeds(self) -> int | list[int]:
        if not self.protocol.own_draws:
            return self.seed
        numbers = range(len(self.member_configs))
        return [derive(self.seed, "member", number) for number in numbers]

    def _describe_members(self, model: AdaptedModel, histories: list[History]) -> list[dict]:
        return [
            {
                "grid": config.grid,
                "status": history.status,
                "best_validation_loss": history.best_loss,
                "best_epoch": history.best_epoch,
                "epochs": history.epochs,
                **{f"{part}_parameters": count for part, count in member.count().items()},
                "curve": history.curve,
            }
            for config, member, history in zip(
                self.member_configs, model.members, histories, strict=True
            )
        ]

    def _test(
        self, model: AdaptedModel, best: int, history: History, test: Data, is_text: bool
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the scores of a member at its best epoch, and what is kept of it."""
        model.active = [best]
        model.members[best].load_state_dict(history.best_state, strict=False)
        adapter = checkpoint.dumps(model)
        labels = test.labels.cpu().numpy()
        probabilities = prediction.predict(model, test)

        scores = metrics.evaluate(probabilities, labels)
        if is_text:  # GLUE reports it for some tasks
            scores["matthews"] = metrics.matthews(probabilities, labels)
        arrays = {
            "probabilities": probabilities.astype(np.float16),
            "labels": labels.astype(np.int16),
        }
        return scores, {"arrays": arrays, "adapter": adapter}


def environment(device: str) -> dict:
    """Return versions, device and threads.

    Another version or device rounds differently, and so may a processor of the same name.
    """
    versions = {module.__name__: module.__version__ for module in (torch, timm, np)}
    is_cuda = device.startswith("cuda")
    return {
        "pvera": __version__,
        "python": platform.python_version(),
        **versions,
        "device": torch.cuda.get_device_name(device) if is_cuda else f"cpu: {_processor()}",
        "threads": torch.get_num_threads(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()
