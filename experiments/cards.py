"""Describe the adapters of a profile's benchmark on one page, with numbers computed from the files.

    python experiments/make_suite.py && python experiments/cards.py --profile mini

Writes results/<profile>/benchmark/README.md: for each adapter its method, data set, protocol and seed, and accuracy,
NLL, Brier score, ECE and ACE on its test images. The 72 adapters of `mini` take one to two minutes. If an adapter does
not reach its recorded accuracy, the script ends and writes nothing.
"""

from pathlib import Path

from adapter_options import add_images, evaluated, parser
from options import Parser
from tqdm import tqdm

from pvera.errors import InputError
from pvera.files import write_atomically
from pvera.study import cards, results
from pvera.study.evaluation import Evaluation
from pvera.study.script import run


def main() -> None:
    made = Parser(__doc__)
    made.profile("mini")
    made.results()
    made.add_argument("--data", help="folder of the data sets (default: that of their suite below data/)")
    options = made.parse_args()
    folder = options.results / options.profile / "benchmark"
    adapters = sorted(folder.glob(f"*/*/*/seed*{results.ADAPTER}"))
    if not adapters:
        raise InputError(f"{folder} holds no adapters: train first: experiments/train.py")
    data = ["--data", options.data] if options.data else []
    evaluations = []
    for adapter in tqdm(adapters, unit="adapter"):
        evaluations.append(as_recorded(adapter, data))
    write_atomically(folder / "README.md", cards.index(evaluations, folder).encode())
    print(folder / "README.md")


def as_recorded(adapter: Path, data: list[str]) -> Evaluation:
    """Evaluate an adapter. InputError if its accuracy differs from its run's."""
    made = parser("")
    add_images(made)
    evaluation = evaluated(made.parse_args([str(adapter), "--device", "cpu", *data]))
    here, recorded = (metrics and metrics["correct"] for metrics in (evaluation.metrics, evaluation.recorded))
    if here != recorded:
        raise InputError(
            f"{adapter}: {here} correct predictions, its run recorded {recorded}: are these the images and the pinned "
            "versions of the run?"
        )
    return evaluation


if __name__ == "__main__":
    run(main)
