"""The frame of every script: bad input ends it with one line."""

import os
import sys
from collections.abc import Callable

from pvera.errors import InputError


def run(main: Callable[[], None]) -> None:
    """Run a script's `main`.

    An InputError, also of a disk that refuses, ends it with one line on stderr and exit code 2, Ctrl-C with 130, and
    a reader of its output that leaves early, such as `head`, with 141.
    """
    try:
        main()
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads stdout any more: what is left for it is dropped
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)  # as a shell reports SIGPIPE
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
