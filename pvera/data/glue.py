"""Text tasks in GLUE's original TSV files: RTE, MRPC and CoLA, the three of the paper's last table.

The files are `<root>/<folder>/{train,dev}.tsv`, where dev is GLUE's validation set. GLUE's test
labels are not published, so as in the paper dev is the test set, and the training set is split into
training and validation. The paper does not say how. Here one permutation, the same for all seeds,
gives four fifths and one fifth, like the 800 and 200 images of VTAB-1k.

The files have quirks: a byte-order mark (MRPC), quotation marks that quote nothing (all), no header
(CoLA), words as labels (RTE). Texts are data frames with a row per text: its sentences, and
"label", int64.
"""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from pvera import files
from pvera.errors import InputError
from pvera.text_encoders import TextBackbone


@dataclass(frozen=True)
class TextTask:
    """One task."""

    name: str
    #: Its title, which is its folder too.
    title: str
    #: The paper's: "accuracy" or "matthews".
    metric: str
    #: Number of test texts, GLUE's dev.
    test_texts: int
    #: The columns of its files.
    columns: tuple[str, ...]
    #: The column of the label.
    label_column: str
    #: The columns of the texts.
    text_columns: tuple[str, ...]
    #: The labels as they are written, in the order of their numbers.
    classes: tuple[str, ...] = ("0", "1")
    #: Whether the first line of a file names the columns.
    header: bool = True


_TASKS = (
    TextTask(
        name="rte",
        title="RTE",
        metric="accuracy",
        test_texts=277,
        columns=("index", "sentence1", "sentence2", "label"),
        label_column="label",
        text_columns=("sentence1", "sentence2"),
        classes=("entailment", "not_entailment"),
    ),
    TextTask(
        name="mrpc",
        title="MRPC",
        metric="accuracy",
        test_texts=408,
        columns=("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"),
        label_column="Quality",
        text_columns=("#1 String", "#2 String"),
    ),
    TextTask(
        name="cola",
        title="CoLA",
        metric="matthews",
        test_texts=1043,
        columns=("source", "label", "mark", "sentence"),
        label_column="label",
        text_columns=("sentence",),
        header=False,
    ),
)
#: The tasks by name.
GLUE = {task.name: task for task in _TASKS}


def read_tsv(file: str | Path, task: TextTask) -> pd.DataFrame:
    """Read the texts of a TSV file in its order.

    Raises:
        InputError: The file is missing or a line is wrong; the message names it.
    """
    lines = [line.removesuffix("\r") for line in files.read_text(file).split("\n")]
    rows = {number: line.split("\t") for number, line in enumerate(lines, start=1) if line}
    if task.header and rows.pop(1, None) != list(task.columns):
        header = ", ".join(task.columns)
        raise InputError(f"{file}, line 1: expected the header {header}, not {lines[0][:80]!r}")
    if not rows:
        raise InputError(f"{file} is empty")

    label = task.columns.index(task.label_column)
    for number, row in rows.items():
        if len(row) != len(task.columns) or row[label] not in task.classes:
            labels = " or ".join(task.classes)
            expected = f"{len(task.columns)} columns, with {labels} in column {label + 1}"
            raise InputError(f"{file}, line {number}: expected {expected}, not {repr(row)[:200]}")
    table = pd.DataFrame(list(rows.values()), columns=list(task.columns))
    numbers = table[task.label_column].map(task.classes.index).astype(np.int64)
    return table[list(task.text_columns)].assign(label=numbers)


def to_tsv(texts: pd.DataFrame, task: TextTask) -> str:
    """Return the content of a TSV file for `read_tsv`; texts have no tabs and line breaks."""
    labels = texts.label.map(task.classes.__getitem__)
    table = texts.assign(**{task.label_column: labels}).reindex(
        columns=list(task.columns), fill_value=""
    )
    return table.to_csv(
        sep="\t", header=task.header, index=False, quoting=csv.QUOTE_NONE, lineterminator="\n"
    )


def read_split(root: str | Path, name: str, split: str) -> pd.DataFrame:
    """Read the texts of one split of the task `name` below `root`.

    Training and validation texts come from train.tsv in the order of the permutation; test is
    dev.tsv in its order.

    Args:
        root: Folder of the tasks.
        name: Key of `GLUE`.
        split: "train", "validation" or "test".

    Raises:
        InputError: As `read_tsv`.
    """
    task = GLUE[name]
    folder = Path(root) / task.title
    if split == "test":
        return read_tsv(folder / "dev.tsv", task)
    texts = read_tsv(folder / "train.tsv", task)
    # One permutation for all seeds of trainings.
    order = np.random.default_rng(0).permutation(len(texts))
    cut = round(0.8 * len(texts))
    return texts.iloc[order[:cut] if split == "train" else order[cut:]]


@dataclass(eq=False)
class TextSplit:
    """n texts as tokens; `split[index]` is a batch, padded to its longest text."""

    #: Per input of the encoder (n, longest), padded on the right.
    inputs: dict[str, Tensor]
    #: (n,) int64.
    labels: Tensor
    #: Empty: not kept in the store, as the digest of tokens takes a second.
    key: ClassVar[str] = ""
    #: Few, as each batch is padded to its longest text.
    evaluation_batch: ClassVar[int] = 32

    def __post_init__(self):
        # On the CPU: a batch's width is read there.
        self._lengths = self.inputs["attention_mask"].sum(1).cpu()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index) -> dict[str, Tensor]:
        """Return the encoder's inputs for a slice or indices, each (n, longest of these)."""
        width = int(self._lengths[index].max())
        return {name: tensor[index][:, :width] for name, tensor in self.inputs.items()}

    def content(self) -> Iterator[bytes]:
        """Yield tokens and labels: all that training and testing read."""
        for name, tensor in sorted(self.inputs.items()):
            yield f"{name} {tuple(tensor.shape)}\n".encode()
            yield tensor.numpy().astype("<i4").tobytes()
        yield self.labels.numpy().astype("<i8").tobytes()

    def by_length(self) -> "TextSplit":
        """Return the texts from short to long."""
        order = self._lengths.argsort(stable=True)
        inputs = {name: tensor[order] for name, tensor in self.inputs.items()}
        return TextSplit(inputs, self.labels[order])

    def data(self, frozen: Any, device: torch.device, in_memory: bool = True) -> "TextSplit":
        """Return the split on `device`; tokens are always in its memory."""
        inputs = {name: tensor.to(device) for name, tensor in self.inputs.items()}
        return TextSplit(inputs, self.labels.to(device))


def tokenize(encoder: TextBackbone, texts: pd.DataFrame) -> TextSplit:
    """Return texts as `encoder` reads them; its tokenizer joins the two sentences of a pair."""
    sentences = [list(texts[column]) for column in texts.columns.drop("label")]
    inputs = encoder.tokenizer(
        *sentences,
        padding="longest",
        truncation=True,
        max_length=encoder.max_length,
        return_tensors="pt",
    )
    return TextSplit(dict(inputs), torch.from_numpy(texts.label.to_numpy(copy=True)))
