"""Predict the classes of pictures without labels by a saved adapter.

    python experiments/predict.py ADAPTER FOLDER_OR_FILES --draws 16 --output predictions.csv

Takes files, and folders with pictures at any depth. The CSV file has a line per picture: path, predicted class
("prediction") and its score ("confidence"); with --draws, for PVeRA, also the spread of the highest score over draws
("draws_sd"), the class that most draws predict, and the 95 % interval of its score. To find errors, look at the lowest
confidence first. Pictures that cannot be read are named and left out; the exit code is then 1. Without the run's record
beside the adapter, --backbone and --classes say what it would.
"""

import sys
from collections import Counter
from pathlib import Path

import numpy as np
from evaluate import adapter_parser, classes_of, open_adapter, predict, require_other_files

from pvera.data.decoding import UndecodedImages, list_first
from pvera.data.image_splits import ImageSplit
from pvera.data.picture_folders import describe_left_out, find_pictures
from pvera.errors import InputError, run_script
from pvera.files import write_atomically


def main() -> None:
    parser = adapter_parser(__doc__, labelled=False)
    parser.add_argument("pictures", nargs="+", metavar="FOLDER_OR_FILE", help="the pictures")
    parser.count("--draws", least=2, metavar="K", help="Monte Carlo samples besides the mean")
    parser.add_argument(
        "--output", type=Path, metavar="FILE", required=True, help="CSV file to write"
    )
    parser.add_argument(
        "--classes",
        nargs="+",
        metavar="NAME",
        help="names of the classes, in the order of the adapter's outputs",
    )
    options = parser.parse_args()
    pictures, left_out = find(options.pictures)
    require_other_files([options.output], options, pictures)
    frozen, record = open_adapter(options)
    if not (options.classes or record):
        raise InputError(
            f"which classes has {options.adapter}? Name them in the order of its outputs with --classes"
        )
    images = UndecodedImages(Path(), pictures, frozen.image_size)
    split = ImageSplit(images, np.empty(0, np.int64), pictures)
    _, table, _ = predict(
        options.adapter, frozen, record, split, options.classes or classes_of(record), options.draws
    )
    errors = images.errors
    if len(errors) == len(pictures):
        raise InputError(list_first(errors.values()))
    table = table[[path not in errors for path in pictures]]
    write_atomically(options.output, table.to_csv(index=False, float_format="%.6f"))
    print(
        f"{options.output}: {len(table)} pictures, the least certain ones have the lowest confidence"
    )
    if left_out:
        print(f"left out: {describe_left_out(left_out)}", file=sys.stderr)
    if errors:
        print(f"left out: {list_first(errors.values())}", file=sys.stderr)
        sys.exit(1)


def find(places: list[str]) -> tuple[list[str], Counter[str]]:
    """Return the files, and all pictures below the folders; and what `find_pictures` left out. InputError for none."""
    pictures, left_out = {}, Counter()
    for place in map(Path, places):
        below, others = find_pictures(place) if place.is_dir() else ([place], Counter())
        left_out += others
        if not (below and place.exists()):
            raise InputError(f"{place} does not exist, or holds no pictures")
        pictures |= dict.fromkeys(map(str, below))
    return list(pictures), left_out


if __name__ == "__main__":
    run_script(main)
