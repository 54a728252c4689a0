"""The picture files below a folder."""

from collections.abc import Iterable
from pathlib import Path

from PIL import Image

from pvera.errors import as_input_error

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


def find_pictures(folder: Path, skip: Iterable[Path] = ()) -> tuple[list[Path], int]:
    """Find the pictures below a folder, at any depth: files with a suffix that Pillow reads.

    Links to folders are followed, each folder once. Hidden folders and those of `SYSTEM_FOLDERS`
    are not entered.

    Args:
        folder: Where to look.
        skip: Folders below it that are not entered.

    Returns:
        The pictures, sorted, and the number of other files that are not hidden.

    Raises:
        InputError: A folder cannot be read.
    """
    pictures: list[Path] = []
    others = 0
    visited = {skipped.resolve() for skipped in skip}
    pending = [folder]
    while pending:
        current = pending.pop()
        if current.resolve() in visited:
            continue
        visited.add(current.resolve())

        for path in list_visible(current):
            if path.is_dir():
                pending.append(path)
            elif _is_picture(path):
                pictures.append(path)
            else:
                others += 1
    return sorted(pictures), others


def _is_picture(path: Path) -> bool:
    # Pillow only writes some of the formats.
    return Image.registered_extensions().get(path.suffix.lower()) in Image.OPEN


def list_visible(folder: Path) -> list[Path]:
    """List what lies in a folder and is neither hidden nor made by the system, sorted.

    Raises:
        InputError: The folder cannot be read.
    """
    with as_input_error(f"{folder} cannot be read"):
        content = sorted(folder.iterdir())
    return [
        path
        for path in content
        if not (path.name.startswith(".") or path.name.lower() in SYSTEM_FOLDERS)
    ]
