"""What a user did wrong, in one line."""

import sys
from collections.abc import Callable


class InputError(ValueError):
    """Bad input from the user. The message is one line and says what to change."""


def run(main: Callable[[], None]) -> None:
    """Runs a script's `main`: an InputError ends it with one line on stderr and exit code 2, Ctrl-C with 130."""
    try:
        main()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
