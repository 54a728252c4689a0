"""The paper's published numbers, read once from its LaTeX source into results/published.

Methods, data sets and backbones have this package's keys (`PAPER_METHODS`, `data.tasks.TASKS`, `backbones.NAMES`), so
that the paper's results can stand beside ours.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pvera.adapters import METHODS, PAPER_METHODS, Method
from pvera.data.tasks import TASKS
from pvera.study.protocol import PUBLISHED

TEXT = dict.fromkeys(
    ("mark", "said", "sentence", "source", "targets", "printed", "recomputed"), str
)
DATASETS = [name for name, task in TASKS.items() if task.suite == "vtab"]
BACKBONES = {"dinov2_s": "ViT-S/14", "dinov2_b": "ViT-B/14", "dinov2_l": "ViT-L/14"}
TABLES = {"dinov2_b": "Table 6", "dinov2_s": "Table 7", "dinov2_l": "Table 8"}  # the detailed ones
SEEDS = 3  # behind each of their accuracies


@dataclass(frozen=True)
class Published:
    """The published numbers, one table per file. Accuracies, standard deviations and shares are in %.

    averages: from the main table (source "Table 1") and from the running text (source "text").
    quotes: numbers, words and symbols of the running text: a name, the words (as text), and their sentence.
    notes, by_hand: the audit's remarks, and its findings that a person read (`audit`).
    """

    main: pd.DataFrame  # method, dataset, category, accuracy, mark
    averages: pd.DataFrame  # backbone, method, average, mark, source
    detailed: pd.DataFrame  # backbone, method, dataset, category, accuracy, std, star
    grid: pd.DataFrame  # method, hyperparameter, value, percent
    rank: pd.DataFrame  # rank, loss, parameters
    position: pd.DataFrame  # targets, loss, parameters
    language: pd.DataFrame  # method, task, score, star, mark
    quotes: pd.DataFrame  # quote, said, sentence
    notes: pd.DataFrame  # check, place, note
    by_hand: pd.DataFrame  # check, place, printed, recomputed, verdict, note

    def accuracies(self, backbone: str = "", column: str = "accuracy") -> pd.DataFrame:
        """Return the detailed table of a backbone, or the main table: rows methods, columns data sets.

        Both are in the paper's order.
        """
        table = self.detailed[self.detailed["backbone"] == backbone] if backbone else self.main
        table = table.pivot(index="method", columns="dataset", values=column)
        return table.reindex(index=list(PAPER_METHODS), columns=DATASETS).rename_axis(
            index=None, columns=None
        )

    def configurations(self) -> dict[str, list[tuple[Method, float]]]:
        """Return the configurations that the grid table chooses from, per method, each with its share (%).

        They are those of the published program. A learning rate is no part of a configuration.
        """
        configurations = {}
        for row in self.grid.itertuples():
            cls, settings = METHODS[row.method], dict(PUBLISHED.adapters.get(row.method, {}))
            if row.hyperparameter in {field.name for field in dataclasses.fields(cls)}:
                settings[row.hyperparameter] = int(row.value)
            configurations.setdefault(row.method, []).append((cls(**settings), row.percent))
        return {key: configurations[key] for key in PAPER_METHODS}

    def quote(self, name: str) -> str:
        """Return the words of the text that a name in `quotes` stands for."""
        return self.quotes.set_index("quote").at[name, "said"]


def load(folder) -> Published:
    """Load the tables in `folder`."""
    names = (field.name for field in dataclasses.fields(Published))
    return Published(
        **{
            name: pd.read_csv(Path(folder) / f"{name}.csv", dtype=TEXT, keep_default_na=False)
            for name in names
        }
    )
