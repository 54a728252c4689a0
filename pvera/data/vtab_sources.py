"""Sources of VTAB-1k: a folder, an archive or the Hugging Face hub."""

from __future__ import annotations

import os
import shutil
import tarfile
import zipfile
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path, PurePosixPath

from tqdm import tqdm

from pvera.data.image_folders import SPLITS
from pvera.errors import InputError
from pvera.files import sha256

#: The copy that the V-PETL benchmark (Xin et al., NeurIPS 2024) prepared and points to: one archive with all
#: 19 data sets in the folder format of `data`.
REPO = "XiN0919/VTAB-1k"
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
BLOCK = 16 * 2**20  # bytes of an archive per request to the hub


def find(source: Path, names: Collection[str], extracted: Path) -> dict[str, Path]:
    """Find the folders of the data sets `names` in a folder, in an archive, or in the archives of a folder.

    Archives are extracted below `extracted`. InputError: no such source, a data set that is there twice, and an archive
    that is damaged or unsafe.
    """
    if not source.exists():
        raise InputError(f"{source} does not exist")
    archives, folders = [source], {}
    if source.is_dir():
        folders = _below(source, names)
        archives = sorted(path for path in source.iterdir() if path.name.endswith(ARCHIVES))
    elif not source.is_file() or not source.name.endswith(ARCHIVES):
        raise InputError(f"{source} is neither a folder nor an archive ({', '.join(ARCHIVES)})")
    rest = set(names) - folders.keys()
    if rest:
        for archive in archives:
            extract(archive, extracted / archive.name.split(".")[0])
    return folders | _below(extracted, rest)


def _below(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Find data sets at most two levels below `folder`."""
    folder_of = {}
    for name in names:
        for pattern in (name, f"*/{name}", f"*/*/{name}"):
            folders = sorted(folder.glob(pattern))
            candidates = [path for path in folders if any((path / f"{split}.txt").exists() for split in SPLITS)]
            if len(candidates) > 1:
                one, other = (path.relative_to(folder) for path in candidates[:2])
                raise InputError(f"{folder} holds {name} twice, as {one} and as {other}: give the folder of one copy")
            if candidates:
                folder_of[name] = candidates[0]
                break
    return folder_of


def extract(archive: Path, target: Path) -> None:
    """Extract an archive below `target`, which nothing in it can leave."""
    bar = partial(tqdm, desc=f"extracting {archive.name}", unit="file")
    try:
        if archive.name.endswith(".zip"):
            with zipfile.ZipFile(archive) as members:
                for name in bar(members.namelist()):
                    members.extract(name, target)  # drops what leaves from the name, and writes links as files
        else:
            with tarfile.open(archive) as tarred:
                for member in bar(tarred):
                    tarred.extract(member, target, filter="data")  # refuses links out, devices and paths that leave
    except Exception as error:  # damaged archives fail in many ways
        reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot extract {archive}: {reason}") from None


def put(folder: Path, target: Path, link: bool) -> None:
    """Link or move a data set to its place, where it replaces another."""
    if folder.resolve() == target.resolve():
        return
    if target.is_symlink():
        target.unlink()
    elif target.exists():
        shutil.rmtree(target)
    if link:
        target.symlink_to(folder.resolve(), target_is_directory=True)
    else:
        folder.rename(target)


def download(repo: str, revision: str, names: Collection[str], folder: Path) -> tuple[Path, str]:
    """Download the archives of the hub's data set repository `repo`: those named after data sets, or all.

    Returns their folder below `folder`, and the commit. A download continues where an interruption stopped it.
    InputError where the download fails, or its checksum is not the hub's.
    """
    from huggingface_hub import HfApi

    try:
        info = HfApi().repo_info(repo, repo_type="dataset", revision=revision)
        archives = [PurePosixPath(file.rfilename) for file in info.siblings if file.rfilename.endswith(ARCHIVES)]
        archives = [file for file in archives if file.name.split(".")[0] in names] or archives
        for file in archives:
            _fetch(f"datasets/{repo}@{info.sha}/{file}", folder / info.sha / file.name)
    except InputError:
        raise
    except Exception as error:  # the hub's client and its transport have exceptions of their own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"cannot download {repo}: {reason}; run the same command again to continue, or give "
            "a copy that you have with --source"
        ) from None
    if not archives:
        raise InputError(f"{repo} holds no archive ({', '.join(ARCHIVES)})")
    return folder / info.sha, info.sha


def _fetch(path: str, target: Path) -> None:
    """Download one file block by block, from where an earlier call stopped; the hub's client would start anew."""
    from huggingface_hub import HfFileSystem

    if target.exists():
        return
    hub, unfinished = HfFileSystem(), target.with_name(f"{target.name}.partial")
    info = hub.info(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(unfinished, "ab") as out, hub.open(path, "rb", block_size=BLOCK, cache_type="none") as remote:
        with tqdm(desc=target.name, total=info["size"], initial=out.tell(), unit="B", unit_scale=True) as bar:
            remote.seek(out.tell())
            while block := remote.read(BLOCK):
                out.write(block)
                bar.update(len(block))
    if info["lfs"] and sha256(unfinished) != info["lfs"]["sha256"]:
        unfinished.unlink()
        raise InputError(f"{path} arrived damaged and was removed; run the same command again")
    os.replace(unfinished, target)
