"""Install VTAB-1k, and check it.

    python experiments/prepare_vtab.py                         # from the Hugging Face hub
    python experiments/prepare_vtab.py --source vtab-1k.zip    # from an archive
    python experiments/prepare_vtab.py --source vtab-1k        # from a folder, which is linked

Installed data sets stay. Those of the source that differ from VTAB-1k are not installed; --accept
uses those of them whose counts alone differ. Prints which data sets are right, accepted, wrong or
missing, and what differs; training refuses wrong ones. With --accept a source may hold some of the
19. The last lines of a complete installation are "19 of 19 data sets can be used" and the name of
the copy, "lossy" or "lossless".

The exit code is 1 where a data set is wrong or missing, 2 for bad input.
"""

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import huggingface_hub
from options import ROOT, Parser

from pvera.data import vtab
from pvera.data.split_files import SPLIT_FILES
from pvera.errors import InputError, as_input_error, catch_os_errors, run_script
from pvera.files import write_atomically

#: The copy that the V-PETL benchmark (Xin et al., NeurIPS 2024) prepared and points to: one archive
#: with all 19 data sets in the folder format of `pvera.data.split_files`.
REPO = "XiN0919/VTAB-1k"
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")

#: States of the folder of a data set.
RIGHT = "right"
ACCEPTED = "accepted as it is"
WRONG = "wrong"


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
    accept_counts: bool = False,
) -> bool:
    """Install data sets, check them and print what they are.

    Args:
        root: Folder of the data sets.
        only: Names of the data sets; None: all 19.
        source: A folder or an archive instead of the hub.
        accept_counts: Whether to use those whose counts differ; of all 19, some may be missing.

    Returns:
        Whether all can be used together.
    """
    names = only or vtab.NAMES
    # Of data sets that are not checked, what an earlier call accepted stays accepted.
    accepted = vtab.read_accepted(root)
    states = {}
    for name in names:
        if (root / name).exists():
            states[name] = check_and_accept(root / name, accepted, accept_counts)
    lacking = [name for name in names if name not in states]
    if lacking:
        states |= install(root, lacking, source, accepted, accept_counts)
    if set(states.values()) & {RIGHT, ACCEPTED}:
        write_accepted(root, accepted)

    missing = [name for name in names if name not in states]
    are_usable = report(root, states, missing, accepted)
    may_miss_some = accept_counts and not only
    return are_usable and (may_miss_some or not missing)


def install(
    root: Path,
    names: Sequence[str],
    source: Path | None,
    accepted: dict[str, list[str]],
    accept_counts: bool,
) -> dict[str, str]:
    """Install data sets from the source or the hub: extracted ones are moved, others linked.

    Args:
        root: Folder of the data sets, which lacks these.
        names: The data sets.
        source: As in `prepare`.
        accepted: As in `check_and_accept`.
        accept_counts: As in `check_and_accept`. Wrong data sets are not installed.

    Returns:
        The state of each data set that the source holds.
    """
    states = {}
    with catch_os_errors(root):
        root.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=root, prefix=".extracted-") as temporary:
            extracted = Path(temporary)
            folders = find_data_sets(source or download(), names, extracted)
            for name, folder in folders.items():
                states[name] = check_and_accept(folder, accepted, accept_counts)
                if states[name] == WRONG:
                    continue
                # A link may be there whose folder was moved.
                (root / name).unlink(missing_ok=True)
                if extracted in folder.parents:
                    folder.rename(root / name)
                else:
                    (root / name).symlink_to(folder.resolve(), target_is_directory=True)
    return states


def download() -> Path:
    """Download the archives into the hub's cache, and return their folder."""
    patterns = [f"*{suffix}" for suffix in ARCHIVES]
    advice = "run the same command again, or give a copy to prepare_vtab.py --source"
    with as_input_error(f"cannot download {REPO}", advice):
        folder = huggingface_hub.snapshot_download(
            REPO, repo_type="dataset", allow_patterns=patterns
        )
    return Path(folder)


def check_and_accept(folder: Path, accepted: dict[str, list[str]], accept_counts: bool) -> str:
    """Check the folder of a data set, print what is found, and return its state.

    Args:
        folder: The folder, whose name is the data set's.
        accepted: Texts of the accepted differences by data set; those of this one are updated.
        accept_counts: Whether to accept all counts.
    """
    name = folder.name
    # What an earlier call accepted stays accepted; a new difference does not.
    known = accepted.pop(name, [])
    differences = vtab.find_differences(folder.parent, name)
    texts = [difference.text for difference in differences]
    can_be_accepted = all(difference.acceptable for difference in differences)
    if not differences:
        state = RIGHT
    elif can_be_accepted and (accept_counts or set(texts) <= set(known)):
        state = ACCEPTED
        accepted[name] = texts
    else:
        state = WRONG
    print(f"{name:<22}{state}", *texts, sep="\n    ")
    return state


def write_accepted(root: Path, accepted: dict[str, list[str]]) -> None:
    """Write which differences are accepted, where the folder can be written; it may be shared.

    The file also tells run_profile.py that the data have been prepared.
    """
    try:
        write_atomically(root / vtab.ACCEPTED_FILE, json.dumps(accepted, indent=1) + "\n")
    except InputError as error:
        print(f"not recorded: {error}")


def report(
    root: Path, states: dict[str, str], missing: list[str], accepted: dict[str, list[str]]
) -> bool:
    """Print what the states mean together, and return whether what is there can be used."""
    found = list(states.values())
    wrong = found.count(WRONG)
    usable = len(found) - wrong
    if missing:
        print(f"missing: {', '.join(missing)}")
    print(f"{usable} of {len(found) + len(missing)} data sets can be used in {root}")
    if wrong:
        print(
            "--accept uses data sets whose counts differ; "
            "remove a wrong folder to install its data set again"
        )

    copy = vtab.copy_name(root)
    if RIGHT in found:
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
    return usable > 0 and not wrong and copy != "mixed"


def find_data_sets(source: Path, names: Sequence[str], extracted: Path) -> dict[str, Path]:
    """Find the folders of data sets in a folder, in an archive, or in the archives of a folder.

    Args:
        source: The folder or archive.
        names: The data sets.
        extracted: Where archives are extracted.

    Raises:
        InputError: The source does not exist, a data set is there twice, or an archive is damaged
            or unsafe.
    """
    if not source.exists():
        raise InputError(f"{source} does not exist")
    folders: dict[str, Path] = {}
    archives = [source]
    if source.is_dir():
        folders = _find_below(source, names)
        archives = sorted(path for path in source.iterdir() if path.name.endswith(ARCHIVES))

    # Folders win: only what they lack is extracted.
    rest = [name for name in names if name not in folders]
    if not rest:
        return folders
    for archive in archives:
        extract(archive, extracted / archive.name)
    return folders | _find_below(extracted, rest)


def _find_below(folder: Path, names: Iterable[str]) -> dict[str, Path]:
    """Find data sets in `folder` or up to three levels below it."""
    folder_of = {}
    for name in names:
        found: list[Path] = []
        for depth in range(4):
            found += filter(_has_split, sorted(folder.glob("*/" * depth + name)))
        if len(found) > 1:
            copies = " and as ".join(str(path.relative_to(folder)) for path in found[:2])
            raise InputError(
                f"{folder} holds {name} twice, as {copies}: give the folder of one copy"
            )
        if found:
            folder_of[name] = found[0]
    return folder_of


def _has_split(folder: Path) -> bool:
    return any((folder / f"{split_file}.txt").exists() for split_file in SPLIT_FILES)


def extract(archive: Path, target: Path) -> None:
    """Extract an archive below `target`, which nothing in it can leave.

    Raises:
        InputError: The archive is damaged or unsafe, the system refuses, as on a full disk, or
            Python before 3.10.12 and 3.11.4 knows no filter for tar files.
    """
    print(f"extracting {archive.name}", flush=True)
    with as_input_error(f"cannot extract {archive}"):
        if archive.name.endswith(".zip"):
            # Members that would leave the target are skipped.
            shutil.unpack_archive(archive, target)
        else:
            # The filter refuses such members, links that lead out, and devices.
            shutil.unpack_archive(archive, target, filter="data")


if __name__ == "__main__":
    run_script(main)
