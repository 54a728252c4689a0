"""What a user did wrong, or the disk refused, in one line."""

from collections.abc import Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """Bad input from the user. The message is one line and says what to change."""


@contextmanager
def writing(place) -> Iterator[None]:
    """InputError that names `place` where the system refuses what is done inside."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {place}: {error.strerror or error}") from None
