"""VTAB-1k on disk: where it comes from, which of the two circulating copies it is, whether it is whole."""
from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path, PurePosixPath

from filelock import FileLock
from PIL import Image
from tqdm import tqdm

from .data import SPLITS, TASKS, Task, read_split_file
from .errors import InputError
from .results import write_atomically

#: The copy that the V-PETL benchmark (Xin et al., NeurIPS 2024) prepared and points to: one archive with all
#: 19 data sets in the folder format of `data`.
REPO = "XiN0919/VTAB-1k"
RECORD = "vtab-1k.json"
NAMES = tuple(task.name for task in TASKS.values() if task.suite == "vtab")
TRAINING = {"train800": 800, "val200": 200, "train800val200": 1000}  # images
#: Classes without any training image, in every copy.
ABSENT = {"sun397": 1}
#: Data sets whose originals are stored without loss; the others came as JPEG files in the first place, so
#: both copies hold JPEG files of them.
LOSSLESS_ORIGINALS = (
    "cifar", "svhn", "patch_camelyon", "clevr_count", "clevr_dist", "dsprites_loc", "dsprites_ori", "kitti",
    "smallnorb_azi", "smallnorb_ele",
)
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
BLOCK = 16 * 2**20  # bytes of an archive that one request to the hub asks for


# Which copy


def copy_name(root: str | Path, name: str | None = None) -> str | None:
    """"lossy" where data sets whose originals are lossless are held as JPEG files, "lossless" where they are
    not, "mixed" where both occur, None where no such data set is there.

    The first image of each split decides, by its content and not by its name. Where `RECORD` says that test
    splits were shortened for a trial, the name says so too. With `name` this data set alone is looked at,
    unless the copies do not differ in it.
    """
    return _name(root, read_record(root)["test_images"], name)


def _name(root: str | Path, shortened: int | None, name: str | None = None) -> str | None:
    names = [name] if name in LOSSLESS_ORIGINALS else LOSSLESS_ORIGINALS
    found = {kind for each in names for kind in _kinds(Path(root) / each)}
    copy = [found.pop() if len(found) == 1 else "mixed"] if found else []
    return ", ".join(copy + [f"{shortened} test images"] * bool(shortened)) or None


def _kinds(folder: Path) -> Iterator[str]:
    for split in SPLITS:
        try:
            with open(folder / f"{split}.txt", encoding="utf-8-sig") as lines:
                path = next(lines).rsplit(maxsplit=1)[0]
            with Image.open(folder / path) as image:
                yield "lossy" if image.format in ("JPEG", "MPO") else "lossless"
        except (OSError, ValueError, IndexError, StopIteration):
            continue  # `check` says what is wrong with it


# What is known about it


def read_record(root: str | Path) -> dict:
    """What `RECORD` in `root` holds, its copy apart, which is for its readers.

    datasets: per name where it came from (origin) and the checksum of each split at first use (checksums).
    test_images: to how many images test splits are shortened, or None.
    """
    try:
        found = json.loads((Path(root) / RECORD).read_text())
        return {"datasets": dict(found["datasets"]), "test_images": found["test_images"]}
    except FileNotFoundError:
        return {"datasets": {}, "test_images": None}
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{Path(root) / RECORD} is damaged ({reason}): remove it to record anew") from None


def write_record(root: Path, record: dict) -> None:
    record = {"copy": _name(root, record["test_images"])} | record
    write_atomically(root / RECORD, (json.dumps(record, indent=1) + "\n").encode())


def known_checksums(copy: str | None) -> dict[str, dict[str, str]]:
    """Checksums per data set and split of a published copy, as far as they are known."""
    return json.loads((resources.files(__package__) / "vtab_checksums.json").read_text()).get(copy, {})


# Whether it is whole


@dataclass
class Verdict:
    """What was found out about one data set.

    states: "right", "wrong" or "missing" per split.
    findings: why a split is not right.   notes: what is worth knowing besides.
    checksums: SHA-256 over the lines "path label" of each split that could be read.
    """

    name: str
    states: dict[str, str] = field(default_factory=lambda: dict.fromkeys(SPLITS, "right"))
    findings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    checksums: dict[str, str] = field(default_factory=dict)

    @property
    def right(self) -> bool:
        return set(self.states.values()) == {"right"}

    def wrong(self, split: str, why: str, state: str = "wrong") -> None:
        self.states[split] = state
        self.findings.append(f"{split}: {why}")


def check(
    root: str | Path,
    name: str,
    known: dict[str, str],
    recorded: dict[str, str],
    test_images: int | None = None,
) -> Verdict:
    """Compare the data set `name` below `root` with what it must be; nothing is decoded.

    known, recorded: checksums per split, as published and as seen at first use.
    test_images: how many the test split has, where it is shortened.
    """
    verdict, task, folder = Verdict(name), TASKS[name], Path(root) / name
    if not folder.is_dir():
        verdict.states = dict.fromkeys(SPLITS, "missing")
        verdict.findings.append("no such folder")
        return verdict
    splits = {}
    for split in SPLITS:
        if not (folder / f"{split}.txt").exists():
            verdict.wrong(split, f"{split}.txt does not exist", "missing")
            continue
        try:
            splits[split] = read_split_file(folder, split, task.classes)
        except InputError as error:
            verdict.wrong(split, str(error).replace(f"{folder}{os.sep}", ""))
            continue
        lines = "".join(f"{path} {label}\n" for path, label in splits[split])
        verdict.checksums[split] = found = hashlib.sha256(lines.encode()).hexdigest()
        if found != known.get(split, found):
            verdict.wrong(split, "names and labels are not those of the published copy")
        if found != recorded.get(split, found):
            verdict.wrong(split, f"names and labels have changed since they were recorded in {RECORD}")
        _check_counts(verdict, task, split, splits[split], test_images)
    _check_files(verdict, folder, splits)
    return verdict


def _check_counts(verdict: Verdict, task: Task, split: str, entries: list, test_images: int | None) -> None:
    expected = TRAINING.get(split) or test_images or task.test_images
    if len(entries) != expected:
        verdict.wrong(split, f"{len(entries)} images, not {expected}")
    # Smaller splits need not have an image of every class.
    absent = task.classes - len({label for _, label in entries})
    if not absent or split not in ("train800val200", "test") or split == "test" and test_images:
        return
    if split == "train800val200" and absent <= ABSENT.get(task.name, 0):
        verdict.notes.append(f"{split}: no image of {absent} of {task.classes} classes, as in every copy")
    else:
        verdict.wrong(split, f"no image of {absent} of {task.classes} classes")


def _check_files(verdict: Verdict, folder: Path, splits: dict[str, list]) -> None:
    """Images that do not exist, or that two splits share."""
    paths = {split: {os.path.normpath(path) for path, _ in entries} for split, entries in splits.items()}
    sizes = {}
    for split in paths:
        missing = []
        for path in paths[split] - sizes.keys():
            try:
                sizes[path] = os.stat(folder / path).st_size
            except (OSError, ValueError):
                missing.append(path)
        if missing:
            verdict.wrong(split, f"{len(missing)} images do not exist, one is {min(missing)}")

    train, validation, test = (paths.get(split, set()) for split in ("train800", "val200", "test"))
    training = train | validation | paths.get("train800val200", set())
    for split, others, title in (("test", training, "training"), ("val200", train, "train800")):
        if shared := paths.get(split, set()) & others:
            verdict.wrong(split, f"{len(shared)} images are {title} images as well, one is {min(shared)}")
    if "train800val200" in paths and train | validation and training != train | validation:
        verdict.notes.append("train800val200: not the images of train800 and val200 (no run reads it)")

    # Equal files have equal sizes, so few have to be read.
    twins = {sizes.get(path) for path in training} - {None}
    contents = {_sha256(folder / path) for path in training if path in sizes}
    copies = [p for p in test - training if sizes.get(p) in twins and _sha256(folder / p) in contents]
    if copies:
        verdict.notes.append(
            f"test: {len(copies)} images equal a training image byte for byte, one is {min(copies)}"
        )


def _sha256(file: Path) -> str | None:
    digest = hashlib.sha256()
    try:
        with open(file, "rb") as content:
            while block := content.read(BLOCK):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()


# Putting it in place


@contextmanager
def placing(root: Path) -> Iterator[None]:
    """One process at a time changes `root`; what it cannot write there is an InputError."""
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".lock"):
            yield
    except OSError as error:
        raise InputError(f"cannot write to {root}: {error.strerror or error}") from None


def place(root: Path, source: Path, names: Collection[str]) -> list[str]:
    """Put those of the data sets `names` in place that `source` has, and return them.

    A folder's data sets are linked, an archive's are extracted; those that are there already are replaced.
    InputError: no such source, a damaged archive, or one with a member that leaves its folder.
    """
    if not source.exists():
        raise InputError(f"{source} does not exist")
    if source.is_dir():
        found = find(source, names)
        for name, folder in found.items():
            if folder.resolve() != (root / name).resolve():
                _put(root, name, lambda target: target.symlink_to(folder.resolve(), target_is_directory=True))
        placed = list(found)
        for archive in sorted(path for path in source.iterdir() if path.name.endswith(ARCHIVES)):
            if rest := set(names) - set(placed):
                placed += place(root, archive, rest)
        return placed
    if not source.name.endswith(ARCHIVES):
        raise InputError(f"{source} is neither a folder nor an archive ({', '.join(ARCHIVES)})")
    extracted = root / ".extracted"
    shutil.rmtree(extracted, ignore_errors=True)  # of a call that was killed
    try:
        extract(source, extracted, names)
        found = find(extracted, names)
        for name, folder in found.items():
            _put(root, name, folder.rename)
    finally:
        shutil.rmtree(extracted, ignore_errors=True)
    return list(found)


def find(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """The folders of the data sets `names`, at most two levels below `folder`."""
    found = {}
    for name in names:
        for pattern in (name, f"*/{name}", f"*/*/{name}"):
            candidates = [path for path in sorted(folder.glob(pattern)) if any(path.glob("*.txt"))]
            if candidates:
                found[name] = candidates[0]
                break
    return found


def _put(root: Path, name: str, make) -> None:
    """`make(root / name)`, with what was there before gone in the end."""
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
    """Extract what belongs to the data sets `names`; an archive named after one of them is all of it."""
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


def download(root: Path, repo: str, revision: str, names: Collection[str]) -> tuple[list[str], str]:
    """Put those of the data sets `names` in place that the hub's data set repository `repo` has.

    Returns them and the commit. What was downloaded before an interruption is not downloaded again.
    InputError where the hub does not give it.
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
            snapshot_download(
                repo, repo_type="dataset", revision=info.sha, local_dir=folder, allow_patterns=patterns
            )
        else:
            for file in archives:
                _fetch(f"datasets/{repo}@{info.sha}/{file}", folder / file.name)
    except InputError:
        raise
    except Exception as error:  # the hub's client and its transport have exceptions of their own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InputError(
            f"cannot download {repo}: {reason}; the same command goes on where it stopped, and --source takes "
            "a copy that you have"
        ) from None
    found = find(folder, names)
    for name, path in found.items():
        _put(root, name, path.rename)
    placed = [*found, *(place(root, folder, set(names) - found.keys()) if folder.exists() else [])]
    shutil.rmtree(root / ".download", ignore_errors=True)
    return placed, info.sha


def _fetch(path: str, target: Path) -> None:
    """Download one file block by block, from where an earlier call stopped: the hub's own client would begin
    an archive anew."""
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
    if info["lfs"] and _sha256(unfinished) != info["lfs"]["sha256"]:
        unfinished.unlink()
        raise InputError(f"{path} arrived damaged; it will be downloaded anew")
    os.replace(unfinished, target)
