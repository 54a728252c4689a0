"""Sources of VTAB-1k: a folder, an archive or the Hugging Face hub.

A data set takes its place when all of it is there and was judged, so a damaged source leaves nothing behind.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from filelock import FileLock
from tqdm import tqdm

from pvera.data.image_folders import SPLITS
from pvera.data.vtab import Verdict
from pvera.errors import InputError, writing
from pvera.files import sha256

#: The copy that the V-PETL benchmark (Xin et al., NeurIPS 2024) prepared and points to: one archive with all
#: 19 data sets in the folder format of `data`.
REPO = "XiN0919/VTAB-1k"
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
BLOCK = 16 * 2**20  # bytes of an archive per request to the hub

#: (folder that holds the data set, its name) -> its verdict.
Judge = Callable[[Path, str], Verdict]


@contextmanager
def placing(root: Path) -> Iterator[None]:
    """Let one process at a time change `root`. InputError where it cannot be written."""
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".lock"):
            yield


def place(root: Path, source: Path, names: Collection[str], judge: Judge) -> dict[str, Verdict]:
    """Install the requested data sets found in `source` that are usable, and return all verdicts.

    Links the data sets of a folder and extracts those of an archive; replaces data sets that are in place already.
    InputError: no such source, a damaged archive, or one with a member that leaves its folder.
    """
    if not source.exists():
        raise InputError(f"{source} does not exist")
    if source.is_dir():
        verdicts = _install(root, find(source, names), judge, _link)
        for archive in sorted(path for path in source.iterdir() if path.name.endswith(ARCHIVES)):
            if rest := [name for name in names if name not in verdicts or not verdicts[name].usable]:
                verdicts |= place(root, archive, rest, judge)
        return verdicts
    if not source.is_file() or not source.name.endswith(ARCHIVES):
        raise InputError(f"{source} is neither a folder nor an archive ({', '.join(ARCHIVES)})")
    extracted = root / ".extracted"
    shutil.rmtree(extracted, ignore_errors=True)  # of a call that was killed
    try:
        extract(source, extracted, names)
        return _install(root, find(extracted, names), judge, Path.rename)
    finally:
        shutil.rmtree(extracted, ignore_errors=True)


def find(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Find the folders of the data sets `names`, at most two levels below `folder`. InputError for one found twice."""
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


def _link(folder: Path, target: Path) -> None:
    target.symlink_to(folder.resolve(), target_is_directory=True)


def _install(
    root: Path, folders: dict[str, Path], judge: Judge, move: Callable[[Path, Path], object]
) -> dict[str, Verdict]:
    """Move the usable data sets of `folders` below `root`, where they replace others; return all verdicts."""
    verdicts = {name: judge(folder.parent, name) for name, folder in folders.items()}
    for name, folder in folders.items():
        if verdicts[name].usable and folder.resolve() != (root / name).resolve():
            _put(root, name, lambda target, folder=folder: move(folder, target))
    return verdicts


def _put(root: Path, name: str, make) -> None:
    """Call `make(root / name)`, and remove the former content in the end."""
    target, old = root / name, root / f".{name}.old"
    for path in (old, target):
        if path.is_symlink():
            path.unlink()
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    make(target)
    shutil.rmtree(old, ignore_errors=True)


def extract(archive: Path, target: Path, names: Collection[str]) -> None:
    """Extract the data sets `names`; an archive named after a data set holds that data set alone."""
    stem = archive.name.split(".")[0]
    if stem in names:
        target = target / stem
    target.mkdir(parents=True)
    try:
        wanted = (lambda path: True) if stem in names else (lambda path: set(path.parts[:3]) & set(names))
        for _ in tqdm(_extract(archive, target, wanted), f"extracting {archive.name}", unit="file"):
            pass
    except InputError:
        raise
    except tarfile.FilterError as error:
        raise InputError(f"{archive} is not safe to extract: {error}") from None
    except Exception as error:  # damaged archives fail in many ways
        reason = (getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot extract {archive}: {reason}") from None


def _extract(archive: Path, target: Path, wanted) -> Iterator[PurePosixPath]:
    if not archive.name.endswith(".zip"):
        with tarfile.open(archive) as members:
            for member in members:
                tarfile.data_filter(member, target)  # refuses links out, devices and paths that leave
                path = PurePosixPath(member.name)
                if wanted(path):
                    members.extract(member, target, filter="data")
                    yield path
        return
    with zipfile.ZipFile(archive) as members:
        for member in members.infolist():
            path, mode = PurePosixPath(member.filename.replace("\\", "/")), member.external_attr >> 16
            if path.is_absolute() or ".." in path.parts or Path(member.filename).drive:
                raise InputError(f"{archive} is not safe to extract: {member.filename!r} leaves the folder")
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise InputError(f"{archive} is not safe to extract: {member.filename!r} is no plain file")
        for member in members.infolist():
            path = PurePosixPath(member.filename)
            if wanted(path):
                members.extract(member, target)
                yield path


# The hub


def download(
    root: Path, repo: str, revision: str, names: Collection[str], judge: Judge
) -> tuple[dict[str, Verdict], str]:
    """Install the requested data sets found in the hub's data set repository `repo`, as `place` does.

    Returns the verdicts and the commit. A download continues where an interruption stopped it.
    InputError where the download fails.
    """
    from huggingface_hub import HfApi, snapshot_download

    try:
        info = HfApi().repo_info(repo, repo_type="dataset", revision=revision)
        folder = root / ".download" / info.sha
        files = [PurePosixPath(file.rfilename) for file in info.siblings]
        archives = [file for file in files if file.name.endswith(ARCHIVES)]
        archives = [file for file in archives if file.name.split(".")[0] in names] or archives
        if any(set(file.parts[:-1]) & set(names) for file in files if file not in archives):
            patterns = [f"{prefix}{name}/*" for name in names for prefix in ("", "*/")]
            snapshot_download(repo, repo_type="dataset", revision=info.sha, local_dir=folder, allow_patterns=patterns)
        else:
            for file in archives:
                _fetch(f"datasets/{repo}@{info.sha}/{file}", folder / file.name)
    except InputError:
        raise
    except Exception as error:  # the hub's client and its transport have exceptions of their own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"cannot download {repo}: {reason}; run the same command again to continue, or give "
            "a copy that you have with --source"
        ) from None
    verdicts = _install(root, find(folder, names), judge, Path.rename)
    if rest := set(names) - verdicts.keys():
        verdicts |= place(root, folder, rest, judge) if folder.exists() else {}
    shutil.rmtree(root / ".download", ignore_errors=True)
    return verdicts, info.sha


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
                out.flush()
                bar.update(len(block))
    if info["lfs"] and sha256(unfinished) != info["lfs"]["sha256"]:
        unfinished.unlink()
        raise InputError(f"{path} arrived damaged and was removed; run the same command again")
    os.replace(unfinished, target)
