"""What a user did wrong, or the disk refused, in one line."""

import errno
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: What a disk answers that is full, over a limit, or not to be written.
REFUSALS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES)


class InputError(ValueError):
    """Bad input from the user. The message is one line and says what to change."""


@contextmanager
def writing(place) -> Iterator[None]:
    """InputError that names `place` where the system refuses what is done inside."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot write {place}: {error.strerror or error}") from None


def run(main: Callable[[], None]) -> None:
    """Runs a script's `main`: an InputError, or a disk that refuses, ends it with one line on stderr and exit
    code 2, Ctrl-C with 130."""
    try:
        main()
    except InputError as error:
        _end(str(error))
    except OSError as error:
        if error.errno not in REFUSALS:
            raise
        _end(": ".join(str(part) for part in (error.filename, error.strerror) if part))
    except KeyboardInterrupt:
        sys.exit(130)


def _end(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    sys.exit(2)
