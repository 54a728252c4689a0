"""Delete the adapters below folders of results, and note in their records that they are not kept.

    python experiments/prune.py results/mini/language results/mini/benchmark/*/*/dora

A run whose adapter is deleted otherwise counts as missing, and is trained again. The uncertainty, out-of-distribution
and latents experiments read the adapters of VeRA and PVeRA in <profile>/benchmark; rivals reads those of linear probing
and LoRA as well, and all of dropout and beta_effects. Keep what you want to analyse again.
"""

import argparse
from pathlib import Path

from pvera.errors import InputError
from pvera.study import results
from pvera.study.script import run


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    for folder in options.folders:
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder")
    records = [path for folder in options.folders for path in sorted(folder.rglob("seed*.json"))]
    forgotten = [path for path in records if results.ADAPTER in results.read(path)["files"]]
    for path in forgotten:
        results.forget_adapter(path)
    print(f"deleted {len(forgotten)} adapters")


if __name__ == "__main__":
    run(main)
