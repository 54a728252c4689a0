"""The user's own pictures as data sets, for scripts that train or analyse."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory

from options import OWN

from pvera.data import custom
from pvera.errors import InputError


@contextmanager
def own_pictures_installed(options: Namespace) -> Iterator[Namespace]:
    """Install the data sets of --data-set, if any.

    --list and --status install them in a temporary folder.

    Yields:
        The options with these data sets and their folder; and, where they name no profile, with
        `own`, or `own_large` for a larger backbone.

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
    sources = dict(options.data_set)
    with TemporaryDirectory() as temporary:
        root = temporary if options.status else options.data or str(OWN)
        for name, source in sources.items():
            manifest = custom.install(root, name, source)
            print(custom.describe(name, manifest), flush=True)

        # Learning rates and ranks suit a width: each size of backbone has a profile.
        is_small = options.backbones in (None, ["tiny"])
        profile = options.profile or ("own" if is_small else "own_large")
        changes = {"datasets": list(sources), "data": root, "profile": profile}
        yield Namespace(**vars(options) | changes)
