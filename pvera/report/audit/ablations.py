"""The two ablation tables, and bounds on the losses that they print."""

import math
from collections.abc import Iterator

import pandas as pd

from pvera.data.tasks import TASKS
from pvera.report.audit.core import FOLLOWS, UNCHECKED, Finding, exact
from pvera.report.published import Published
from pvera.study.results import CATEGORIES


def double_softmax_loss(accuracy: float, classes: int) -> float:
    """Cross entropy of softmax scores taken for logits, each 0 or 1, of which `accuracy` are right.

    A right answer costs log(e + C − 1) − 1, the least this loss can be, a wrong one log(e + C − 1).
    """
    return math.log(math.e + classes - 1) - accuracy


def calibrated_loss(accuracy: float, classes: int) -> float:
    """The greatest cross entropy of a calibrated classifier: every image has the confidence `accuracy`."""
    wrong = 1 - accuracy
    entropy = -sum(p * math.log(p) for p in (accuracy, wrong) if p > 0)
    return entropy + wrong * math.log(max(classes - 1, 1))


def ablation_losses(paper: Published) -> pd.DataFrame:
    """What the ablations' losses can be, per data set: the mean of each column is what the tables print.

    floor: of a softmax taken twice; one_hot: the same at the main table's accuracy and scores of 0 and 1;
    calibrated: a bound for one softmax and calibrated scores of that accuracy; uniform: equal scores.
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
    """The two ablation tables, among themselves and against the text."""
    rank, position = paper.rank.set_index("rank"), paper.position.set_index("targets")
    r = int(paper.quote("position_table_rank"))
    targets = _letters(paper.quote("rank_table_targets"))
    for column in ("loss", "parameters"):
        one, other = rank.at[r, column], position.at[targets, column]
        yield exact("ablations", f"Table 2 r = {r}, Table 3 {targets.upper()}: {column}", one, other)
    yield exact("ablations", "text, best rank", int(paper.quote("best_rank")), rank["loss"].idxmin())
    yield exact("ablations", "text, best position", _letters(paper.quote("best_targets")),
                 position["loss"].idxmin())  # fmt: skip
    close = [int(x) for x in paper.quote("close_ranks").split(",")]
    nearest = rank["loss"].sort_values().index[1 : 1 + len(close)].tolist()
    yield exact("ablations", "text, ranks nearly as good", ", ".join(map(str, sorted(close))),
                 ", ".join(map(str, sorted(nearest))))  # fmt: skip
    chosen = paper.ablation_datasets()
    per_category = [sum(TASKS[d].category == c for d in chosen) for c in CATEGORIES]
    yield exact("ablations", "text, data sets per category", "2, 2, 2", ", ".join(map(str, per_category)))
    yield exact("ablations", "text, data sets", int(paper.quote("ablation_count")), len(chosen))

    bounds = ablation_losses(paper).mean()
    losses = [*rank["loss"], *position["loss"]]
    low, high = min(losses), max(losses)
    verdict, note = FOLLOWS, ""
    if low > bounds["calibrated"]:
        verdict, note = (
            UNCHECKED,
            (
                "only scores far from calibrated cost so much; equal scores for all classes cost "
                f"{bounds['uniform']:.2f}"
            ),
        )
        if low >= bounds["floor"]:
            note += (
                "; conjecture: softmax scores were given to a cross entropy that takes a softmax again; "
                f"this with scores of 0 and 1 and these accuracies gives {bounds['one_hot']:.2f}, and never "
                f"less than {bounds['floor']:.2f}"
            )
    yield Finding(
        "ablations", "Tables 2 and 3, losses as a cross entropy", f"{low:.3f} to {high:.3f}",
        f"at most {bounds['calibrated']:.2f} for calibrated scores at Table 1's accuracies", verdict, note,
    )  # fmt: skip


def _letters(text: str) -> str:
    """ "query and value", "Q and V" as "qv"."""
    return "".join(word[0].lower() for word in text.split() if word != "and")
