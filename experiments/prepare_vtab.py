"""Install VTAB-1k, and check it.

    python experiments/prepare_vtab.py                         # from the Hugging Face hub
    python experiments/prepare_vtab.py --source vtab-1k.zip    # from an archive
    python experiments/prepare_vtab.py --source vtab-1k        # from a folder, which is linked

Installed data sets stay. Those of the source that differ from VTAB-1k are left out; --accept uses
those of them whose counts alone differ. Prints which data sets are right, accepted, wrong, left out
or missing, and what differs; training refuses wrong ones. With --accept a source may hold some of
the 19. The last lines of a complete installation are "19 of 19 data sets can be used" and the name
of the copy, "lossy" or "lossless".

The exit code is 1 where a data set is wrong, left out or missing, 2 for bad input.
"""

import json
import shutil
import sys
import tarfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import huggingface_hub
from options import ROOT, Parser

from pvera.data import vtab
from pvera.data.split_files import SPLIT_FILES
from pvera.data.vtab import Finding
from pvera.errors import InputError, as_input_error, catch_os_errors, run_script
from pvera.files import write_atomically

#: The copy that the V-PETL benchmark (Xin et al., NeurIPS 2024) prepared and points to: one archive
#: with all 19 data sets in the folder format of `pvera.data.split_files`.
REPO = "XiN0919/VTAB-1k"
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

#: States of a data set.
RIGHT = "right"
ACCEPTED = "accepted as it is"
WRONG = "wrong"
LEFT_OUT = "left out"
MISSING = "missing"


@dataclass(frozen=True)
class Check:
    """What a data set is after the installation."""

    name: str
    #: One of the states above.
    state: str
    #: How it differs from VTAB-1k.
    findings: list[str]


def main() -> None:
    """Install and check the data sets of the command line."""
    parser = Parser(__doc__)
    text = "where VTAB-1k lies (%(default)s)"
    parser.add_argument("--root", type=Path, default=ROOT / "data/vtab-1k", help=text)
    text = "only these data sets"
    parser.add_argument("--datasets", nargs="+", metavar="D", choices=vtab.NAMES, help=text)
    text = "folder or archive with the data, instead of the hub"
    parser.add_argument("--source", type=Path, help=text)
    text = "use data sets although their counts differ from VTAB-1k; results then say so"
    parser.add_argument("--accept", action="store_true", help=text)
    options = parser.parse_args()

    if not prepare(options.root.absolute(), options.datasets, options.source, options.accept):
        sys.exit(1)


def prepare(
    root: Path,
    only: Sequence[str] | None = None,
    source: Path | None = None,
    accept: bool = False,
) -> bool:
    """Install data sets, check them and print what they are.

    Args:
        root: Folder of the data sets.
        only: Names of the data sets; None: all 19.
        source: A folder or an archive instead of the hub.
        accept: Whether to use those that differ from VTAB-1k; of all 19, some may then be missing.

    Returns:
        Whether all can be used together.
    """
    names = only or vtab.NAMES
    # Of data sets that are not checked, what an earlier call accepted stays accepted.
    accepted = vtab.read_record(root)
    left_out = install(root, names, source, accept)
    checks = []
    for name in names:
        known = accepted.pop(name, [])
        checked = check(root, name, left_out.get(name, []), known, accept)
        checks.append(checked)
        if checked.state == ACCEPTED:
            accepted[name] = checked.findings
        if checked.state != MISSING:
            print(f"{name:<22}{checked.state}", *checked.findings, sep="\n    ")
    if any(checked.state in (RIGHT, ACCEPTED) for checked in checks):
        record(root, accepted)
    return report(root, checks, accepted, may_miss_some=accept and not only)


def install(
    root: Path, names: Sequence[str], source: Path | None, accept: bool
) -> dict[str, list[Finding]]:
    """Install the data sets that `root` lacks from the source or the hub.

    Returns:
        The findings of those that are left out because they differ from VTAB-1k.
    """
    wanted = [name for name in names if not (root / name).exists()]
    if not wanted:
        return {}
    downloads = root / ".download"
    extracted = root / ".extracted"
    with catch_os_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        # What a call left that was killed.
        shutil.rmtree(extracted, ignore_errors=True)
        try:
            if source is None:
                advice = "run the same command again, or give a copy to prepare_vtab.py --source"
                patterns = [f"*{suffix}" for suffix in ARCHIVES]
                with as_input_error(f"cannot download {REPO}", advice):
                    huggingface_hub.snapshot_download(
                        REPO, repo_type="dataset", allow_patterns=patterns, local_dir=downloads
                    )
            try:
                folders = find_data_sets(source or downloads, wanted, extracted)
            except InputError:
                # An archive that arrived damaged is downloaded again by the next call.
                shutil.rmtree(downloads, ignore_errors=True)
                raise
            if not folders and len(wanted) == len(names):
                raise InputError(f"{source or REPO} holds none of {', '.join(wanted)}")
            left_out = install_folders(root, folders, extracted, accept)
        finally:
            shutil.rmtree(extracted, ignore_errors=True)
        shutil.rmtree(downloads, ignore_errors=True)
    return left_out


def install_folders(
    root: Path, folders: dict[str, Path], extracted: Path, accept: bool
) -> dict[str, list[Finding]]:
    """Move extracted folders to `root` and link others; return the findings of those left out."""
    left_out = {}
    for name, folder in folders.items():
        findings = vtab.check(folder.parent, name)
        if findings and not accept:
            left_out[name] = findings
            continue
        # A link may be there whose folder was moved.
        (root / name).unlink(missing_ok=True)
        if extracted in folder.parents:
            folder.rename(root / name)
        else:
            (root / name).symlink_to(folder.resolve(), target_is_directory=True)
    return left_out


def check(
    root: Path, name: str, left_out: list[Finding], accepted: Collection[str], accept: bool
) -> Check:
    """Check an installed data set.

    Args:
        root: Folder of the data sets.
        name: The data set.
        left_out: Findings for which it was not installed.
        accepted: Texts of the findings that were accepted by an earlier call.
        accept: Whether to accept all counts.
    """
    if not (left_out or (root / name).exists()):
        return Check(name, MISSING, [])
    findings = left_out or vtab.check(root, name)
    texts = [finding.text for finding in findings]
    counts_alone = all(finding.kind == "count" for finding in findings)
    if left_out:
        state = LEFT_OUT
    elif not findings:
        state = RIGHT
    elif counts_alone and (accept or set(texts) <= set(accepted)):
        state = ACCEPTED
    else:
        state = WRONG
    return Check(name, state, texts)


def record(root: Path, accepted: dict[str, list[str]]) -> None:
    """Write which findings are accepted, where the folder can be written; it may be shared."""
    try:
        write_atomically(root / vtab.RECORD, json.dumps(accepted, indent=1) + "\n")
    except InputError as error:
        print(f"not recorded: {error}")


def report(
    root: Path, checks: list[Check], accepted: dict[str, list[str]], may_miss_some: bool
) -> bool:
    """Print what the checks mean together, and return whether all data sets can be used."""
    states = [checked.state for checked in checks]
    missing = [checked.name for checked in checks if checked.state == MISSING]
    any_wrong = WRONG in states or LEFT_OUT in states
    if missing:
        print(f"missing: {', '.join(missing)}")
    usable = states.count(RIGHT) + states.count(ACCEPTED)
    print(f"{usable} of {len(checks)} data sets can be used in {root}")
    if any_wrong:
        print(
            "--accept uses data sets whose counts differ; "
            "remove a wrong folder to install its data set again"
        )

    copy = vtab.copy_name(root)
    if RIGHT in states:
        print(f"copy: {copy or 'unknown: the copies agree in these data sets'}")
    if accepted:
        print(
            f"Results on accepted data sets say {vtab.DIFFERS!r}, "
            "and share no table with those on VTAB-1k."
        )
    if copy == "mixed":
        print(
            "Some data sets are of the lossy copy, others of the lossless one: "
            "they must not share a table."
        )
    if any_wrong or copy == "mixed":
        return False
    return may_miss_some or not missing


def find_data_sets(source: Path, names: Collection[str], extracted: Path) -> dict[str, Path]:
    """Find the folders of data sets in a folder, in an archive, or in the archives of a folder.

    Args:
        source: The folder or archive.
        names: The data sets.
        extracted: Where archives are extracted.

    Raises:
        InputError: The source does not exist, a data set is there twice, or an archive is damaged
            or unsafe.
    """
    if source.is_dir():
        folders = _find_below(source, names)
        archives = sorted(path for path in source.iterdir() if path.name.endswith(ARCHIVES))
    elif source.is_file() and source.name.endswith(ARCHIVES):
        folders = {}
        archives = [source]
    elif source.exists():
        raise InputError(f"{source} is neither a folder nor an archive ({', '.join(ARCHIVES)})")
    else:
        raise InputError(f"{source} does not exist")

    # Folders win: only what they lack is extracted.
    rest = set(names) - folders.keys()
    if not rest:
        return folders
    for archive in archives:
        # An archive that is named after a data set may hold its files without a folder.
        stem = archive.name.split(".")[0]
        extract(archive, extracted / archive.name / stem)
    return folders | _find_below(extracted, rest, prefix="*/")


def _find_below(folder: Path, names: Iterable[str], prefix: str = "") -> dict[str, Path]:
    """Find data sets at most two levels below the folders that match `prefix` in `folder`."""
    folder_of = {}
    for name in names:
        found = []
        for pattern in (name, f"*/{name}", f"*/*/{name}"):
            found += [path for path in sorted(folder.glob(prefix + pattern)) if _has_split(path)]
        if len(found) > 1:
            copies = " and as ".join(str(path.relative_to(folder)) for path in found[:2])
            raise InputError(
                f"{folder} holds {name} twice, as {copies}: give the folder of one copy"
            )
        if found:
            folder_of[name] = found[0]
    return folder_of


def _has_split(folder: Path) -> bool:
    return any((folder / f"{split}.txt").exists() for split in SPLIT_FILES)


def extract(archive: Path, target: Path) -> None:
    """Extract an archive below `target`, which nothing in it can leave.

    Raises:
        InputError: The archive is damaged or unsafe.
        OSError: The system refuses, as on a full disk.
    """
    print(f"extracting {archive.name}", flush=True)
    is_zip = archive.name.endswith(".zip")
    if not is_zip and not hasattr(tarfile, "data_filter"):
        raise InputError(
            f"cannot extract {archive}: this needs Python from 3.10.12 or 3.11.4; "
            "give a folder instead"
        )
    try:
        if is_zip:
            # Members that would leave the target are skipped.
            shutil.unpack_archive(archive, target)
        else:
            # The filter refuses such members, links that lead out, and devices.
            shutil.unpack_archive(archive, target, filter="data")
    except Exception as error:
        # Damaged archives fail in many ways, also as an OSError without a number.
        if isinstance(error, OSError) and error.errno:
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot extract {archive}: {reason}") from None


if __name__ == "__main__":
    run_script(main)
