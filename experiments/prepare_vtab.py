"""Install VTAB-1k, and check it.

    python experiments/prepare_vtab.py                          from the Hugging Face hub
    python experiments/prepare_vtab.py --source vtab-1k.zip     from an archive, or a folder, which is linked

Keeps installed data sets, and leaves out those of the source that differ from VTAB-1k unless --accept takes them as
they are. Prints which data sets are right, accepted, wrong, left out or missing, and what differs; training refuses
wrong ones. The exit code is 1 where one is wrong, left out or missing, 2 for bad input. With --accept a source may hold
some of the 19.
"""

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from options import ROOT, Parser

from pvera.data import vtab, vtab_sources
from pvera.errors import InputError, run_script, writing
from pvera.files import write_atomically


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--root", type=Path, default=ROOT / "data/vtab-1k", help="where VTAB-1k lies (%(default)s)")
    parser.add_argument("--datasets", nargs="+", metavar="D", choices=vtab.NAMES, help="only these data sets")
    parser.add_argument("--source", type=Path, help="folder or archive with the data, instead of the hub")
    parser.add_argument(
        "--accept", action="store_true", help="use data sets although they differ from VTAB-1k; results then say so"
    )
    options = parser.parse_args()
    some = options.accept and not options.datasets
    if not prepare(options.root.absolute(), options.datasets or vtab.NAMES, options.source, options.accept, some):
        sys.exit(1)


def prepare(
    root: Path, names: Sequence[str] = vtab.NAMES, source: Path | None = None, accept: bool = False, some: bool = False
) -> bool:
    """Install data sets and print what they are. Return whether all can be used together.

    source: a folder or an archive instead of the hub.   accept: use those that differ from VTAB-1k.
    some: data sets may be missing.
    """
    accepted, left_out = vtab.read_record(root), place(root, names, source, accept)
    named = {state: list[str]() for state in ("right", "accepted as it is", "wrong", "left out", "missing")}
    for name in names:
        known, findings = accepted.pop(name, []), left_out.get(name, [])
        if name in left_out:
            state = "left out"
        elif not (root / name).exists():
            state = "missing"
        elif not (findings := vtab.check(root, name)):
            state = "right"
        elif accept or set(findings) <= set(known):
            state, accepted[name] = "accepted as it is", findings
        else:
            state = "wrong"
        named[state].append(name)
        if state != "missing":
            print(f"{name:<22}{state}", *findings, sep="\n    ")
    usable, wrong = len(named["right"] + named["accepted as it is"]), named["wrong"] + named["left out"]
    if usable:
        try:
            write_atomically(root / vtab.RECORD, json.dumps(accepted, indent=1) + "\n")
        except InputError as error:  # for example, a shared read-only folder
            print(f"not recorded: {error}")
    if named["missing"]:
        print(f"missing: {', '.join(named['missing'])}")
    print(f"{usable} of {len(names)} data sets can be used in {root}")
    if wrong:
        print("--accept uses data sets as they are; remove a wrong folder to install its data set anew")
    copy = vtab.copy_name(root)
    if named["right"]:
        print(f"copy: {copy or 'unknown: the copies agree in these data sets'}")
    if accepted:
        print(f"Results on accepted data sets say {vtab.DIFFERS!r}, and share no table with those on VTAB-1k.")
    if copy == "mixed":
        print("Some data sets are of the lossy copy, others of the lossless one: they must not share a table.")
    return not (wrong or copy == "mixed" or named["missing"] and not some)


def place(root: Path, names: Sequence[str], source: Path | None, accept: bool) -> dict[str, list[str]]:
    """Put missing data sets from the source or the hub in place, unless they are wrong; return these, with findings."""
    wanted, left_out = [name for name in names if not (root / name).exists()], {}
    if not wanted:
        return left_out
    downloads, extracted = root / ".download", root / ".extracted"
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(extracted, ignore_errors=True)  # of a call that was killed
        try:
            if source is None:
                vtab_sources.download(downloads)
            try:
                folders = vtab_sources.find(source or downloads, wanted, extracted)
            except InputError:
                shutil.rmtree(downloads, ignore_errors=True)  # an archive that arrived damaged
                raise
            if not folders and len(wanted) == len(names):
                raise InputError(f"{source or vtab_sources.REPO} holds none of {', '.join(wanted)}")
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


if __name__ == "__main__":
    run_script(main)
