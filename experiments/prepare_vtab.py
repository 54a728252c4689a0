"""Install VTAB-1k, and check it.

    python experiments/prepare_vtab.py                          from the Hugging Face hub
    python experiments/prepare_vtab.py --source vtab-1k.zip     from an archive, or a folder, which is linked

Keeps installed data sets, and skips a source's wrong ones. Prints which data sets are right, wrong or missing, and why;
training refuses wrong ones. The exit code is 0 when all data sets are right or accepted, 1 when one is wrong or
missing, 2 for bad input.
"""

import json
import shutil
import sys
from argparse import Namespace
from pathlib import Path

from options import ROOT, Parser

from pvera.data import vtab, vtab_sources
from pvera.errors import InputError, run_script, writing
from pvera.files import write_atomically


def main(words: list[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--root", type=Path, default=ROOT / "data/vtab-1k", help="where VTAB-1k lies (%(default)s)")
    names = list(vtab.NAMES)
    parser.add_argument("--datasets", nargs="+", metavar="D", choices=names, default=names, help="only these data sets")
    parser.add_argument("--source", type=Path, help="folder or archive with the data, instead of the hub")
    parser.add_argument(
        "--accept", action="store_true", help="use data sets although they differ from VTAB-1k; results then say so"
    )
    options = parser.parse_args(words)
    root, accepted = options.root.absolute(), vtab.read_record(options.root)
    place(options, root)

    usable = []
    for name in options.datasets:
        findings, there = vtab.check(root, name), (root / name).exists()
        known = accepted.pop(name, [])
        if findings and there and (options.accept or set(findings) <= set(known)):
            accepted[name] = findings
        if not findings or name in accepted:
            usable.append(name)
        state = "accepted as it is" if name in accepted else "wrong" if findings else "right"
        print(f"{name:<22}{state if there else 'missing'}", *findings, sep="\n    ")
    if usable:
        try:
            write_atomically(root / vtab.RECORD, (json.dumps(accepted, indent=1) + "\n").encode())
        except InputError as error:  # for example, a shared read-only folder
            print(f"not recorded: {error}")
    print(f"{len(usable)} of {len(options.datasets)} data sets can be used in {root}")
    if any((root / name).exists() for name in set(options.datasets) - set(usable)):
        print("remove a wrong folder to install its data set anew; --accept uses it as it is")
    copy = vtab.copy_name(root) or "unknown: the copies agree in these data sets"
    mixed = copy.startswith("mixed")
    print(f"copy: {copy}")
    if mixed:
        print("Some data sets are of the lossy copy, others of the lossless one: they must not share a table.")
    if mixed or len(usable) < len(options.datasets):
        sys.exit(1)


def place(options: Namespace, root: Path) -> None:
    """Put missing data sets from the source or the hub in place, unless they are wrong."""
    wanted = [name for name in options.datasets if not (root / name).exists()]
    if not wanted:
        return
    downloads, extracted = root / ".download", root / ".extracted"
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(extracted, ignore_errors=True)  # of a call that was killed
        try:
            if options.source is None:
                vtab_sources.download(downloads)
            try:
                found = vtab_sources.find(options.source or downloads, wanted, extracted)
            except InputError:
                shutil.rmtree(downloads, ignore_errors=True)  # an archive that arrived damaged
                raise
            if not found:
                raise InputError(f"{options.source or vtab_sources.REPO} holds none of {', '.join(wanted)}")
            for name, folder in found.items():
                findings = vtab.check(folder.parent, name)
                if findings and not options.accept:
                    print(f"{name} was not put in place: {'; '.join(findings)}")
                    continue
                (root / name).unlink(missing_ok=True)  # a link to a folder that was moved
                if extracted in folder.parents:
                    folder.rename(root / name)
                else:
                    (root / name).symlink_to(folder.resolve(), target_is_directory=True)
        finally:
            shutil.rmtree(extracted, ignore_errors=True)
        shutil.rmtree(downloads, ignore_errors=True)


if __name__ == "__main__":
    run_script(main)
