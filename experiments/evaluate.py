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

import pandas as pd
from options import AdapterParser

from pvera.data import custom
from pvera.errors import InputError, run_script
from pvera.files import json_value, write_atomically
from pvera.study.evaluation import (
    Evaluation,
    evaluate,
    find_root,
    install_unseen,
    open_adapter,
)

#: The metrics that are printed.
METRICS = ["accuracy", "nll", "brier", "ece", "ace"]


def main() -> None:
    """Evaluate the adapter of the command line; print and write its numbers."""
    parser = AdapterParser(__doc__)
    parser.add_data_set()
    text = "Monte Carlo samples besides the mean, for --predictions"
    parser.add_count("--draws", least=2, metavar="K", help=text)
    text = "CSV file to write: one line per image"
    parser.add_output("--predictions", suffix=".csv", metavar="FILE", help=text)
    text = "JSON file to write: all numbers that are printed"
    parser.add_output("--metrics", suffix=".json", metavar="FILE", help=text)
    options = parser.parse_args()
    record = options.adapter.with_suffix(".json").resolve()
    if options.metrics and options.metrics.resolve() == record:
        raise InputError(f"{options.metrics} is the record of the adapter: name another file")

    adapter = open_adapter(options.adapter, options.backbone, options.weights, options.device)
    data_set = options.data_set or adapter.record.get("dataset", "")
    name, _, source = data_set.partition("=")
    root = find_root(adapter, name, options.data)
    if source:
        manifest = install_unseen(adapter, root, name, source)
        print(custom.describe(name, manifest), flush=True)
    evaluated = evaluate(adapter, root, name, options.draws)

    method, backbone = evaluated.member.method.title, adapter.frozen.name
    print(f"{method} for {backbone} on {evaluated.dataset}: {len(evaluated.table)} images\n")
    print(pd.Series(evaluated.metrics)[METRICS].to_string(float_format="{:.6f}".format), end="\n\n")
    print(evaluated.classes.to_string(float_format="{:.4f}".format, na_rep="–"))
    if options.predictions:
        write_atomically(options.predictions, evaluated.table.to_csv(index=False))
    if options.metrics:
        write_atomically(options.metrics, to_json(backbone, evaluated))


def to_json(backbone: str, evaluated: Evaluation) -> str:
    """Return the numbers of an evaluation as JSON."""
    numbers = {
        "backbone": backbone,
        "dataset": evaluated.dataset,
        "method": evaluated.member.method.key,
        "metrics": evaluated.metrics,
        "classes": evaluated.classes.reset_index().to_dict("records"),
    }
    return json.dumps(json_value(numbers), indent=1) + "\n"


if __name__ == "__main__":
    run_script(main)
