"""The numbers of one adapter's evaluation, as Markdown tables."""

from pvera.report.table import NOTHING, escape, markdown_table
from pvera.study.evaluation import Evaluation

#: The metrics that are shown, with their titles.
METRICS = {"accuracy": "Accuracy", "nll": "NLL", "brier": "Brier score", "ece": "ECE", "ace": "ACE"}


def evaluation_tables(evaluated: Evaluation) -> str:
    """Return the metrics, and the accuracy of each class."""
    scores = [[title, f"{evaluated.metrics[key]:.6f}"] for key, title in METRICS.items()]
    classes = []
    for row in evaluated.classes.itertuples():
        accuracy = f"{row.accuracy:.4f}" if row.images else NOTHING
        classes.append([escape(row.Index), str(row.images), accuracy])
    metrics_table = markdown_table(["Metric", "Value"], scores, "lr")
    class_table = markdown_table(["Class", "Images", "Accuracy"], classes, "lrr")
    return f"{metrics_table}\n\n{class_table}"
