"""Install VTAB-1k, check it, and decode it once.

    python experiments/prepare_vtab.py                          from the Hugging Face hub
    python experiments/prepare_vtab.py --source vtab-1k.zip     from an archive, or a folder, which is linked
    python experiments/prepare_vtab.py --check --no-decode      check the data in place

Keeps installed data sets, and skips a source's wrong ones. Prints which splits are right, wrong or missing;
training refuses wrong ones. The exit code is 0 when all data sets are right or accepted, 1 when one is wrong or
missing, 2 for bad input and damaged images.
"""

import sys
from argparse import Namespace
from pathlib import Path

from options import ROOT, Parser, set_cache

from pvera.data import image_folders, splits, store, tasks, vtab, vtab_sources
from pvera.errors import InputError
from pvera.processes import cores
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
    taken = {}
    if not options.check:
        with vtab_sources.placing(options.root):
            taken = place(options)
    verdicts = check(options, taken)
    copy = vtab.copy_name(options.root)
    show(verdicts, copy, options.root)
    usable = [verdict.name for verdict in verdicts if verdict.usable]
    if not options.no_decode:
        for number, name in enumerate(usable, start=1):
            parts = image_folders.RUN_SPLITS
            splits.digest(image_folders.load_split(options.root, name, part, options.size, cores()) for part in parts)
            print(f"decoded {name} ({number} of {len(usable)})", flush=True)
    if len(usable) < len(verdicts) or str(copy).startswith("mixed"):
        sys.exit(1)


def place(options: Namespace) -> dict[str, vtab.Verdict]:
    """Install missing data sets from the source or the hub, record their origin, and return the verdicts."""
    root, record = options.root, vtab.read_record(options.root)
    wanted = [name for name in options.datasets if options.replace or not (root / name).exists()]
    if not wanted:
        return {}
    new = {"datasets": {}, "test_images": options.test_images or record["test_images"]}

    def judge(folder: Path, name: str) -> vtab.Verdict:
        verdict = vtab.check(folder, name, new)
        verdict.accepted = options.accept and acceptable(verdict)
        if not verdict.usable:
            verdict.notes.append("not put in place")
        return verdict

    if options.source:
        verdicts = vtab_sources.place(root, options.source, wanted, judge)
        origin = {"source": str(options.source.absolute())}
    else:
        verdicts, commit = vtab_sources.download(root, options.repo, options.revision, wanted, judge)
        origin = {"repo": options.repo, "revision": options.revision, "commit": commit}
    if not verdicts:
        raise InputError(f"{options.source or options.repo} holds none of {', '.join(wanted)}")
    placed = [name for name, verdict in verdicts.items() if verdict.usable]
    record["datasets"] |= {name: {"origin": origin, "checksums": {}} for name in placed}
    vtab.write_record(root, record)
    return verdicts


def acceptable(verdict: vtab.Verdict) -> bool:
    """Return whether a data set that is wrong can be trained on: each split file was read."""
    return not verdict.right and len(verdict.checksums) == len(image_folders.SPLITS)


def check(options: Namespace, taken: dict[str, vtab.Verdict]) -> list[vtab.Verdict]:
    """Return a verdict per data set, from `taken` if it has one; record usable data sets at first use."""
    record = vtab.read_record(options.root)
    before = repr(record)
    record["test_images"] = options.test_images or record["test_images"]
    verdicts = []
    for name in options.datasets:
        verdict = taken.get(name) or vtab.check(options.root, name, record)
        verdicts.append(verdict)
        verdict.accepted = verdict.accepted or options.accept and acceptable(verdict)
        if not verdict.usable:
            continue
        entry = record["datasets"].get(name, {"origin": None}) | {"checksums": verdict.checksums}
        entry.pop("differs", None)
        record["datasets"][name] = entry | ({"differs": verdict.findings} if verdict.accepted else {})
    if repr(record) != before:
        try:
            vtab.write_record(options.root, record)
        except InputError as error:  # for example, a shared read-only folder
            print(f"checksums were not recorded: {error}")
    return verdicts


def show(verdicts: list[vtab.Verdict], copy: str | None, root: Path) -> None:
    print(f"{'data set':<22}{'classes':>7}  " + "".join(f"{split:<16}" for split in image_folders.SPLITS))
    for verdict in verdicts:
        states = "".join(f"{state:<16}" for state in verdict.states.values())
        print(f"{verdict.name:<22}{tasks.task(verdict.name).classes:>7}  {states}".rstrip())
        accepted = ["accepted as it is"] * verdict.accepted
        for line in verdict.findings + verdict.notes + accepted:
            print(f"    {line}")
    right = sum(verdict.right for verdict in verdicts)
    print(f"{right} of {len(verdicts)} data sets are right in {root}")
    if any(not verdict.usable and (root / verdict.name).exists() for verdict in verdicts):
        print("--replace replaces data sets in place, --accept uses them as they are")
    print(f"copy: {copy or 'unknown: the copies agree in these data sets'}")
    if str(copy).startswith("mixed"):
        print("Some data sets are of the lossy copy, others of the lossless one: they must not share a table.")


if __name__ == "__main__":
    script.run(main)
