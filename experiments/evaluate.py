"""Evaluate a saved adapter on test images: accuracy, NLL, Brier score, ECE and ACE, and the accuracy of each class.

    python experiments/evaluate.py results/mini/benchmark/tiny/digits/pvera/seed0.safetensors
    python experiments/evaluate.py adapter.safetensors --backbone tiny --data-set pets=FOLDER --draws 16

The run's record beside the adapter gives backbone and data set. The first command takes a few seconds, once
experiments/make_suite.py has made the images, and prints the accuracy 0.555000 that profile `mini` recorded. Pictures
without labels are for experiments/predict.py.
"""

import json
from pathlib import Path

from saved_adapters import adapter_parser, evaluate

from pvera.errors import run_script
from pvera.files import plain, require_writable, write_atomically


def main() -> None:
    parser = adapter_parser(__doc__, labelled=True)
    parser.count("--draws", least=2, metavar="K", help="Monte Carlo samples besides the mean, for --predictions")
    parser.add_argument("--predictions", type=Path, metavar="FILE", help="CSV file to write: one line per image")
    parser.add_argument("--metrics", type=Path, metavar="FILE", help="JSON file to write: all numbers that are printed")
    options = parser.parse_args()
    for file in filter(None, (options.predictions, options.metrics)):
        require_writable(file.resolve().parent)
    predictions, name = evaluate(options, options.draws)
    method, backbone = predictions.member.method, predictions.adapter.frozen.name
    print(f"{method.title} for {backbone} on {name}: {len(predictions.labels)} images\n\n{predictions.markdown()}")
    if options.predictions:
        write_atomically(options.predictions, predictions.table().to_csv(index=False))
    if options.metrics:
        numbers = {
            "backbone": backbone,
            "dataset": name,
            "method": method.key,
            "metrics": predictions.metrics,
            "classes": predictions.per_class().to_dict("records"),
        }
        write_atomically(options.metrics, json.dumps(plain(numbers), indent=1) + "\n")


if __name__ == "__main__":
    run_script(main)
