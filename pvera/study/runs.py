"""One run: a method's grid on one data set with one seed, from its description to its result file.

A `Run` is plain data, so it hashes and travels to worker processes; `plan` lists the runs of each experiment.
"""

import importlib.metadata
import platform
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import timm
import torch

from pvera import __version__, checkpoint
from pvera.adapters import Method
from pvera.data import splits, tasks
from pvera.errors import InputError
from pvera.files import plain
from pvera.model import adapt
from pvera.seeding import derive
from pvera.study import results, training
from pvera.study.inputs import Inputs
from pvera.study.protocol import Protocol
from pvera.study.training import TrainingConfig

SYMBOLS = {"beta": "β", "alpha": "α"}
#: Stands in `Run.searched` for the whole grid, of which one candidate is to be found.
GRID = "grid"
#: What a configuration says of weights and data.
OF_INPUTS = {"weights_sha256", "image_size", "max_length", "data_sha256"}


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

        The best of a grid is missing as well where its record is of another configuration.
        None where there is nothing to run (`analyses.Analysis`).
        """
        run = self
        for name, path in self.searched:
            record = results.read(path) if Path(path).exists() else None
            if record is None or record["chosen"] is None:
                break
            grid = record["chosen"]["grid"]
            if name == GRID:
                found = tuple(c for c in run.candidates if plain(c.grid) == grid) if run._searched_by(record) else ()
            else:
                found = tuple(candidate.with_(name, grid[name]) for candidate in run.candidates)
            if not found:
                break
            run = replace(run, candidates=found, searched=run.searched[1:])
        return run

    def _searched_by(self, record: dict) -> bool:
        """Whether the record of another seed has this run's configuration, as far as the profile says it."""
        config = {key: value for key, value in record["config"].items() if key not in OF_INPUTS}
        return results.config_hash(config | {"seed": self.seed}) == results.config_hash(self._settings())

    def config(self, inputs: Inputs | None = None) -> dict:
        """Return everything that influences the numbers of the result, and nothing else."""
        inputs = inputs or Inputs()
        return {
            **self._settings(),
            **inputs.describe_backbone(self),
            "data_sha256": inputs.splits_sha256(self),
        }

    def _settings(self) -> dict:
        """Return the part of the configuration that needs neither weights nor data: all but `OF_INPUTS`."""
        training_config = asdict(self.training)
        shortened = {} if self.images is None else {"images": self.images}
        pooled = {} if self.pool == "first" else {"pool": self.pool}
        return {
            "seed": self.seed,
            "members": [asdict(c) | {"method": c.method.describe()} for c in self.candidates],
            "protocol": asdict(self.protocol),
            "max_epochs": training_config.pop("epochs"),
            **training_config,
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
        beside: Sequence["Run"] = (),
    ) -> None:
        """Train, choose, test and write the result file. InputError while it waits for a search.

        beside: runs of other seeds that train side by side with this one (`side_by_side`).
        """
        execute(self, device, on_step, inputs, beside)


#: Members that train side by side, at most, where grids of several seeds do. On a processor more of them gain little.
TOGETHER = 4


def side_by_side(runs: Sequence[Run]) -> list[list[Run]]:
    """Group runs that differ in their seed alone, at most `TOGETHER` members to a group.

    Each group takes the place of its first run. Texts train alone: their members share no pass.
    """
    groups: list[list[Run]] = []
    last: dict[Run, list[Run]] = {}
    for run in runs:
        together = type(run) is Run and not run.waits and splits.kind(run.dataset).SIDE_BY_SIDE
        key = replace(run, seed=0, candidates=()) if together else run  # what runs that train together share
        group = last.get(key)
        if group and sum(len(one.candidates) for one in [*group, run]) <= TOGETHER:
            group.append(run)
        else:
            last[key] = [run]
            groups.append(last[key])
    return groups


@dataclass
class Outcome:
    """The members of a run as its record describes them, the test labels, and, unless all diverged, the chosen member
    with its scores, predictions and adapter."""

    members: list[dict]
    labels: np.ndarray
    chosen: dict | None = None
    scores: dict | None = None
    probabilities: np.ndarray | None = None
    adapter: bytes | None = None


def execute(
    run: Run,
    device: str = "cpu",
    on_epoch: Callable[[int], None] = lambda epoch: None,
    inputs: Inputs | None = None,
    beside: Sequence[Run] = (),
) -> None:
    """Train, choose, test and write the result file of `run`, and of the runs `beside` it.

    InputError while one waits for a search.
    """
    runs, inputs = [cast(Run, one.resolved()) for one in (run, *beside)], inputs or Inputs()
    for one in runs:
        _require_found(one)
    started = time.perf_counter()
    reset_peak_memory(device)
    first, candidates = runs[0], [candidate for one in runs for candidate in one.candidates]
    frozen, (train, validation, test) = inputs.for_training(first, device)
    task, package = tasks.task(first.dataset, first.data_root), splits.kind(first.dataset).PACKAGE
    seeds = [
        derive(one.seed, "member", m) if one.protocol.own_draws else one.seed
        for one in runs
        for m in range(len(one.candidates))
    ]
    model = adapt(frozen.model, [c.method for c in candidates], task.classes, seeds, first.pool)
    try:
        with training.deterministic(first.deterministic), training.autocast(device, first.precision):
            histories = training.fit(
                model,
                train,
                validation,
                [(c.adapter_lr, c.head_lr) for c in candidates],
                [c.beta for c in candidates],
                first.training,
                first.protocol,
                [one.seed for one in runs for _ in one.candidates],
                on_epoch,
            )
            outcomes, trained = [], 0
            for one in runs:
                members = range(trained, trained + len(one.candidates))
                outcomes.append(_test(one, model, histories, members, test))
                trained = members.stop
            made_by = environment(device) | {
                "weights_file_sha256": frozen.file_sha256,
                package: importlib.metadata.version(package),
            }
    finally:
        model.unload()
    if beside:
        made_by["seeds_side_by_side"] = [one.seed for one in runs]
    seconds, epochs = time.perf_counter() - started, sum(history.epochs for history in histories)
    for one, outcome in zip(runs, outcomes, strict=True):
        share = sum(member["epochs"] for member in outcome.members) / epochs
        cost = {"wall_seconds": round(seconds * share, 2), "peak_memory_mb": peak_memory(device)}
        _write(one, outcome, inputs, task.category, made_by, cost)


def _require_found(run: Run) -> None:
    """Raise InputError where a hyperparameter is still to be found."""
    if run.searched:
        name, record = run.searched[0]
        what = "the best of the grid" if name == GRID else SYMBOLS.get(name, name)
        raise InputError(
            f"{what} of {run.dataset} is not known: {record} is missing, or all of it diverged, or it was made with "
            "another configuration"
        )


def _test(run: Run, model, histories: Sequence[training.History], members: range, test) -> Outcome:
    """Choose among the `members` of the model that are the run's, and test the chosen one."""
    of_run = [(histories[m], model.members[m].count()) for m in members]
    described = [
        {
            "grid": candidate.grid,
            "status": history.status,
            "best_validation_loss": history.best_loss,
            "best_epoch": history.best_epoch,
            "epochs": history.epochs,
            "adapter_parameters": count["adapter"],
            "head_parameters": count["head"],
            "curve": {
                "train_loss": history.train_loss,
                "kl": history.kl,
                "validation_loss": history.validation_loss,
                "validation_accuracy": history.validation_accuracy,
            },
        }
        for candidate, (history, count) in zip(run.candidates, of_run, strict=True)
    ]
    outcome = Outcome(described, test.labels.cpu().numpy())
    best = training.choose([history for history, _ in of_run], run.protocol)
    if best is not None:
        m, history = members[best], of_run[best][0]
        outcome.chosen = {"member": best, "epoch": history.best_epoch, "grid": run.candidates[best].grid}
        model.active = [m]
        model.members[m].load_state_dict(history.best_state, strict=False)
        outcome.adapter = checkpoint.dumps(model)
        outcome.probabilities = training.predict(model, test)
        outcome.scores = splits.kind(run.dataset).scores(outcome.probabilities, outcome.labels)
    return outcome


def _write(run: Run, outcome: Outcome, inputs: Inputs, category: str, made_by: dict, cost: dict) -> None:
    """Write the result file of `run`, with what it keeps beside it."""
    config = run.config(inputs)
    record = {
        "schema": results.SCHEMA,
        **{name: getattr(run, name) for name in results.IDENTITY},
        "category": category,
        "protocol": run.protocol.name,
        "data_copy": inputs.copy_name(run),
        **inputs.provenance(run),
        "config": config,
        "config_hash": results.config_hash(config),
        "members": outcome.members,
        "chosen": outcome.chosen,
        "test": outcome.scores,
        "environment": made_by,
        "cost": cost,
    }
    if run.keep:
        results.write(run.path, record, outcome.probabilities, outcome.labels, outcome.adapter)
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


def reset_peak_memory(device: str) -> None:
    """Start a new peak on a CUDA device; that of a process cannot be reset."""
    if device.startswith("cuda") and torch.cuda.is_initialized():  # before that there is none
        torch.cuda.reset_peak_memory_stats(device)


def peak_memory(device: str) -> int:
    """Return the peak of memory in use, in MiB: on the device since it was reset, or of this process so far."""
    if device.startswith("cuda"):
        return torch.cuda.max_memory_allocated(device) // 2**20
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit // 2**20
