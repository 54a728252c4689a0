"""Predict the classes of pictures without labels by a saved adapter.

    python experiments/predict.py ADAPTER FOLDER_OR_FILES --draws 16 --output predictions.csv

Takes files, and folders with pictures at any depth. 2,000 pictures of 32 pixels take a few seconds
with the small backbone. The CSV file has a line per picture:

    path, prediction, confidence    the predicted class and its score
    draws_sd                        with --draws: standard deviation of the highest score
    draws_prediction                with --draws: the class that most samples predict
    interval_low, interval_high     with --draws: 95 % interval of that class's score

Errors are most frequent among the lowest confidences. Without the record of a training next to the
adapter, --backbone and --classes are required.
"""

import sys
from pathlib import Path

import numpy as np
from options import AdapterParser

from pvera.data.decoding import UndecodedImages
from pvera.data.image_splits import ImageSplit
from pvera.data.picture_folders import find_pictures
from pvera.errors import InputError, run_script
from pvera.files import write_atomically
from pvera.study.saved_adapters import open_adapter, predict_images


def main() -> None:
    """Predict the pictures of the command line, and write their table."""
    parser = AdapterParser(__doc__)
    parser.add_argument("pictures", nargs="+", metavar="FOLDER_OR_FILE", help="the pictures")
    parser.add_count("--draws", least=2, metavar="K", help="Monte Carlo samples besides the mean")
    text = "CSV file to write"
    parser.add_output("--output", suffix=".csv", metavar="FILE", required=True, help=text)
    text = "names of the classes, in the order of the adapter's outputs"
    parser.add_argument("--classes", nargs="+", metavar="NAME", help=text)
    options = parser.parse_args()
    pictures, others = find_all_pictures(options.pictures)

    adapter = open_adapter(options.adapter, options.backbone, options.weights, options.device)
    if not (options.classes or adapter.record):
        raise InputError(
            f"which classes has {options.adapter}? "
            "Name them in the order of its outputs with --classes"
        )
    images = UndecodedImages(Path(), pictures, adapter.frozen.image_size)
    # Pictures are decoded batch by batch, in the samples again: any number fits into memory.
    unlabelled = ImageSplit(images, np.empty(0, np.int64), pictures)
    classes = options.classes or adapter.classes()
    table = predict_images(adapter, unlabelled, classes, options.draws).table

    write_atomically(options.output, table.to_csv(index=False, float_format="%.6f"))
    print(f"{options.output}: {len(table)} pictures, the least certain have the lowest confidence")
    if others:
        print(f"left out: {others} files that Pillow does not read", file=sys.stderr)


def find_all_pictures(paths: list[str]) -> tuple[list[str], int]:
    """Return the named files and all pictures below the folders, and the number of other files.

    Raises:
        InputError: A path does not exist, or a folder holds no pictures.
    """
    # A dictionary keeps the order, and each picture once.
    pictures: dict[str, None] = {}
    others = 0
    for path in map(Path, paths):
        found = [path] if path.exists() else []
        if path.is_dir():
            found, others_below = find_pictures(path)
            others += others_below
        if not found:
            raise InputError(f"{path} does not exist, or holds no pictures")
        pictures |= dict.fromkeys(map(str, found))
    return list(pictures), others


if __name__ == "__main__":
    run_script(main)
