"""Result files: one JSON file per job, with its predictions or arrays and its adapter.

    <root>/<profile>/<experiment>/<backbone>/<dataset>/<method>/seed<k>.json, .npz and .safetensors

The JSON file holds a `records.Record`. It is written after the files that it names, so a job is
complete when its JSON file exists.
"""

import hashlib
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pvera.adapters import METHODS
from pvera.errors import InputError, catch_os_errors
from pvera.files import digest, json_value, read_json, sha256, write_atomically
from pvera.study.records import IDENTITY, SCHEMA, Record

ARRAYS_SUFFIX, ADAPTER_SUFFIX = ".npz", ".safetensors"

#: All runs of a table must have the same configuration. These parts of it need only be the same
#: among runs that have the same values of the named keys; those of `IDENTITY` may differ between
#: any two runs.
SAME_WITHIN = {
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


def path_of(root: str | Path, identity: Mapping[str, Any]) -> Path:
    """Return the path of a record below `root`, from the values of `IDENTITY`."""
    *folders, seed = (identity[name] for name in IDENTITY)
    return Path(root, *folders, f"seed{seed:d}.json")


# Writing


def write(
    path: str | Path,
    record: Mapping[str, Any],
    arrays: Mapping[str, Any] | None = None,
    adapter: bytes | None = None,
) -> None:
    """Write a job's record with its files, whole or not at all.

    Numbers that are not finite become null; curves keep six significant digits.

    Args:
        path: The JSON file.
        record: A `Record` as a dictionary, without its `files`.
        arrays: By name: of a training its predictions, see `read_predictions`.
        adapter: `checkpoint.dumps` of the chosen member.

    Raises:
        InputError: The record lacks a key or has a value of another type, or the system refuses.
    """
    path = Path(path)
    contents: dict[str, bytes] = {}
    if arrays is not None:
        archive = io.BytesIO()
        np.savez_compressed(archive, **arrays)
        contents[ARRAYS_SUFFIX] = archive.getvalue()
    if adapter is not None:
        contents[ADAPTER_SUFFIX] = adapter
    hashes = {suffix: hashlib.sha256(content).hexdigest() for suffix, content in contents.items()}
    text = to_json(_with_short_curves(json_value({**record, "files": hashes})), path)
    # While the other files are replaced there is no record that they could contradict.
    with catch_os_errors(path):
        for suffix in (".json", ARRAYS_SUFFIX, ADAPTER_SUFFIX):
            path.with_suffix(suffix).unlink(missing_ok=True)
        for suffix, content in contents.items():
            write_atomically(path.with_suffix(suffix), content)
        write_atomically(path, text)


def _with_short_curves(record: dict[str, Any]) -> dict[str, Any]:
    """Round the members' curves to six significant digits."""
    for member in record.get("members") or []:
        for name, values in member["curve"].items():
            member["curve"][name] = [x if x is None else float(f"{x:.6g}") for x in values]
    return record


def to_json(content: Mapping[str, Any], path: str | Path = "") -> str:
    """Return the text of a record: a line for each key, most of which are lists of numbers.

    Raises:
        InputError: It is no `Record`; names `path`.
    """
    record = Record.build(content, path)
    lines = [
        f"{_dump(name)}: {_dump(part)}"
        for name, part in record.model_dump(by_alias=True, exclude_unset=True).items()
    ]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# Reading


def read_record(path: str | Path) -> Record:
    """Read a job's record.

    Raises:
        InputError: It is damaged, or was written by another version.
    """
    return Record.build(read_record_dict(path), path)


def read_record_dict(path: str | Path) -> dict[str, Any]:
    """Read a job's record as a dictionary, for tables of thousands; see `records.Record`.

    Raises:
        InputError: It is no JSON file, or was written by another version.
    """
    record = read_json(path)
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise InputError(
            f"{path}: no result file of schema {SCHEMA}: update this program, or delete the file"
        )
    method = record.get("method")
    if method not in METHODS:
        raise InputError(
            f"{path}: unknown method {method!r}, not one of {', '.join(METHODS)}; one of "
            "your own must be imported first (pvera.register)"
        )
    return record


def recorded_sha256(path: str | Path, suffix: str) -> str:
    """Return the SHA-256 of the file with this suffix, from the record at `path`.

    Raises:
        InputError: The file was not kept.
    """
    written = read_record(path).files.get(suffix)
    if written is None:
        file = Path(path).with_suffix(suffix)
        raise InputError(f"{file}: was not kept; delete {path} and run it again")
    return written


def kept_file(path: str | Path, suffix: str) -> Path:
    """Return the file with this suffix that was written with the record at `path`.

    Raises:
        InputError: It is gone, or was changed.
    """
    file = Path(path).with_suffix(suffix)
    written = recorded_sha256(path, suffix)
    if not file.is_file() or sha256(file) != written:
        raise InputError(
            f"{file}: is gone, or was changed after it was written; delete {path} and run it again"
        )
    return file


def read_arrays(path: str | Path) -> dict[str, np.ndarray]:
    """Return the arrays of the job at `path`. InputError as `kept_file`."""
    with np.load(kept_file(path, ARRAYS_SUFFIX)) as arrays:
        return dict(arrays)


def read_predictions(path: str | Path) -> tuple[np.ndarray, np.ndarray]:
    """Return test probabilities (N, C) fp16 and labels (N,) int16. InputError as `kept_file`.

    They are in the order of the test, of texts the shortest first.
    """
    arrays = read_arrays(path)
    return arrays["probabilities"], arrays["labels"]


def read_all(root: str | Path, profile: str, experiment: str) -> list[dict[str, Any]]:
    """Read all records of an experiment as dictionaries, sorted by path."""
    paths = sorted(Path(root, profile, experiment).glob("*/*/*/seed*.json"))
    return [read_record_dict(path) for path in paths]


def load_runs(root: str | Path, profile: str, *experiments: str) -> list[dict[str, Any]]:
    """Read all records of experiments that share their tables, by default of the benchmark.

    Raises:
        InputError: Two records have configurations that do not fit into one table.
    """
    runs = []
    for experiment in experiments or ("benchmark",):
        runs += read_all(root, profile, experiment)

    # (key, the values of the keys within which it must agree) -> the first run and its value
    seen: dict[tuple, tuple[dict, Any]] = {}
    for run in runs:
        for key, value in _comparable(run).items():
            group = tuple(run[name] for name in SAME_WITHIN.get(key, ()))
            first, expected = seen.setdefault((key, group), (run, value))
            if value != expected:
                both = f"{path_of(root, first)} and {path_of(root, run)}"
                raise InputError(f"results of different {key} cannot share a table: {both}")
    return runs


def _comparable(run: dict) -> dict:
    """Return what must agree among the runs of a table, by name."""
    config = {"protocol name": run["protocol"], "accepted data": "data_differs" in run}
    config |= run["config"]
    if run.get("data_copy"):  # where it cannot be told, data_sha256 decides
        config["data_copy"] = run["data_copy"]
    return config
