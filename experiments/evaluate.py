r"""Evaluate a saved adapter on test images.

    python experiments/evaluate.py \
        results/synthetic/benchmark/tiny/digits/pvera/seed1.safetensors
    python experiments/evaluate.py ADAPTER --backbone tiny --data-set pets=FOLDER --draws 16

Prints accuracy, NLL, Brier score, ECE and ACE, and the accuracy of each class.
The record of the training, next to the adapter, gives backbone and data set. The first command
takes a few seconds, once experiments/make_suite.py has made the images, and prints the recorded
accuracy 0.537500. For pictures without labels there is experiments/predict.py.
"""

import json
from argparse import Namespace
from pathlib import Path

import pandas as pd
from options import AdapterParser

from pvera import metrics
from pvera.data import custom, tasks, vtab
from pvera.errors import InputError, run_script
from pvera.files import json_value, write_atomically
from pvera.study.saved_adapters import (
    count_by_class,
    find_root,
    install_unseen,
    load_test,
    open_adapter,
    predict_images,
)

#: The metrics that are printed.
METRICS = ["accuracy", "nll", "brier", "ece", "ace"]


def main() -> None:
    """Evaluate the adapter of the command line; print and write its numbers."""
    parser = AdapterParser(__doc__)
    text = "a known data set, or your own pictures (default: the data set of the record)"
    parser.add_argument("--data-set", metavar="NAME[=FOLDER]", help=text)
    text = "folder of the data sets (default: their suite's, below data/)"
    parser.add_argument("--data", type=Path, help=text)
    text = "Monte Carlo samples besides the mean, for --predictions"
    parser.add_count("--draws", least=2, metavar="K", help=text)
    text = "CSV file to write: one line per image"
    parser.add_output("--predictions", suffix=".csv", metavar="FILE", help=text)
    text = "JSON file to write: all numbers that are printed"
    parser.add_output("--metrics", suffix=".json", metavar="FILE", help=text)
    evaluate(parser.parse_args())


def evaluate(options: Namespace) -> None:
    """Print and write the numbers that the options ask for."""
    record_file = options.adapter.with_suffix(".json").resolve()
    if options.metrics and options.metrics.resolve() == record_file:
        raise InputError(f"{options.metrics} is the record of the adapter: name another file")

    adapter = open_adapter(options.adapter, options.backbone, options.weights, options.device)
    data_set = options.data_set or adapter.record.get("dataset", "")
    # NAME, or NAME=FOLDER for pictures that are still to be installed.
    name, _, source = data_set.partition("=")
    root = find_root(adapter, name, options.data)
    if source:
        manifest = install_unseen(adapter, root, name, source)
        print(custom.describe(name, manifest), flush=True)
    test = load_test(adapter, root, name)
    classes = tasks.class_names(name, root)
    predictions = predict_images(adapter, test, classes, options.draws)

    table = predictions.table
    by_class = count_by_class(table, classes)
    scores = metrics.evaluate(predictions.probabilities, test.labels)
    method, backbone = predictions.member.method, adapter.frozen.name
    differs = vtab.read_accepted(root).get(name)
    title = f"{name} ({vtab.DIFFERS})" if differs else name

    print(f"{method.title} for {backbone} on {title}: {len(table)} images\n")
    print(pd.Series(scores)[METRICS].to_string(float_format="{:.6f}".format), end="\n\n")
    print(by_class.to_string(float_format="{:.4f}".format, na_rep="–"))
    if options.predictions:
        write_atomically(options.predictions, table.to_csv(index=False))
    if options.metrics:
        numbers = {
            "backbone": backbone,
            "dataset": title,
            "method": method.key,
            "metrics": scores,
            "classes": by_class.reset_index().to_dict("records"),
        }
        write_atomically(options.metrics, json.dumps(json_value(numbers), indent=1) + "\n")


if __name__ == "__main__":
    run_script(main)
