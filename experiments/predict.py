"""Predict the classes of pictures without labels by a saved adapter.

    python experiments/predict.py ADAPTER FOLDER_OR_FILES --draws 16 --output predictions.csv

Takes files, folders with pictures at any depth, and globs in quotes. The CSV file has a line per picture: path,
predicted class ("prediction") and its score ("confidence"). With --draws, for PVeRA, also the spread of the highest
score over the draws ("draws_sd"), the class that most draws predict, and the 95 % interval of its score. To find
errors, look at the pictures with the lowest confidence first: one pass's score ranks them better than the spread does.
Without the run's record beside the adapter, --backbone and --classes say what it would.
"""

from argparse import Namespace
from glob import glob
from pathlib import Path

import numpy as np
from adapter_options import opened, parser

from pvera.data import image_folders, listings, tasks
from pvera.errors import InputError
from pvera.files import require_writable, write_atomically
from pvera.study import results
from pvera.study.evaluation import evaluate
from pvera.study.script import run


def main() -> None:
    made = parser(__doc__)
    made.add_argument("pictures", nargs="+", type=Path, metavar="FOLDER_OR_FILE", help="the pictures")
    made.add_argument("--output", type=Path, metavar="FILE", help="CSV file to write (default: printed)")
    made.several("--classes", metavar="NAME", help="names of the classes, in the order of the adapter's outputs")
    options = made.parse_args()
    if options.output:
        require_writable(options.output.resolve().parent)
    pictures = found(options.pictures)
    adapter = opened(options)
    classes = options.classes or class_names(options, adapter.record)
    images = image_folders.Undecoded(pictures, adapter.frozen.image_size)
    split = image_folders.ImageSplit(images, np.zeros(len(pictures), np.int64), list(map(str, pictures)))
    evaluation = evaluate(
        options.adapter,
        adapter.frozen,
        split,
        classes,
        adapter.device,
        adapter.precision,
        options.draws,
        adapter.record,
    )
    table = evaluation.predictions(labelled=False).to_csv(index=False, float_format="%.6f")
    if options.output:
        write_atomically(options.output, table.encode())
        print(f"{options.output}: {len(pictures)} pictures, the least certain ones have the lowest confidence")
    else:
        print(table, end="")


def found(places: list[Path]) -> list[Path]:
    """Return the files, those that globs match, and all pictures below folders. InputError where there are none."""
    pictures: list[Path] = []
    for place in places:
        matches = [place] if place.exists() else [Path(match) for match in sorted(glob(str(place), recursive=True))]
        if not matches:
            raise InputError(f"{place} does not exist")
        below = [file for match in matches for file in (listings.find(match)[0] if match.is_dir() else [match])]
        if not below:
            raise InputError(f"{place} holds no pictures")
        pictures += below
    return list(dict.fromkeys(pictures))


def class_names(options: Namespace, record: dict | None) -> list[str]:
    """Return the names of the adapter's classes from its record. InputError where nothing tells them."""
    if record is None:
        raise InputError(f"which classes has {options.adapter}? Name them in the order of its outputs with --classes")
    return results.own_data(record).get("classes") or tasks.class_names(record["dataset"])


if __name__ == "__main__":
    run(main)
