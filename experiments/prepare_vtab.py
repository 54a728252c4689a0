"""Put VTAB-1k in place, check it, and decode it once.

    python experiments/prepare_vtab.py                          from the Hugging Face hub
    python experiments/prepare_vtab.py --source vtab-1k.zip     from an archive, or a folder, which is linked
    python experiments/prepare_vtab.py --check --no-decode      look at what is there

Data sets that are there already are kept. Prints what is right, what is wrong and what is missing. The exit
code is 0 when all is right, 1 when something is wrong or missing, 2 for bad input and damaged images.
"""

import sys
from argparse import Namespace
from pathlib import Path

from options import ROOT, Parser, set_cache

from pvera import data, errors, store, vtab
from pvera.errors import InputError
from pvera.validation import choose


def parse() -> Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--root", type=Path, default=ROOT / "data/vtab-1k", help="its place (%(default)s)")
    parser.several("--datasets", metavar="D", default=list(vtab.NAMES), help="only these")
    parser.add_argument("--source", type=Path, help="folder or archive to take it from, instead of the hub")
    parser.add_argument("--repo", default=vtab.REPO, help="data set repository on the hub (%(default)s)")
    parser.add_argument("--revision", default="main", help="its branch, tag or commit (%(default)s)")
    parser.add_argument("--replace", action="store_true", help="replace data sets that are there already")
    parser.add_argument("--check", action="store_true", help="put nothing in place")
    parser.add_argument("--no-decode", action="store_true", help="leave decoding to the first training")
    parser.number("--size", default=224, help="pixels to decode to (%(default)s)")
    parser.number("--test-images", metavar="N",
                  help="for trials: test splits are shortened to N images, which results then say")
    parser.add_argument("--cache", help=f"folder of decoded images (${store.VARIABLE}, or .cache/pvera)")
    parser.add_argument("--clear-cache", action="store_true", help="remove all decoded images, and no more")
    options = parser.parse_args()
    for name in options.datasets:
        choose("data set", name, vtab.NAMES)
    set_cache(options.cache)
    options.root = options.root.absolute()
    return options


def main() -> None:
    options = parse()
    if options.clear_cache:
        print(f"removed {store.clear() / 1e9:.2f} GB of decoded images from {store.folder()}")
        return
    if not options.check:
        with vtab.placing(options.root):
            place(options)
    verdicts = check(options)
    copy = vtab.copy_name(options.root)
    show(verdicts, copy, options.root)
    right = [verdict.name for verdict in verdicts if verdict.right]
    if not options.no_decode:
        for number, name in enumerate(right, start=1):
            data.prepare(options.root, name, options.size)
            print(f"decoded {name} ({number} of {len(right)})", flush=True)
    if len(right) < len(verdicts) or str(copy).startswith("mixed"):
        sys.exit(1)


def place(options: Namespace) -> None:
    """Take from the source, or from the hub, what is not there, and record where it came from."""
    root = options.root
    wanted = [name for name in options.datasets if options.replace or not (root / name).exists()]
    if not wanted:
        return
    if options.source:
        placed, origin = vtab.place(root, options.source, wanted), {"source": str(options.source.absolute())}
    else:
        placed, commit = vtab.download(root, options.repo, options.revision, wanted)
        origin = {"repo": options.repo, "revision": options.revision, "commit": commit}
    if not placed:
        raise InputError(f"{options.source or options.repo} holds none of {', '.join(wanted)}")
    record = vtab.read_record(root)
    record["datasets"] |= {name: {"origin": origin, "checksums": {}} for name in placed}
    vtab.write_record(root, record)


def check(options: Namespace) -> list[vtab.Verdict]:
    """A verdict per data set; checksums of what is right are recorded at first use."""
    record = vtab.read_record(options.root)
    before = repr(record)
    record["test_images"] = options.test_images or record["test_images"]
    known, verdicts = vtab.known_checksums(vtab.copy_name(options.root)), []
    for name in options.datasets:
        entry = record["datasets"].get(name, {"origin": None, "checksums": {}})
        recorded, published = entry["checksums"], known.get(name, {})
        verdict = vtab.check(options.root, name, published, recorded, record["test_images"])
        verdicts.append(verdict)
        if verdict.right:
            record["datasets"][name] = entry | {"checksums": verdict.checksums}
    if repr(record) != before:
        try:
            vtab.write_record(options.root, record)
        except InputError as error:  # such as data that others hold ready for all
            print(f"checksums were not recorded: {error}")
    return verdicts


def show(verdicts: list[vtab.Verdict], copy: str | None, root: Path) -> None:
    print(f"{'data set':<22}{'classes':>7}  " + "".join(f"{split:<16}" for split in data.SPLITS))
    for verdict in verdicts:
        states = "".join(f"{state:<16}" for state in verdict.states.values())
        print(f"{verdict.name:<22}{data.task(verdict.name).classes:>7}  {states}".rstrip())
        for line in verdict.findings + verdict.notes:
            print(f"    {line}")
    right = sum(verdict.right for verdict in verdicts)
    print(f"{right} of {len(verdicts)} data sets are right in {root}")
    print(f"copy: {copy or 'cannot be told from these data sets'}")
    if str(copy).startswith("mixed"):
        print(
            "Some data sets are of the lossy copy, others of the lossless one: they must not share a table."
        )


if __name__ == "__main__":
    errors.run(main)
