"""The two ablation tables, and bounds on the losses that they print."""

import math
from collections.abc import Iterator

import pandas as pd

from pvera.data.tasks import TASKS
from pvera.report.audit.core import FOLLOWS, UNCHECKED, Finding, exact
from pvera.report.published import Published
from pvera.study.results import CATEGORIES

CHECK = "ablations"


def double_softmax_loss(accuracy: float, classes: int) -> float:
    """Return the cross entropy that takes softmax scores of 0 and 1 for logits, at this accuracy in [0, 1].

    A correct answer costs log(e + C − 1) − 1, the least that this loss can be, a wrong one log(e + C − 1).
    """
    return math.log(math.e + classes - 1) - accuracy


def calibrated_loss(accuracy: float, classes: int) -> float:
    """Return the greatest cross entropy of a calibrated classifier: every image has the confidence `accuracy`."""
    wrong = 1 - accuracy
    entropy = -sum(p * math.log(p) for p in (accuracy, wrong) if p > 0)
    return entropy + wrong * math.log(max(classes - 1, 1))


def ablation_losses(paper: Published) -> pd.DataFrame:
    """Return bounds on the ablations' loss per data set; the tables print means over these data sets.

    floor: the least loss of a softmax taken twice. one_hot: that loss at the main table's accuracy with scores of 0
    and 1. calibrated: the greatest loss of one softmax with calibrated scores. uniform: the loss of equal scores.
    """
    rows = {}
    for name in paper.ablation_datasets():
        classes, accuracy = TASKS[name].classes, paper.main_table().at["pvera", name] / 100
        rows[name] = {
            "accuracy": accuracy,
            "floor": double_softmax_loss(1, classes),
            "one_hot": double_softmax_loss(accuracy, classes),
            "calibrated": calibrated_loss(accuracy, classes),
            "uniform": math.log(classes),
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def check_ablations(paper: Published) -> Iterator[Finding]:
    """Yield the findings on the two ablation tables, against one another and against the text."""
    rank, position = paper.rank.set_index("rank"), paper.position.set_index("targets")
    r, targets = int(paper.quote("position_table_rank")), _letters(paper.quote("rank_table_targets"))
    for column in ("loss", "parameters"):
        place = f"Table 2 r = {r}, Table 3 {targets.upper()}: {column}"
        yield exact(CHECK, place, rank.at[r, column], position.at[targets, column])
    yield exact(CHECK, "text, best rank", int(paper.quote("best_rank")), rank["loss"].idxmin())
    yield exact(CHECK, "text, best position", _letters(paper.quote("best_targets")), position["loss"].idxmin())
    close = [int(x) for x in paper.quote("close_ranks").split(",")]
    nearest = rank["loss"].sort_values().index[1 : 1 + len(close)]
    yield exact(CHECK, "text, ranks nearly as good", _listed(sorted(close)), _listed(sorted(nearest)))
    datasets = paper.ablation_datasets()
    per_category = [sum(TASKS[dataset].category == category for dataset in datasets) for category in CATEGORIES]
    yield exact(CHECK, "text, data sets per category", "2, 2, 2", _listed(per_category))
    yield exact(CHECK, "text, data sets", int(paper.quote("ablation_count")), len(datasets))
    yield _losses(paper)


def _losses(paper: Published) -> Finding:
    """Return the finding on the printed losses against what one softmax, and a softmax taken twice, can cost."""
    bounds = ablation_losses(paper).mean()
    printed = [*paper.rank["loss"], *paper.position["loss"]]
    verdict, notes = FOLLOWS, []
    if min(printed) > bounds["calibrated"]:
        verdict = UNCHECKED
        notes.append(
            f"only scores far from calibrated cost so much; equal scores for all classes cost {bounds['uniform']:.2f}"
        )
        if min(printed) >= bounds["floor"]:
            notes.append(
                "conjecture: softmax scores were given to a cross entropy that takes a softmax again; with scores of 0 "
                f"and 1 and these accuracies this gives {bounds['one_hot']:.2f}, and never less than "
                f"{bounds['floor']:.2f}"
            )
    return Finding(
        CHECK, "Tables 2 and 3, losses as a cross entropy", f"{min(printed):.3f} to {max(printed):.3f}",
        f"at most {bounds['calibrated']:.2f} for calibrated scores at Table 1's accuracies", verdict,
        "; ".join(notes),
    )  # fmt: skip


def _listed(numbers) -> str:
    return ", ".join(map(str, numbers))


def _letters(text: str) -> str:
    """Return "qv" for "query and value" and for "Q and V"."""
    return "".join(word[0].lower() for word in text.split() if word != "and")
