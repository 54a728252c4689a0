"""The user's own pictures as data sets, for scripts that train or analyse."""

import shutil
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from options import OWN

from pvera.data import store, tasks
from pvera.errors import InputError


@contextmanager
def installed(options: Namespace) -> Iterator[Namespace]:
    """Install the data sets of --data-set, if any.

    --list and --status leave the installed split files as they are, and install others in a
    temporary folder.

    Yields:
        The options with these data sets, their folder, and unless more is said the corrected
        protocol and profile `own`, or `own_large` for a larger backbone.

    Raises:
        InputError: As `custom.install`, or --datasets names known data sets too.
    """
    if not options.data_set:
        yield options
        return
    if options.datasets:
        raise InputError(
            "--datasets and --data-set: known data sets and your own pictures train in separate "
            "calls"
        )
    sources = _parse(options.data_set)
    root = options.data or str(OWN)
    with ExitStack() as stack:
        if options.list or options.status:
            temporary = stack.enter_context(TemporaryDirectory())
            for name, source in sources.items():
                stack.enter_context(_listed(temporary, root, name, source))
            root = temporary
        else:
            for name, source in sources.items():
                _install(root, name, source)

        changes = {"datasets": list(sources), "data": root}
        changes["protocol"] = options.protocol or "corrected"
        is_small = options.backbones in (None, ["tiny"])
        changes["profile"] = options.profile or ("own" if is_small else "own_large")
        yield Namespace(**vars(options) | changes)


def _parse(texts: list[str]) -> dict[str, str]:
    """Return folders of pictures by name, from NAME=FOLDER."""
    sources: dict[str, str] = {}
    for text in texts:
        name, _, source = text.partition("=")
        if not (name and source):
            raise InputError(f"--data-set takes NAME=FOLDER, not {text!r}")
        if name in sources:
            raise InputError(f"--data-set names {name!r} twice")
        sources[name] = source
    return sources


def _install(root: str, name: str, source: str) -> dict:
    """Install a data set, print what it is, and return its manifest."""
    from pvera.data import custom  # which calls without own pictures do not need

    manifest = custom.install(root, name, source)
    print(custom.describe(name, manifest), flush=True)
    return manifest


@contextmanager
def _listed(temporary: str, root: str, name: str, source: str) -> Iterator[None]:
    """Install a data set in a temporary folder."""
    folder = Path(temporary, name)
    decoded = store.data_set_folder(folder)
    try:
        manifest = _install(temporary, name, source)
        if manifest == tasks.read_manifest(root, name):
            # The images of the installed data set are decoded already.
            shutil.rmtree(folder)
            folder.symlink_to(Path(root, name).absolute(), target_is_directory=True)
        yield
    finally:
        shutil.rmtree(decoded, ignore_errors=True)
