"""Describe the adapters of a profile's benchmark on one page, with numbers computed from the files.

    python experiments/make_suite.py && python experiments/cards.py --profile mini

Writes results/<profile>/benchmark/README.md: for each adapter its method, data set, protocol and seed, and accuracy,
NLL, Brier score, ECE and ACE on its test images. The 72 adapters of `mini` take one to two minutes. If an adapter does
not reach its recorded accuracy, the script ends and writes nothing.
"""

from argparse import Namespace
from pathlib import Path

import torch
from adapter_options import ROOTS
from options import Parser, set_cache
from tqdm import tqdm

from pvera import backbones
from pvera.data import splits, tasks
from pvera.errors import InputError
from pvera.files import write_atomically
from pvera.study import cards, results
from pvera.study.evaluation import evaluate
from pvera.study.script import run


def parse() -> Namespace:
    parser = Parser(__doc__)
    parser.profile("mini")
    parser.results()
    parser.add_argument("--data", type=Path, help="folder of the data sets (default: that of their suite below data/)")
    parser.add_argument("--cache", help="folder for decoded images")
    options = parser.parse_args()
    set_cache(options.cache)
    return options


def main() -> None:
    options = parse()
    folder = options.results / options.profile / "benchmark"
    page = cards.index(describe(folder, options.data), folder)
    write_atomically(folder / "README.md", page.encode())
    print(folder / "README.md")


def describe(folder: Path, data: Path | None) -> list[cards.Described]:
    """Evaluate all adapters below `folder`. InputError if there are none, or an adapter's accuracy differs from its
    run's."""
    torch.set_num_threads(1)  # like the runs
    adapters = sorted(folder.glob(f"*/*/*/seed*{results.ADAPTER}"))
    if not adapters:
        raise InputError(f"{folder} holds no adapters: train first: experiments/train.py")
    loaded: dict[str, backbones.Backbone] = {}
    described = []
    for adapter in tqdm(adapters, unit="adapter"):
        results.beside(adapter.with_suffix(".json"), results.ADAPTER)
        record = results.read(adapter.with_suffix(".json"))
        name, dataset = record["backbone"], record["dataset"]
        frozen = loaded.setdefault(name, loaded.get(name) or backbones.load(name))
        suite = tasks.TASKS[dataset].suite if dataset in tasks.TASKS else "own"
        root = data or ROOTS[suite]
        (split,) = splits.load(root, dataset, frozen, ("test",))
        classes = tasks.class_names(dataset, root)
        evaluation = evaluate(adapter, frozen, split, classes, precision=record["config"]["precision"])
        if evaluation.metrics["correct"] != record["test"]["correct"]:
            raise InputError(
                f"{adapter}: {evaluation.metrics['correct']} correct predictions, its run recorded "
                f"{record['test']['correct']}: are these the images and the pinned versions of the run?"
            )
        described.append(cards.Described(adapter, evaluation, frozen, dataset, "test", record))
    return described


if __name__ == "__main__":
    run(main)
