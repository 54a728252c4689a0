"""The paper's printed numbers, read once from its LaTeX source into results/published.

Methods, data sets and backbones have this package's keys (`PAPER_METHODS`, `data.tasks.TASKS`,
`backbones.NAMES`), so the paper's results compare with ours.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from pvera.adapters import METHODS, PAPER_METHODS, Method
from pvera.data.tasks import TASKS
from pvera.study.protocol import OFFICIAL_CODE

#: Columns that are text, even where all cells are numbers.
TEXT_COLUMNS = dict.fromkeys(
    ("mark", "said", "sentence", "source", "targets", "printed", "recomputed"), str
)
#: The paper's data sets, those of VTAB-1k, in its order.
PAPER_DATASETS = [name for name, task in TASKS.items() if task.suite == "vtab"]
#: The backbones of the paper.
PAPER_BACKBONES = {"dinov2_s": "ViT-S/14", "dinov2_b": "ViT-B/14", "dinov2_l": "ViT-L/14"}
#: Backbone -> its detailed table, in the paper's order.
DETAILED_TABLES = {"dinov2_b": "Table 6", "dinov2_s": "Table 7", "dinov2_l": "Table 8"}
#: Seeds behind each accuracy of the detailed tables.
PAPER_SEEDS = 3


#: Method -> its configurations, each with a weight.
WeightedConfigurations: TypeAlias = dict[str, list[tuple[Method, float]]]


@dataclass(frozen=True)
class PaperNumbers:
    """The paper's numbers, a file per field; accuracies, deviations and shares are in %."""

    #: Table 1: method, dataset, category, accuracy, mark.
    main: pd.DataFrame
    #: Averages in Table 1 and in the text (source): backbone, method, average, mark, source.
    averages: pd.DataFrame
    #: Tables 6 to 8: backbone, method, dataset, category, accuracy, std, star.
    detailed: pd.DataFrame
    #: Table 4: method, hyperparameter, value, percent.
    grid: pd.DataFrame
    #: Table 2: rank, loss, parameters.
    rank: pd.DataFrame
    #: Table 3: targets, loss, parameters.
    position: pd.DataFrame
    #: Table 5: method, task, score, star, mark.
    language: pd.DataFrame
    #: Words of the text, as text: quote (their name), said, sentence.
    quotes: pd.DataFrame
    #: Remarks on computed findings of the audit: check, place, note.
    notes: pd.DataFrame
    #: Findings that a person read: check, place, printed, recomputed, verdict, note.
    by_hand: pd.DataFrame

    def accuracies(self, backbone: str = "") -> pd.DataFrame:
        """Return a detailed table, or the main table.

        Args:
            backbone: The backbone of a detailed table; without one, the main table is meant.

        Returns:
            Rows methods, columns data sets, both in the paper's order.
        """
        table = self.detailed[self.detailed["backbone"] == backbone] if backbone else self.main
        table = table.pivot(index="method", columns="dataset", values="accuracy")
        table = table.reindex(index=list(PAPER_METHODS), columns=PAPER_DATASETS)
        return table.rename_axis(index=None, columns=None)

    def configurations(self) -> WeightedConfigurations:
        """Return the configurations in the grid table per method, each with its share (%).

        Other hyperparameters are those of the official code. A learning rate is no part of a
        configuration.
        """
        configurations: WeightedConfigurations = {key: [] for key in PAPER_METHODS}
        for row in self.grid.itertuples():
            method = METHODS[row.method]
            settings = dict(OFFICIAL_CODE.adapters.get(row.method, {}))
            if row.hyperparameter in {field.name for field in dataclasses.fields(method)}:
                settings[row.hyperparameter] = int(row.value)
            configurations[row.method].append((method(**settings), row.percent))
        return configurations

    def quote(self, name: str) -> str:
        """Return the words of the text that a name in `quotes` stands for."""
        return self.quotes.set_index("quote").at[name, "said"]


def load_paper(folder: str | Path) -> PaperNumbers:
    """Load the tables in a folder."""
    tables = {
        field.name: pd.read_csv(
            Path(folder) / f"{field.name}.csv", dtype=TEXT_COLUMNS, keep_default_na=False
        )
        for field in dataclasses.fields(PaperNumbers)
    }
    return PaperNumbers(**tables)
