"""Predict the classes of pictures without labels by a saved adapter.

    python experiments/predict.py ADAPTER FOLDER_OR_FILES --draws 16 --output predictions.csv

Takes files, folders with pictures at any depth, and globs in quotes. The CSV file has a line per picture: path,
predicted class ("prediction") and its score ("confidence"). With --draws, for PVeRA, also the spread of the highest
score over the draws ("draws_sd"), the class that most draws predict, and the 95 % interval of its score. To find
errors, look at the pictures with the lowest confidence first: one pass's score ranks them better than the spread does.
Without the run's record beside the adapter, --backbone and --classes say what it would.
"""

from glob import glob
from pathlib import Path

import numpy as np
from own_pictures import opened, parser, trained_classes

from pvera.data import custom
from pvera.data.image_folders import ImageSplit, Undecoded
from pvera.errors import InputError, run_script
from pvera.files import require_writable, write_atomically
from pvera.study.evaluation import evaluate

#: Of `Evaluation.predictions`, those that need no label.
COLUMNS = (
    "path", "prediction", "confidence", "draws_sd", "draws_prediction", "interval_low", "interval_high"
)  # fmt: skip


def main() -> None:
    made = parser(__doc__, labelled=False)
    made.add_argument("pictures", nargs="+", metavar="FOLDER_OR_FILE", help="the pictures")
    made.count("--draws", least=2, metavar="K", help="Monte Carlo samples besides the mean")
    made.add_argument("--output", type=Path, metavar="FILE", help="CSV file to write (default: printed)")
    made.add_argument(
        "--classes", nargs="+", metavar="NAME", help="names of the classes, in the order of the adapter's outputs"
    )
    options = made.parse_args()
    if options.output:
        require_writable(options.output.resolve().parent)
    pictures = find(options.pictures)
    adapter = opened(options)
    classes = options.classes or trained_classes(adapter.record)
    if not classes:
        raise InputError(f"which classes has {options.adapter}? Name them in the order of its outputs with --classes")
    images = Undecoded(Path(), pictures, adapter.frozen.image_size)
    unlabelled = ImageSplit(images, np.zeros(len(pictures), np.int64), pictures)
    predictions = evaluate(adapter, unlabelled, classes, options.draws).predictions()
    table = predictions.filter(items=COLUMNS).to_csv(index=False, float_format="%.6f")
    if options.output:
        write_atomically(options.output, table.encode())
        print(f"{options.output}: {len(pictures)} pictures, the least certain ones have the lowest confidence")
    else:
        print(table, end="")


def find(places: list[str]) -> list[str]:
    """Return the files, those that globs match, and all pictures below folders. InputError where there are none."""
    pictures: list[str] = []
    for place in places:
        below: list[str] = []
        for match in [place] if Path(place).exists() else sorted(glob(place, recursive=True)):
            below += map(str, custom.find(Path(match))[0]) if Path(match).is_dir() else [match]
        if not below:
            raise InputError(f"{place} does not exist, or holds no pictures")
        pictures += below
    return list(dict.fromkeys(pictures))


if __name__ == "__main__":
    run_script(main)
