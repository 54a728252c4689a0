"""The picture files below a folder, and what is left out of them."""

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from PIL import Image

from pvera.errors import as_input_error

#: Why files are left out.
HIDDEN = "hidden"
UNREAD = "in a format that Pillow does not read"

#: Names, in small letters, of folders that file servers (Synology, QNAP, NetApp), macOS, Windows
#: and fsck make: thumbnails, copies of earlier days and what was deleted.
SYSTEM_FOLDERS = {
    "@eadir",
    "#recycle",
    "#snapshot",
    "@tmp",
    "@recycle",
    "@recently-snapshot",
    "@__thumb",
    "~snapshot",
    "__macosx",
    "network trash folder",
    "temporary items",
    "$recycle.bin",
    "recycler",
    "system volume information",
    "lost+found",
}


def find_pictures(folder: Path, skip: Iterable[Path] = ()) -> tuple[list[Path], Counter[str]]:
    """Find the pictures below a folder, at any depth: files with a suffix that Pillow reads.

    Links to folders are followed, each folder once. Pictures in hidden folders and in those of
    `SYSTEM_FOLDERS` are left out and counted.

    Args:
        folder: Where to look.
        skip: Folders below it that are not entered.

    Returns:
        The pictures, sorted, and the number of files that are left out, by reason.

    Raises:
        InputError: A folder cannot be read.
    """
    pictures: list[Path] = []
    left_out: Counter[str] = Counter()
    # A folder may be reached twice by links: then as a hidden one and as another.
    visited = {(skipped.resolve(), False) for skipped in skip}
    pending = [(folder, False)]
    while pending:
        current, in_hidden = pending.pop()
        visit = (current.resolve(), in_hidden)
        if visit in visited:
            continue
        visited.add(visit)

        for path in _list_folder(current, in_hidden):
            hidden = in_hidden or is_hidden(path.name)
            if path.is_dir():
                pending.append((path, hidden))
            elif not _is_picture(path):
                if not hidden:
                    left_out[UNREAD] += 1
            elif hidden:
                left_out[HIDDEN] += 1
            else:
                pictures.append(path)
    return sorted(pictures), left_out


def _is_picture(path: Path) -> bool:
    # Pillow only writes some of the formats.
    return Image.registered_extensions().get(path.suffix.lower()) in Image.OPEN


def _list_folder(folder: Path, hidden: bool) -> list[Path]:
    """Return the sorted content of a folder."""
    if hidden:
        # Such folders may be closed to users, as lost+found is.
        with suppress(OSError):
            return sorted(folder.iterdir())
        return []
    with as_input_error(f"{folder} cannot be read"):
        return sorted(folder.iterdir())


def is_hidden(name: str) -> bool:
    """Return whether the file or folder of this name is hidden, or made by the system."""
    return name.startswith(".") or name.lower() in SYSTEM_FOLDERS


def visible_folders(folder: Path) -> list[Path]:
    """Return the folders in `folder` that are not hidden, sorted.

    Raises:
        InputError: The folder cannot be read.
    """
    content = _list_folder(folder, hidden=False)
    return [path for path in content if path.is_dir() and not is_hidden(path.name)]


def describe_left_out(left_out: dict[str, int]) -> str:
    """Return the number of files that were left out for each reason, in words."""
    return ", ".join(f"{count} {reason}" for reason, count in sorted(left_out.items()))
