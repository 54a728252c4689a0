"""Errors that a user can put right, each in one line."""

import importlib
import io
import os
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

LONGEST_REASON = 198  # characters


class InputError(ValueError):
    """Bad input from the user. The message is one line and says what to change."""


@contextmanager
def catch_os_errors(path: object) -> Iterator[None]:
    """Raise an InputError that names `path` if the system refuses to write inside."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror or error}") from error


@contextmanager
def as_input_error(what: str, advice: str = "") -> Iterator[None]:
    """Raise any other error inside as an InputError: decoders raise errors of many types.

    Args:
        what: What went wrong.
        advice: What to do. The message is "what: reason; advice".
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        if len(words) > LONGEST_REASON:
            words = words[:LONGEST_REASON] + " …"
        message = f"{what}: {words}"
        if advice:
            message += f"; {advice}"
        raise InputError(message) from error  # its traceback shows a fault of our own


def import_extra(module: str, extra: str) -> Any:
    """Import a module that an extra of the package installs.

    Args:
        module: The module.
        extra: The extra in pyproject.toml.

    Raises:
        InputError: The module's package is missing.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if (error.name or "").partition(".")[0] != package:
            raise
        raise InputError(f"{package} is not installed: pip install -e '.[{extra}]'") from None


#: Errors or names that a message lists.
LISTED = 10


def list_first(things: Collection[object]) -> str:
    """Return the first errors or names in one line, and how many more there are."""
    listed = "; ".join(map(str, list(things)[:LISTED]))
    if len(things) <= LISTED:
        return listed
    return f"{listed}; and {len(things) - LISTED} more"


def run_script(main: Callable[[], None]) -> None:
    """Run a script's `main` on any terminal.

    Characters that the terminal lacks are printed as escapes. An InputError ends the script with
    one line on stderr and exit code 2, Ctrl-C with 130, and a reader of its output that leaves
    early, such as `head`, with 141.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a notebook's stream takes everything
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            main()
        finally:  # also if it ends with an exit code of its own
            sys.stdout.flush()
    except BrokenPipeError:  # nobody reads stdout any more: the rest of it is dropped
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as a shell reports SIGPIPE
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
