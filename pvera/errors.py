"""Errors that a user can put right, each in one line."""

import importlib
import io
import os
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class InputError(ValueError):
    """Bad input from the user. The message is one line and says what to change."""


@contextmanager
def catch_os_errors(place: object) -> Iterator[None]:
    """Raise an InputError that names `place` where the system refuses to write inside."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {place}: {error.strerror or error}") from None


@contextmanager
def as_input_error(what: str, advice: str = "") -> Iterator[None]:
    """Raise "what: reason; advice" as an InputError for any other error inside: those of decoders are many."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        words = " ".join(str(error).split()) or type(error).__name__
        reason, *more = textwrap.wrap(
            words, 198
        )  # not shorten: it drops a long path, and all after it
        reason += " …" if more else ""
        raise InputError("; ".join(filter(None, [f"{what}: {reason}", advice]))) from None


def import_extra(module: str, extra: str) -> Any:
    """Import `module`, which the `extra` of the package installs. InputError where it is missing."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        if error.name is None or error.name.partition(".")[0] != package:
            raise
        raise InputError(f"{package} is not installed: pip install -e '.[{extra}]'") from None


def run_script(main: Callable[[], None]) -> None:
    """Run a script's `main` on any terminal: characters that it lacks are printed as escapes.

    An InputError, also of a disk that refuses, ends it with one line on stderr and exit code 2, Ctrl-C with 130, and
    a reader of its output that leaves early, such as `head`, with 141.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a notebook has others, which take everything
            stream.reconfigure(errors="backslashreplace")
    try:
        try:
            main()
        finally:  # also where it ends with an exit code of its own
            sys.stdout.flush()
    except BrokenPipeError:  # nobody reads stdout any more: what is left for it is dropped
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as a shell reports SIGPIPE
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
