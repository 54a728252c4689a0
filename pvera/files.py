"""Files that are written whole or not at all, and their hashes."""

import hashlib
import json
import os
import secrets
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pvera.errors import as_input_error, catch_os_errors


def write_atomically(path: str | Path, content: bytes | str) -> None:
    """Write a file in one step, once all of it is on the disk. Makes folders.

    The mode is that of an earlier file, else the umask's.

    Args:
        path: A file, a link to one, a device or a pipe.
        content: Bytes, or text that becomes UTF-8; what UTF-8 cannot hold, as in a file name of
            another encoding, is escaped.

    Raises:
        InputError: The system refuses, and nothing is written.
    """
    path = Path(path)
    if isinstance(content, str):
        content = content.encode(errors="backslashreplace")
    with catch_os_errors(path):
        if is_stream(path):
            path.write_bytes(content)
        else:
            _replace(Path(os.path.realpath(path)), content)


def _replace(path: Path, content: bytes) -> None:
    """Write `content` to a new file, then give it the name `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        # Opened as any new file, for the umask to hold, and closed before the rest: Windows neither
        # renames nor removes an open file.
        with open(unfinished, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileNotFoundError):
            shutil.copymode(path, unfinished)
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def is_stream(path: Path) -> bool:
    """Return whether `path` is a device, a pipe or a socket, which no file may replace."""
    return path.exists() and not (path.is_file() or path.is_dir())


def require_writable(folder: str | Path) -> None:
    """Make `folder`. InputError if no file can be written there, before a long computation."""
    with catch_os_errors(folder):
        Path(folder).mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0")


def sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file, read in blocks: archives are larger than memory."""
    content = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(2**20):
            content.update(block)
    return content.hexdigest()


def tensors_sha256(tensors: dict[str, Tensor]) -> str:
    """Return the SHA-256 of name, type, shape and bytes of all tensors, in the order of names."""
    content = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        content.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        content.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return content.hexdigest()


def digest(content: Any) -> str:
    """Return the SHA-256 of `content` as canonical JSON.

    Neither the order of keys nor a number's type matters: 16, 16.0 and numpy.int64(16) are equal.
    """

    def number(text: str) -> int | float:
        value = float(text)
        return int(value) if value.is_integer() else value

    canonical = json.loads(json.dumps(json_value(content)), parse_float=number)
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def json_value(value: Any) -> Any:
    """Return `value` in JSON's types: NumPy's as Python's, tuples as lists, NaN as None."""
    text = json.dumps(value, default=lambda array: array.tolist())
    return json.loads(text, parse_constant=lambda _: None)


def read_json(file: str | Path, advice: str = "") -> Any:
    """Return the content of a JSON file.

    Args:
        file: The file.
        advice: What to do if it is damaged.

    Raises:
        InputError: The file is missing or damaged.
    """
    with as_input_error(f"{file} is damaged", advice):
        return json.loads(read_text(file))


def read_text(file: str | Path) -> str:
    """Return a UTF-8 file's text without its byte-order mark.

    Raises:
        InputError: The file is missing, cannot be read or is not UTF-8.
    """
    with as_input_error(f"{file} cannot be read"):
        return Path(file).read_bytes().decode("utf-8-sig")
