"""Sources of VTAB-1k: a folder, an archive or the Hugging Face hub."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable
from pathlib import Path

from pvera.data.image_folders import SPLITS
from pvera.errors import InputError, explained

#: The copy that the V-PETL benchmark (Xin et al., NeurIPS 2024) prepared and points to: one archive with all
#: 19 data sets in the folder format of `data`.
REPO = "XiN0919/VTAB-1k"
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def find(source: Path, names: Collection[str], extracted: Path) -> dict[str, Path]:
    """Find the folders of the data sets `names` in a folder, in an archive, or in the archives of a folder.

    Archives are extracted below `extracted`. InputError: no such source, a data set that is there twice, and an archive
    that is damaged or unsafe.
    """
    archives, folders = [source], {}
    if source.is_dir():
        folders = _below(source, names)
        archives = sorted(path for path in source.iterdir() if path.name.endswith(ARCHIVES))
    elif not source.is_file() or not source.name.endswith(ARCHIVES):
        what = f"is neither a folder nor an archive ({', '.join(ARCHIVES)})" if source.exists() else "does not exist"
        raise InputError(f"{source} {what}")
    rest = set(names) - folders.keys()
    for archive in archives if rest else ():
        extract(archive, extracted / archive.name.split(".")[0])
    return folders | _below(extracted, rest)


def _below(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Find data sets at most two levels below `folder`."""
    folder_of = {}
    for name in names:
        candidates = [
            path
            for pattern in (name, f"*/{name}", f"*/*/{name}")
            for path in sorted(folder.glob(pattern))
            if any((path / f"{split}.txt").exists() for split in SPLITS)
        ]
        if len(candidates) > 1:
            copies = " and as ".join(str(path.relative_to(folder)) for path in candidates[:2])
            raise InputError(f"{folder} holds {name} twice, as {copies}: give the folder of one copy")
        if candidates:
            folder_of[name] = candidates[0]
    return folder_of


def extract(archive: Path, target: Path) -> None:
    """Extract an archive below `target`, which nothing in it can leave.

    InputError for a damaged or unsafe archive; OSError where the system refuses, as on a full disk.
    """
    print(f"extracting {archive.name}", flush=True)
    # Of zip files, what leaves is left out; the filter of tar files refuses it, links out and devices.
    options = {} if archive.name.endswith(".zip") else {"filter": "data"}
    try:
        shutil.unpack_archive(archive, target, **options)
    except Exception as error:  # damaged archives fail in many ways, also as an OSError without a number
        if isinstance(error, OSError) and error.errno:
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot extract {archive}: {reason}") from None


def download(folder: Path) -> None:
    """Download the hub's archive of VTAB-1k into `folder`. InputError where that fails."""
    import huggingface_hub

    patterns = [f"*{suffix}" for suffix in ARCHIVES]
    with explained(f"cannot download {REPO}", "run the same command again, or give a copy to prepare_vtab.py --source"):
        huggingface_hub.snapshot_download(REPO, repo_type="dataset", allow_patterns=patterns, local_dir=folder)
