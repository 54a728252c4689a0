"""Install VTAB-1k, and check it.

    python experiments/prepare_vtab.py                          from the Hugging Face hub
    python experiments/prepare_vtab.py --source vtab-1k.zip     from an archive, or a folder, which is linked

Keeps installed data sets, and leaves out those of the source that differ from VTAB-1k unless --accept takes them as
they are. Prints which data sets are right, accepted, wrong, left out or missing, and what differs; training refuses
wrong ones. The exit code is 1 where one is wrong, left out or missing, 2 for bad input. With --accept a source may hold
some of the 19.
"""

import json
import re
import shutil
import sys
import tarfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

import huggingface_hub
from options import ROOT, Parser

from pvera.data import vtab
from pvera.data.split_files import SPLITS
from pvera.errors import InputError, as_input_error, catch_os_errors, run_script
from pvera.files import write_atomically

#: The copy that the V-PETL benchmark (Xin et al., NeurIPS 2024) prepared and points to: one archive with all
#: 19 data sets in the folder format of `pvera.data`.
REPO = "XiN0919/VTAB-1k"
#: How a finding of `vtab.check` ends where nothing but a number of images or classes is wrong.
COUNT_DIFFERS = re.compile(r"(images|classes), not [0-9]+$")
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument(
        "--root", type=Path, default=ROOT / "data/vtab-1k", help="where VTAB-1k lies (%(default)s)"
    )
    parser.add_argument(
        "--datasets", nargs="+", metavar="D", choices=vtab.NAMES, help="only these data sets"
    )
    parser.add_argument(
        "--source", type=Path, help="folder or archive with the data, instead of the hub"
    )
    parser.add_argument(
        "--accept",
        action="store_true",
        help="use data sets although they differ from VTAB-1k; results then say so",
    )
    options = parser.parse_args()
    if not prepare(
        options.root.absolute(), options.datasets or vtab.NAMES, options.source, options.accept
    ):
        sys.exit(1)


def prepare(
    root: Path, names: Sequence[str] = vtab.NAMES, source: Path | None = None, accept: bool = False
) -> bool:
    """Install data sets and print what they are. Return whether all can be used together.

    source: a folder or an archive instead of the hub.   accept: use those that differ from VTAB-1k; where none are
    named, some may be missing.
    """
    accepted, left_out = vtab.read_record(root), place(root, names, source, accept)
    named = {
        state: list[str]()
        for state in ("right", "accepted as it is", "wrong", "left out", "missing")
    }
    for name in names:
        known, findings = accepted.pop(name, []), left_out.get(name, [])
        if name in left_out:
            state = "left out"
        elif not (root / name).exists():
            state = "missing"
        elif not (findings := vtab.check(root, name)):
            state = "right"
        elif (accept or set(findings) <= set(known)) and all(map(COUNT_DIFFERS.search, findings)):
            state, accepted[name] = "accepted as it is", findings
        else:
            state = "wrong"
        named[state].append(name)
        if state != "missing":
            print(f"{name:<22}{state}", *findings, sep="\n    ")
    usable, wrong = (
        len(named["right"] + named["accepted as it is"]),
        named["wrong"] + named["left out"],
    )
    if usable:
        try:
            write_atomically(root / vtab.RECORD, json.dumps(accepted, indent=1) + "\n")
        except InputError as error:  # for example, a shared read-only folder
            print(f"not recorded: {error}")
    if named["missing"]:
        print(f"missing: {', '.join(named['missing'])}")
    print(f"{usable} of {len(names)} data sets can be used in {root}")
    if wrong:
        print(
            "--accept uses data sets whose counts differ; remove a wrong folder to install its data set anew"
        )
    copy = vtab.copy_name(root)
    if named["right"]:
        print(f"copy: {copy or 'unknown: the copies agree in these data sets'}")
    if accepted:
        print(
            f"Results on accepted data sets say {vtab.DIFFERS!r}, and share no table with those on VTAB-1k."
        )
    if copy == "mixed":
        print(
            "Some data sets are of the lossy copy, others of the lossless one: they must not share a table."
        )
    some = accept and names is vtab.NAMES
    return not (wrong or copy == "mixed" or named["missing"] and not some)


def place(
    root: Path, names: Sequence[str], source: Path | None, accept: bool
) -> dict[str, list[str]]:
    """Put missing data sets from the source or the hub in place, unless they are wrong; return these, with findings."""
    wanted, left_out = [name for name in names if not (root / name).exists()], {}
    if not wanted:
        return left_out
    downloads, extracted = root / ".download", root / ".extracted"
    with catch_os_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(extracted, ignore_errors=True)  # of a call that was killed
        try:
            if source is None:
                advice = "run the same command again, or give a copy to prepare_vtab.py --source"
                with as_input_error(f"cannot download {REPO}", advice):
                    patterns = [f"*{suffix}" for suffix in ARCHIVES]
                    huggingface_hub.snapshot_download(
                        REPO, repo_type="dataset", allow_patterns=patterns, local_dir=downloads
                    )
            try:
                folders = find(source or downloads, wanted, extracted)
            except InputError:
                shutil.rmtree(downloads, ignore_errors=True)  # an archive that arrived damaged
                raise
            if not folders and len(wanted) == len(names):
                raise InputError(f"{source or REPO} holds none of {', '.join(wanted)}")
            for name, folder in folders.items():
                findings = vtab.check(folder.parent, name)
                if findings and not accept:
                    left_out[name] = findings
                    continue
                (root / name).unlink(missing_ok=True)  # a link to a folder that was moved
                if extracted in folder.parents:
                    folder.rename(root / name)
                else:
                    (root / name).symlink_to(folder.resolve(), target_is_directory=True)
        finally:
            shutil.rmtree(extracted, ignore_errors=True)
        shutil.rmtree(downloads, ignore_errors=True)
    return left_out


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
        what = (
            f"is neither a folder nor an archive ({', '.join(ARCHIVES)})"
            if source.exists()
            else "does not exist"
        )
        raise InputError(f"{source} {what}")
    rest = set(names) - folders.keys()
    for archive in archives if rest else ():
        # An archive that is named after a data set may hold its files without a folder.
        extract(archive, extracted / archive.name / archive.name.split(".")[0])
    return folders | _below(extracted, rest, "*/")


def _below(folder: Path, names: Iterable[str], inside: str = "") -> dict[str, Path]:
    """Find data sets at most two levels below `folder`.

    inside: a pattern of folders in it, below which they are instead.
    """
    folder_of = {}
    for name in names:
        candidates = [
            path
            for pattern in (name, f"*/{name}", f"*/*/{name}")
            for path in sorted(folder.glob(inside + pattern))
            if any((path / f"{split}.txt").exists() for split in SPLITS)
        ]
        if len(candidates) > 1:
            copies = " and as ".join(str(path.relative_to(folder)) for path in candidates[:2])
            raise InputError(
                f"{folder} holds {name} twice, as {copies}: give the folder of one copy"
            )
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
    if options and not hasattr(tarfile, "data_filter"):
        raise InputError(
            f"cannot extract {archive}: this needs Python from 3.10.12 or 3.11.4; give a folder instead"
        )
    try:
        shutil.unpack_archive(archive, target, **options)
    except (
        Exception
    ) as error:  # damaged archives fail in many ways, also as an OSError without a number
        if isinstance(error, OSError) and error.errno:
            raise
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(f"cannot extract {archive}: {reason}") from None


if __name__ == "__main__":
    run_script(main)
