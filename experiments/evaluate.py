"""Evaluate a saved adapter: accuracy, NLL, Brier score, ECE and ACE, per class as well, on known or own images.

    python experiments/evaluate.py results/mini/benchmark/tiny/digits/pvera/seed0.safetensors
    python experiments/evaluate.py adapter.safetensors --backbone tiny --data-set pets=FOLDER --draws 16

The run's record beside the adapter gives backbone and data set. Its numbers are printed beside the computed ones; both
are equal on the same kind of processor. The first command takes a few seconds, once experiments/make_suite.py has made
the images, and prints the accuracy 0.555000 that profile `mini` recorded. Pictures without labels are for
experiments/predict.py.
"""

import json
from pathlib import Path

from adapter_options import evaluated, parser

from pvera.files import plain, require_writable, write_atomically
from pvera.study.evaluation import Evaluation
from pvera.study.script import run


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--predictions", type=Path, metavar="FILE", help="CSV file to write: one line per image")
    made.add_argument("--metrics", type=Path, metavar="FILE", help="JSON file to write: all numbers that are printed")
    options = made.parse_args()
    for file in (options.predictions, options.metrics):
        if file:
            require_writable(file.resolve().parent)
    evaluation = evaluated(options)
    here, recorded = evaluation.metrics, evaluation.recorded
    about = f"{evaluation.member.method.title} on {evaluation.adapter.frozen.name}, {evaluation.dataset}"
    print(f"{about}: {here['images']} images ({evaluation.part})\n\n{evaluation.tables()}")
    if recorded and recorded["correct"] != here["correct"]:
        print("\nThe recorded numbers differ: other images, or another kind of processor.")
    if options.predictions:
        write_atomically(options.predictions, evaluation.predictions().to_csv(index=False).encode())
    if options.metrics:
        write_atomically(options.metrics, (json.dumps(plain(numbers(evaluation)), indent=1) + "\n").encode())


def numbers(evaluation: Evaluation) -> dict:
    """Return all numbers of an evaluation, as JSON."""
    return {
        "backbone": evaluation.adapter.frozen.name,
        "dataset": evaluation.dataset,
        "split": evaluation.part,
        "method": evaluation.member.method.key,
        "metrics": evaluation.metrics,
        "uncertainty": evaluation.uncertainty,
        "classes": evaluation.per_class().to_dict("records"),
    }


if __name__ == "__main__":
    run(main)
