"""Result files: one JSON per run, with its test predictions and its adapter beside it.

    <root>/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json, and .npz and .safetensors beside it

The JSON is written last, so a run is complete when its JSON and the files that it names are there. A record holds

    schema, profile, experiment, backbone, dataset, category, method, seed, protocol
    data_copy              `vtab.copy_name` of the data (null where it cannot be told)
    data_differs           in what accepted data differ from VTAB-1k, as `vtab.check` says
    own_data               of one's own pictures: how they were split, the names of their classes, a hash of all
    config, config_hash    everything that influences the numbers
    members                per member of the grid: grid (its values), status, best_validation_loss,
                           best_epoch, epochs, adapter_parameters, head_parameters, curve (number per epoch; no KL term
                           where β is zero: null)
    chosen                 member, epoch and grid of the member that `training.choose` returns
    test                   its metrics (`metrics.evaluate`)
    environment, cost      versions, device, threads, file of the weights; wall time (s) and peak memory (MiB; on a
                           processor that of the worker process so far)
    files                  suffix -> SHA-256 of each file that was written beside it

Where every member diverged, chosen and test are null.

The record of an analysis (`analyses`) lacks members, chosen and test; the numbers are in the arrays beside it.
"""

import functools
import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from textwrap import shorten

import numpy as np

from pvera.adapters import METHODS
from pvera.errors import InputError, catch_os_errors
from pvera.files import digest, json_value, read_json, sha256, write_atomically

SCHEMA = 3
IDENTITY = ("profile", "experiment", "backbone", "dataset", "method", "seed")
ARRAYS, ADAPTER = ".npz", ".safetensors"
CATEGORIES = ("natural", "specialized", "structured")  # of VTAB-1k
KINDS = (*CATEGORIES, "own", "language")

#: All runs of a table must have the same configuration. These parts of it need only be the same among runs that share
#: what is named:
WITHIN = {
    "weights_sha256": ("backbone",),
    "image_size": ("backbone",),
    "max_length": ("backbone",),
    "pool": ("backbone",),
    "data_sha256": ("backbone", "dataset"),
    "tested": ("backbone", "dataset"),
    "adapter_sha256": IDENTITY,
    "seed": IDENTITY,
    "members": IDENTITY,
}


def config_hash(config: dict) -> str:
    """Return 16 hexadecimal digits of the `digest` of a configuration."""
    return digest(config)[:16]


def path_of(root, record: Mapping) -> Path:
    """Return the path of a record below `root`; record: at least `IDENTITY`."""
    *folders, seed = (record[name] for name in IDENTITY)
    return Path(root, *folders, f"seed{seed:d}.json")


def write(
    path, record: dict, probabilities=None, labels=None, adapter: bytes | None = None, arrays=None
) -> None:
    """Write a run's record, and beside it its test predictions and its adapter, whole or not at all.

    Numbers that are not finite (a diverged member's losses) become null; curves keep six significant digits.
    probabilities: (N, C), stored in fp16; labels: (N,), stored as int16; both in the order in which they
    were tested, of texts the shortest first.
    adapter: `checkpoint.dumps` of the chosen member. arrays: those of an analysis by name, stored as they are.
    """
    path = Path(path)
    record = json_value(record)
    for member in record.get("members", []):
        member["curve"] = {
            name: [None if x is None else float(f"{x:.6g}") for x in values]
            for name, values in member["curve"].items()
        }
    if probabilities is not None:
        arrays = {
            "probabilities": probabilities.astype(np.float16),
            "labels": labels.astype(np.int16),
        }
    contents = {}
    if arrays is not None:
        archive = io.BytesIO()
        np.savez_compressed(archive, **arrays)
        contents[ARRAYS] = archive.getvalue()
    if adapter is not None:
        contents[ADAPTER] = adapter
    record["files"] = {
        suffix: hashlib.sha256(content).hexdigest() for suffix, content in contents.items()
    }
    # A line for each part, and no spaces within it: most are lists of numbers.
    dumps = functools.partial(
        json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )
    text = (
        "{\n"
        + ",\n".join(f"{dumps(name)}: {dumps(part)}" for name, part in record.items())
        + "\n}\n"
    )
    # While what lies beside it is replaced there is no record that it could contradict.
    with catch_os_errors(path):
        for suffix in (".json", ARRAYS, ADAPTER):
            path.with_suffix(suffix).unlink(missing_ok=True)
        for suffix, content in contents.items():
            write_atomically(path.with_suffix(suffix), content)
        write_atomically(path, text)


def read(path) -> dict:
    """Return a run's record. InputError for one that is damaged or of another version."""
    record = read_json(path)
    if record.get("schema") != SCHEMA:
        raise InputError(
            f"{path}: no result file of schema {SCHEMA}: update this program, or delete the file"
        )
    if record["method"] not in METHODS:
        raise InputError(
            f"{path}: unknown method {record['method']!r}, not one of {', '.join(METHODS)}; one of your own must be "
            "imported first (pvera.register)"
        )
    return record


def recorded_sha256(path, suffix: str) -> str:
    """Return the SHA-256 of the file that was written with the record at `path`. InputError where it was not kept."""
    written = read(path)["files"].get(suffix)
    if written is None:
        raise InputError(
            f"{Path(path).with_suffix(suffix)}: was not kept; delete {path} and run it again"
        )
    return written


def beside(path, suffix: str) -> Path:
    """Return the file that was written with the record at `path`. InputError where it is gone, or was changed."""
    file, written = Path(path).with_suffix(suffix), recorded_sha256(path, suffix)
    if not file.is_file() or sha256(file) != written:
        raise InputError(
            f"{file}: is gone, or was changed after it was written; delete {path} and run it again"
        )
    return file


def read_arrays(path) -> dict[str, np.ndarray]:
    """Return the arrays of the run at `path`. InputError as `beside`."""
    with np.load(beside(path, ARRAYS)) as arrays:
        return dict(arrays)


def read_predictions(path) -> tuple[np.ndarray, np.ndarray]:
    """Return test probabilities (N, C) fp16 and labels (N,) int16 of the training at `path`. InputError as `beside`."""
    arrays = read_arrays(path)
    return arrays["probabilities"], arrays["labels"]


def read_all(root, profile: str, experiment: str) -> list[dict]:
    """Read all records of an experiment, sorted by path."""
    return [read(path) for path in sorted(Path(root, profile, experiment).glob("*/*/*/seed*.json"))]


def load_runs(root, profile: str, *experiments: str) -> list[dict]:
    """Read all records of experiments that share their tables; without a name, of the benchmark.

    InputError if they cannot stand in one analysis.
    """
    runs = [
        run
        for experiment in experiments or ("benchmark",)
        for run in read_all(root, profile, experiment)
    ]
    seen = {}  # (key, the part of the runs that it belongs to) -> the first run there and its value
    for run in runs:
        config = {"protocol name": run["protocol"], "accepted data": "data_differs" in run} | run[
            "config"
        ]
        if run.get("data_copy"):  # where it cannot be told, data_sha256 decides
            config["data_copy"] = run["data_copy"]
        for key, value in config.items():
            part = tuple(run[name] for name in WITHIN.get(key, ()))
            first, expected = seen.setdefault((key, part), (run, value))
            if value != expected:
                both = " and ".join(
                    f"{shorten(str(setting), 60)} ({record['dataset']}/{record['method']}/seed{record['seed']})"
                    for record, setting in ((first, expected), (run, value))
                )
                raise InputError(f"results of different {key} cannot share a table: {both}")
    return runs
