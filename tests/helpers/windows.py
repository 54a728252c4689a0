"""Windows' rule, simulated: what is open is neither replaced nor removed."""

import errno
import os
from contextlib import suppress


def open_files() -> set[str]:
    """Return the paths of the files that this process has open."""
    paths = set()
    for descriptor in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that listed them
            paths.add(os.readlink(f"/proc/self/fd/{descriptor}"))
    return paths


def refuse_open_files(monkeypatch) -> None:
    """Let `os.replace` and `os.unlink` refuse files that are open."""

    def strict(function, count):
        def refusing(*arguments, **options):
            for path in arguments[:count]:
                if os.path.realpath(path) in open_files():
                    raise PermissionError(errno.EACCES, "it is open", path)
            return function(*arguments, **options)

        return refusing

    for name, count in (("replace", 2), ("unlink", 1)):
        monkeypatch.setattr(os, name, strict(getattr(os, name), count))
