"""Files that a user's data names: only regular ones are opened, since a pipe or a device may never answer."""

import os
import stat
from pathlib import Path

from .errors import InputError


def status(file: str | Path) -> os.stat_result:
    """Return `os.stat(file)`. OSError unless it is a regular file."""
    found = os.stat(file)
    if not stat.S_ISREG(found.st_mode):
        raise OSError("it is not a regular file")
    return found


def read_text(file: Path) -> str:
    """Return a UTF-8 file's text, without its byte-order mark. InputError names what cannot be read, and its line."""
    try:
        status(file)
        content = file.read_bytes()
    except FileNotFoundError:
        raise InputError(f"{file} does not exist") from None
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror or error}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InputError(f"{file} cannot be read: line {line} is not UTF-8 text") from None
