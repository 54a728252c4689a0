"""Evaluate a saved adapter: accuracy, NLL, Brier score, ECE and ACE, per class as well, on known or own images.

    python experiments/evaluate.py results/mini/benchmark/tiny/digits/pvera/seed0.safetensors
    python experiments/evaluate.py adapter.safetensors --backbone tiny --data-set pets=FOLDER --draws 16

The run's record beside the adapter gives backbone and data set. Its numbers are printed beside the computed ones; both
are equal on the same kind of processor. The first command takes a few seconds, once experiments/make_suite.py has made
the images, and prints the accuracy 0.555000 that profile `mini` recorded.
"""

import json
from argparse import Namespace
from pathlib import Path

from adapter_options import Evaluated, evaluated, parser

from pvera.errors import InputError
from pvera.files import plain, require_writable, write_atomically
from pvera.study import markdown, results
from pvera.study.evaluation import TITLES, shown
from pvera.study.script import run


def parse() -> Namespace:
    made = parser(__doc__)
    made.add_argument("--predictions", type=Path, metavar="FILE", help="CSV file to write: one line per image")
    made.add_argument("--metrics", type=Path, metavar="FILE", help="JSON file to write: all numbers that are printed")
    return made.parse_args()


def main() -> None:
    options = parse()
    require_outputs(options)
    result = evaluated(options)
    print(text(result))
    if options.predictions:
        write_atomically(options.predictions, result.evaluation.predictions().to_csv(index=False).encode())
    if options.metrics:
        write_atomically(options.metrics, (json.dumps(plain(numbers(result)), indent=1) + "\n").encode())


def require_outputs(options: Namespace) -> None:
    """Raise InputError where an output cannot be written, or would replace another file of this call or the run."""
    record = options.adapter.with_suffix(".json")
    taken = {path.resolve() for path in (options.adapter, record, record.with_suffix(results.ARRAYS))}
    for path in filter(None, (options.predictions, options.metrics)):
        if path.is_dir() or path.resolve() in taken:
            raise InputError(f"{path} is a folder, or another file of the run or of this call: choose another name")
        taken.add(path.resolve())
        require_writable(path.resolve().parent)


def numbers(result: Evaluated) -> dict:
    """Return all numbers of an evaluation, as JSON."""
    evaluation = result.evaluation
    return {
        "backbone": result.frozen.name,
        "dataset": result.dataset,
        "split": result.part,
        "method": evaluation.method.key,
        "metrics": evaluation.metrics,
        "uncertainty": evaluation.uncertainty,
        "classes": evaluation.per_class().to_dict("records"),
    }


def text(result: Evaluated) -> str:
    """Return the printed text: a title, computed and recorded metrics, the draws, and the classes."""
    evaluation, recorded = result.evaluation, result.recorded
    title = (
        f"{evaluation.method.title} on {result.frozen.name}, {result.dataset}: "
        f"{evaluation.metrics['images']} images ({result.part})"
    )
    rows = [
        [name, f"{evaluation.metrics[key]:.6f}", *([f"{recorded[key]:.6f}"] if recorded else [])]
        for key, name in TITLES.items()
    ]
    parts = [
        title,
        markdown.table(["Metric", "Here", *(["Recorded"] if recorded else [])], rows, "lrr"[: 2 + bool(recorded)]),
    ]
    if recorded and recorded["correct"] != evaluation.metrics["correct"]:
        parts.append("The recorded numbers differ: other images, or another kind of processor.")
    if drawn := evaluation.uncertainty:
        titles = {
            "accuracy": "Accuracy of the class that most draws predict",
            "sd_correct": "Mean spread of the highest score, correct images",
            "sd_incorrect": "Mean spread of the highest score, incorrect images",
            "interval_width": "Mean width of the 95 % interval",
        }
        parts.append(markdown.table(["Draws", "Here"], [[titles[key], shown(drawn[key], 6)] for key in titles], "lr"))
    classes = [
        [markdown.escape(str(row["class"])), str(row["images"]), shown(row["accuracy"])]
        for row in evaluation.per_class().to_dict("records")
    ]
    parts.append(markdown.table(["Class", "Images", "Accuracy"], classes, "lrr"))
    return "\n\n".join(parts)


if __name__ == "__main__":
    run(main)
