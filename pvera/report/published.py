"""The paper's published numbers, as `experiments/read_published.py` reads them from its LaTeX source.

Methods, data sets and backbones go by this package's keys (`PAPER_METHODS`, `data.TASKS`, `backbones.NAMES`), so
that our results and the paper's can stand side by side.
"""

import dataclasses
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from pvera.adapters import METHODS, PAPER_METHODS, Method
from pvera.data.tasks import TASKS
from pvera.errors import InputError
from pvera.study.protocol import PUBLISHED

#: File (without .csv) -> its columns.
COLUMNS = {
    "main": ("method", "dataset", "category", "accuracy", "mark"),
    "averages": ("backbone", "method", "average", "mark", "source"),
    "detailed": ("backbone", "method", "dataset", "category", "accuracy", "std", "star"),
    "grid": ("method", "hyperparameter", "value", "percent"),
    "rank": ("rank", "loss", "parameters"),
    "position": ("targets", "loss", "parameters"),
    "language": ("method", "task", "score", "star", "mark"),
    "quotes": ("quote", "said", "sentence"),
}
TEXT = {"mark": str, "said": str, "sentence": str, "source": str, "targets": str}
DATASETS = [name for name, task in TASKS.items() if task.suite == "vtab"]
BACKBONES = {"dinov2_s": "ViT-S/14", "dinov2_b": "ViT-B/14", "dinov2_l": "ViT-L/14"}
TABLES = {"dinov2_b": "Table 6", "dinov2_s": "Table 7", "dinov2_l": "Table 8"}  # the detailed ones
SEEDS = 3  # behind each of their accuracies


@dataclass(frozen=True)
class Published:
    """One table per file of `COLUMNS`. Accuracies, standard deviations and shares are percentages.

    averages: those of the main table (source "Table 1") and of the running text (source "text").
    quotes: numbers, words and symbols of the running text: name, what is said (as text), the sentence.
    """

    main: pd.DataFrame
    averages: pd.DataFrame
    detailed: pd.DataFrame
    grid: pd.DataFrame
    rank: pd.DataFrame
    position: pd.DataFrame
    language: pd.DataFrame
    quotes: pd.DataFrame

    def accuracies(self, backbone: str, column: str = "accuracy") -> pd.DataFrame:
        """The detailed table of a backbone: rows methods, columns data sets, both in the paper's order."""
        return _wide(self.detailed[self.detailed["backbone"] == backbone], column)

    def main_table(self, column: str = "accuracy") -> pd.DataFrame:
        """The main table, likewise."""
        return _wide(self.main, column)

    def configurations(self) -> dict[str, list[tuple[Method, float]]]:
        """Per method what the grid table chooses from, as the published program configures it, and its share
        (%). A learning rate is no part of a configuration."""
        found = {}
        for row in self.grid.itertuples():
            cls, settings = METHODS[row.method], dict(PUBLISHED.adapters.get(row.method, {}))
            if row.hyperparameter in {field.name for field in dataclasses.fields(cls)}:
                settings[row.hyperparameter] = int(row.value)
            found.setdefault(row.method, []).append((cls(**settings), row.percent))
        return {key: found[key] for key in PAPER_METHODS}

    def ablation_datasets(self) -> list[str]:
        """The data sets of the two ablation tables."""
        titles = self.quote("ablation_datasets").replace(" and ", " ").lower().split(",")
        return [name for name, task in TASKS.items() if task.title.lower() in [t.strip() for t in titles]]

    def quote(self, name: str) -> str:
        """What the text says under this name."""
        return self.quotes.set_index("quote").at[name, "said"]


def _wide(table: pd.DataFrame, column: str) -> pd.DataFrame:
    table = table.pivot(index="method", columns="dataset", values=column)
    return table.reindex(index=list(PAPER_METHODS), columns=DATASETS).rename_axis(index=None, columns=None)


def load(folder) -> Published:
    """The tables in `folder`. InputError for a file that is missing or lacks columns."""
    tables = {}
    for field in dataclasses.fields(Published):
        path = Path(folder) / f"{field.name}.csv"
        if not path.is_file():
            raise InputError(f"{path}: no such file; experiments/read_published.py makes it")
        table = pd.read_csv(path, dtype=TEXT, keep_default_na=False)
        lacking = [column for column in COLUMNS[field.name] if column not in table]
        if lacking:
            raise InputError(f"{path}: lacks the column {lacking[0]!r}")
        tables[field.name] = table
    return Published(**tables)
