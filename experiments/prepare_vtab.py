"""Install VTAB-1k, check it, and decode it once.

    python experiments/prepare_vtab.py                          from the Hugging Face hub
    python experiments/prepare_vtab.py --source vtab-1k.zip     from an archive, or a folder, which is linked
    python experiments/prepare_vtab.py --check --no-decode      check the data in place

Keeps installed data sets, and skips a source's wrong ones. Prints which data sets are right, wrong or missing, and why;
training refuses wrong ones. The exit code is 0 when all data sets are right or accepted, 1 when one is wrong or
missing, 2 for bad input and damaged images.
"""

import shutil
import sys
from argparse import Namespace
from pathlib import Path

from options import ROOT, Parser, set_cache

from pvera.data import image_folders, splits, store, vtab, vtab_sources
from pvera.errors import InputError, writing
from pvera.study import script
from pvera.study.validation import choose


def parse(words: list[str] | None) -> Namespace:
    parser = Parser(__doc__)
    parser.add_argument("--root", type=Path, default=ROOT / "data/vtab-1k", help="where VTAB-1k lies (%(default)s)")
    parser.several("--datasets", metavar="D", default=list(vtab.NAMES), help="only these data sets")
    parser.add_argument("--source", type=Path, help="folder or archive with the data, instead of the hub")
    parser.add_argument("--repo", default=vtab_sources.REPO, help="data set repository on the hub (%(default)s)")
    parser.add_argument("--revision", default="main", help="its branch, tag or commit (%(default)s)")
    parser.add_argument("--replace", action="store_true", help="replace data sets in place")
    parser.add_argument(
        "--accept",
        action="store_true",
        help="use data sets although they differ from VTAB-1k; results then say so",
    )
    parser.add_argument("--check", action="store_true", help="put nothing in place")
    parser.add_argument("--no-decode", action="store_true", help="leave decoding to the first training")
    parser.number("--size", default=224, help="pixels to decode to (%(default)s)")
    parser.number(
        "--test-images", metavar="N", help="for trials: test splits are shortened to N images; results then say so"
    )
    parser.add_argument("--cache", help=f"folder of decoded images (${store.VARIABLE}, or .cache/pvera)")
    parser.add_argument("--clear-cache", action="store_true", help="remove all decoded images and stop")
    options = parser.parse_args(words)
    for name in options.datasets:
        choose("data set", name, vtab.NAMES)
    set_cache(options.cache)
    options.root = options.root.absolute()
    return options


def main(words: list[str] | None = None) -> None:
    options = parse(words)
    if options.clear_cache:
        print(f"removed {store.clear() / 1e9:.2f} GB of decoded images from {store.folder()}")
        return
    record = vtab.read_record(options.root)
    before = repr(record)
    record["test_images"] = options.test_images or record["test_images"]
    if not options.check:
        place(options, record)
    verdicts = [check(options.root, name, record, options.accept) for name in options.datasets]
    for verdict in verdicts:
        if verdict.usable:
            entry = record["datasets"].setdefault(verdict.name, {"origin": None})
            entry.pop("differs", None)
        if verdict.accepted:
            entry["differs"] = verdict.findings
    if repr(record) != before:
        try:
            vtab.write_record(options.root, record)
        except InputError as error:  # for example, a shared read-only folder
            print(f"not recorded: {error}")
    copy = vtab.copy_name(options.root)
    show(verdicts, copy, options.root)
    usable = [verdict.name for verdict in verdicts if verdict.usable]
    if not options.no_decode:
        for number, name in enumerate(usable, start=1):
            parts = image_folders.SPLITS
            splits.digest(image_folders.load_split(options.root, name, part, options.size) for part in parts)
            print(f"decoded {name} ({number} of {len(usable)})", flush=True)
    if len(usable) < len(verdicts) or str(copy).startswith("mixed"):
        sys.exit(1)


def check(root: Path, name: str, record: dict, accept: bool) -> vtab.Verdict:
    """Check a data set, and with `accept` accept what differs."""
    verdict = vtab.check(root, name, record)
    return verdict.accept() if accept else verdict


def place(options: Namespace, record: dict) -> None:
    """Put missing data sets from the source or the hub in place, and note their origin in `record`."""
    root = options.root
    wanted = [name for name in options.datasets if options.replace or not (root / name).exists()]
    if not wanted:
        return
    downloads, extracted = root / ".download", root / ".extracted"
    with writing(root):
        root.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(extracted, ignore_errors=True)  # of a call that was killed
        source, origin = options.source, {"source": str(options.source and options.source.absolute())}
        if source is None:
            source, commit = vtab_sources.download(options.repo, options.revision, wanted, downloads)
            origin = {"repo": options.repo, "revision": options.revision, "commit": commit}
        try:
            found = vtab_sources.find(source, wanted, extracted)
            if not found:
                raise InputError(f"{options.source or options.repo} holds none of {', '.join(wanted)}")
            for name, folder in found.items():
                new = {"datasets": {}, "test_images": record["test_images"]}
                verdict = check(folder.parent, name, new, options.accept)
                if verdict.usable:
                    vtab_sources.put(folder, root / name, link=extracted not in folder.parents)
                    record["datasets"][name] = {"origin": origin}
                else:
                    print(f"{name} was not put in place: {'; '.join(verdict.findings)}")
        finally:
            shutil.rmtree(extracted, ignore_errors=True)
        shutil.rmtree(downloads, ignore_errors=True)


def show(verdicts: list[vtab.Verdict], copy: str | None, root: Path) -> None:
    for verdict in verdicts:
        state = "accepted as it is" if verdict.accepted else "wrong" if verdict.findings else "right"
        print(f"{verdict.name:<22}{state if (root / verdict.name).exists() else 'missing'}")
        for line in verdict.findings:
            print(f"    {line}")
    right = sum(not verdict.findings for verdict in verdicts)
    print(f"{right} of {len(verdicts)} data sets are right in {root}")
    if any(not verdict.usable and (root / verdict.name).exists() for verdict in verdicts):
        print("--replace replaces data sets in place, --accept uses them as they are")
    print(f"copy: {copy or 'unknown: the copies agree in these data sets'}")
    if str(copy).startswith("mixed"):
        print("Some data sets are of the lossy copy, others of the lossless one: they must not share a table.")


if __name__ == "__main__":
    script.run(main)
