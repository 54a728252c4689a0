"""Text tasks in GLUE's original TSV files: the paper's three (its last table).

`<root>/<folder>/{train,dev}.tsv`, where dev is GLUE's validation set. GLUE's test labels are not published, so as in
the paper dev is the test set, and the training set is split into training and validation. The paper does not say how.
Here one permutation, the same for all seeds, gives four fifths and one fifth, like the 800 and 200 images of VTAB-1k.

The files have quirks: a byte-order mark (MRPC), quotation marks that quote nothing (all), no header (CoLA), words as
labels (RTE). Texts are frames with a row per text: its sentences, and "label", int64.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pvera import files
from pvera.errors import InputError, as_input_error, import_extra
from pvera.text_encoders import Encoder

if TYPE_CHECKING:  # trainings on images do without
    import pandas as pd

HUB = "nyu-mll/glue"


@dataclass(frozen=True)
class TextTask:
    """One task: its title, which is its folder too, the paper's metric ("accuracy" or "matthews"), numbers of texts,
    and the columns of its files.

    label, texts: the columns of these.   classes: the labels as written, in the order of their numbers.
    header: whether the first line names the columns.
    """

    name: str
    title: str
    metric: str
    train: int
    dev: int
    columns: tuple[str, ...]
    label: str
    texts: tuple[str, ...]
    classes: tuple[str, ...] = ("0", "1")
    header: bool = True


RTE = ("index", "sentence1", "sentence2", "label")
MRPC = ("Quality", "#1 ID", "#2 ID", "#1 String", "#2 String")
COLA = ("source", "label", "mark", "sentence")
GLUE = {
    task.name: task
    for task in (
        TextTask(
            "rte",
            "RTE",
            "accuracy",
            2490,
            277,
            RTE,
            "label",
            RTE[1:3],
            ("entailment", "not_entailment"),
        ),
        TextTask("mrpc", "MRPC", "accuracy", 3668, 408, MRPC, "Quality", MRPC[3:]),
        TextTask("cola", "CoLA", "matthews", 8551, 1043, COLA, "label", COLA[3:], header=False),
    )
}


def read(file: str | Path, task: TextTask) -> pd.DataFrame:
    """Read the texts of a TSV file in its order. InputError names a wrong line."""
    import pandas as pd

    lines = [line.removesuffix("\r") for line in files.read_text(file).split("\n")]
    rows = {number: line.split("\t") for number, line in enumerate(lines, start=1) if line}
    if task.header and rows.pop(1, None) != list(task.columns):
        raise InputError(
            f"{file}, line 1: expected the header {', '.join(task.columns)}, not {lines[0][:80]!r}"
        )
    if not rows:
        raise InputError(f"{file} is empty")
    label = task.columns.index(task.label)
    for number, row in rows.items():
        if len(row) != len(task.columns) or row[label] not in task.classes:
            expected = f"{len(task.columns)} columns, with {' or '.join(task.classes)} in column {label + 1}"
            raise InputError(f"{file}, line {number}: expected {expected}, not {repr(row)[:200]}")
    table = pd.DataFrame([*rows.values()], columns=task.columns)
    return table[list(task.texts)].assign(
        label=table[task.label].map(task.classes.index).astype(np.int64)
    )


def encode(texts: pd.DataFrame, task: TextTask) -> str:
    """Encode a TSV file that `read` reads; texts have neither tabs nor line breaks."""
    written = texts.assign(**{task.label: texts.label.map(task.classes.__getitem__)})
    table = written.reindex(columns=task.columns, fill_value="")
    return table.to_csv(
        sep="\t", header=task.header, index=False, quoting=csv.QUOTE_NONE, lineterminator="\n"
    )


def load_split(root: str | Path, name: str, split: str) -> pd.DataFrame:
    """Load one split ("train", "validation" or "test") of the task `name` below `root`.

    Training and validation texts come from train.tsv in the order of the permutation; test is dev.tsv in its order.
    InputError as `read`.
    """
    task = GLUE[name]
    file = Path(root) / task.title / ("dev.tsv" if split == "test" else "train.tsv")
    texts = read(file, task)
    if split == "test":
        return texts
    order, cut = np.random.default_rng(0).permutation(len(texts)), round(0.8 * len(texts))
    return texts.iloc[order[:cut] if split == "train" else order[cut:]]


def from_hub(task: TextTask, split: str) -> pd.DataFrame:
    """Download GLUE's "train" or "dev" from the hub. InputError where that fails."""
    import pandas as pd
    from huggingface_hub import hf_hub_download

    name = f"{task.name}/{'train' if split == 'train' else 'validation'}-00000-of-00001.parquet"
    import_extra("pyarrow", "language")
    with as_input_error(
        f"cannot download {name} of {HUB}", "make_texts.py --source takes the TSV files"
    ):
        table = pd.read_parquet(hf_hub_download(HUB, name, repo_type="dataset"))
    sentences = ["sentence"] if len(task.texts) == 1 else ["sentence1", "sentence2"]
    # Some sentences of the hub's CoLA end in a line break, which the original files do not have.
    texts = (
        table[sentences].map(lambda text: " ".join(text.split())).set_axis(list(task.texts), axis=1)
    )
    return texts.assign(label=table["label"])


# Texts as the token numbers that an encoder reads


@dataclass(frozen=True, eq=False)
class TextSplit:
    """n texts as tokens: per input of the encoder a tensor (n, longest), padded on the right, and labels (n,).

    key: none, so that the digest of texts is computed of their tokens, which takes a second.
    """

    inputs: dict[str, Tensor]
    labels: np.ndarray
    key = ""

    def content(self) -> Iterator[bytes]:
        """Yield tokens and labels: all that training and testing read."""
        for name, tensor in sorted(self.inputs.items()):
            yield (
                f"{name} {tuple(tensor.shape)}\n".encode() + tensor.numpy().astype("<i4").tobytes()
            )
        yield self.labels.astype("<i8").tobytes()

    def by_length(self) -> TextSplit:
        """Return the texts from short to long."""
        order = self.inputs["attention_mask"].sum(1).argsort(stable=True)
        return TextSplit(
            {name: tensor[order] for name, tensor in self.inputs.items()},
            self.labels[order.numpy()],
        )

    def data(self, frozen: Encoder, device: torch.device, in_memory: bool = True) -> TextData:
        """Return the split on `device`; tokens are always in memory."""
        return TextData(self, device)


class TextData:
    """A split on `device`; a batch is padded to its longest text."""

    evaluation_batch = 32  # each is padded to the longest of its batch

    def __init__(self, split: TextSplit, device: torch.device):
        self.inputs = {name: tensor.to(device) for name, tensor in split.inputs.items()}
        self.labels = torch.from_numpy(split.labels).to(device)
        self.lengths = split.inputs["attention_mask"].sum(1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index) -> dict[str, Tensor]:
        """Return the encoder's inputs, each (len(index), longest of these)."""
        width = int(self.lengths[index].max())
        return {name: tensor[index][:, :width] for name, tensor in self.inputs.items()}


def tokenized(encoder: Encoder, texts: pd.DataFrame) -> TextSplit:
    """Encode texts to what `encoder` reads; its tokenizer joins the two sentences of a pair."""
    sentences = [list(texts[column]) for column in texts.columns.drop("label")]
    inputs = encoder.tokenizer(
        *sentences,
        padding="longest",
        truncation=True,
        max_length=encoder.max_length,
        return_tensors="pt",
    )
    return TextSplit(dict(inputs), texts.label.to_numpy(copy=True))
