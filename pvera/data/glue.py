"""Text tasks in GLUE's original TSV files: the paper's three (its last table).

`<root>/<folder>/{train,dev}.tsv`, where dev is GLUE's validation set. GLUE's test labels are not published, so as in
the paper dev is the test set, and the training set is split into training and validation. The paper does not say how.
Here one permutation, the same for all seeds, gives four fifths and one fifth, like the 800 and 200 images of VTAB-1k.

The files have quirks: a byte-order mark (MRPC), quotation marks that quote nothing (all), no header (CoLA), words as
labels (RTE).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pvera import files
from pvera.errors import InputError, explained, optional
from pvera.text_encoders import Encoder

HUB = "nyu-mll/glue"
EVALUATION_BATCH = 32  # texts: each is padded to the longest of its batch


@dataclass(frozen=True)
class Layout:
    """The layout of a TSV file: the columns of the label and the texts, and the number of columns.

    classes: the labels as written, in the order of their numbers.   header: the first line, "" for none.
    mark: whether the file starts with a byte-order mark.
    """

    label: int
    texts: tuple[int, ...]
    columns: int
    classes: tuple[str, ...] = ("0", "1")
    header: str = ""
    mark: bool = False


COLA = Layout(label=1, texts=(3,), columns=4)
MRPC = Layout(label=0, texts=(3, 4), columns=5, header="Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", mark=True)
RTE = Layout(3, (1, 2), 4, ("entailment", "not_entailment"), header="index\tsentence1\tsentence2\tlabel")


@dataclass(frozen=True)
class TextTask:
    """One task: its folder, title and layout, the paper's metric ("accuracy" or "matthews"), and numbers of texts."""

    name: str
    folder: str
    title: str
    layout: Layout
    metric: str
    train: int
    dev: int


GLUE = {
    task.name: task
    for task in (
        TextTask("rte", "RTE", "RTE", RTE, "accuracy", 2490, 277),
        TextTask("mrpc", "MRPC", "MRPC", MRPC, "accuracy", 3668, 408),
        TextTask("cola", "CoLA", "CoLA", COLA, "matthews", 8551, 1043),
    )
}


@dataclass(frozen=True)
class Texts:
    """n texts, each of one or two sentences, and their labels (n,) int64."""

    texts: list[tuple[str, ...]]
    labels: np.ndarray

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Iterable[int]) -> Texts:
        """Return the texts at `index`, in its order."""
        return Texts([self.texts[i] for i in index], self.labels[index])


def read(file: str | Path, layout: Layout) -> Texts:
    """Read the texts of a TSV file in its order. InputError names a wrong line."""
    file = Path(file)
    lines = [line.removesuffix("\r") for line in files.read_text(file).split("\n")]
    if layout.header and lines[0] != layout.header:
        raise InputError(f"{file}, line 1: expected the header {layout.header!r}, not {lines[0][:80]!r}")
    texts, labels = [], []
    for number, line in enumerate(lines, start=1):
        if not line or (number == 1 and layout.header):
            continue
        cells = line.split("\t")
        if len(cells) != layout.columns:
            raise InputError(f"{file}, line {number}: expected {layout.columns} columns, not {len(cells)}")
        if (label := cells[layout.label]) not in layout.classes:
            raise InputError(f"{file}, line {number}: label {label!r} is not one of {', '.join(layout.classes)}")
        texts.append(tuple(cells[column] for column in layout.texts))
        labels.append(layout.classes.index(label))
    if not texts:
        raise InputError(f"{file} is empty")
    return Texts(texts, np.array(labels, np.int64))


def encode(content: Texts, layout: Layout) -> bytes:
    """Encode a TSV file that `read` reads; texts have neither tabs nor line breaks."""
    lines = [layout.header] if layout.header else []
    for number, (label, text) in enumerate(zip(content.labels, content.texts, strict=True)):
        cells = [str(number)] * layout.columns  # it fills unused columns
        cells[layout.label] = layout.classes[label]
        for column, sentence in zip(layout.texts, text, strict=True):
            cells[column] = sentence
        lines.append("\t".join(cells))
    return ("\n".join(lines) + "\n").encode("utf-8-sig" if layout.mark else "utf-8")


def load_split(root: str | Path, name: str, split: str) -> Texts:
    """Load one split ("train", "validation" or "test") of the task `name` below `root`.

    Training and validation texts come from train.tsv in the order of the permutation; test is dev.tsv in its order.
    InputError where train.tsv is too short for both, and as `read`.
    """
    task = GLUE[name]
    file = Path(root) / task.folder / ("dev.tsv" if split == "test" else "train.tsv")
    texts = read(file, task.layout)
    if split == "test":
        return texts
    order, cut = np.random.default_rng(0).permutation(len(texts)), round(0.8 * len(texts))
    if cut == len(texts):
        raise InputError(f"{file}: too few texts for training and validation")
    return texts.take(order[:cut] if split == "train" else order[cut:])


def from_hub(task: TextTask, split: str) -> Texts:
    """Download GLUE's "train" or "dev" from the hub. InputError where that fails."""
    import pandas as pd
    from huggingface_hub import hf_hub_download

    name = f"{task.name}/{'train' if split == 'train' else 'validation'}-00000-of-00001.parquet"
    optional("pyarrow", "language")
    with explained(f"cannot download {name} of {HUB}", "make_texts.py --glue --source takes the TSV files"):
        table = pd.read_parquet(hf_hub_download(HUB, name, repo_type="dataset"))
    columns = ["sentence"] if len(task.layout.texts) == 1 else ["sentence1", "sentence2"]
    # Some sentences of the hub's CoLA end in a line break, which the original files do not have.
    texts = [tuple(" ".join(text.split()) for text in row) for row in table[columns].itertuples(index=False)]
    return Texts(texts, table["label"].to_numpy(np.int64))


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
            yield f"{name} {tuple(tensor.shape)}\n".encode() + tensor.numpy().astype("<i4").tobytes()
        yield self.labels.astype("<i8").tobytes()

    def by_length(self) -> TextSplit:
        """Return the texts from short to long."""
        order = self.inputs["attention_mask"].sum(1).argsort(stable=True)
        return TextSplit({name: tensor[order] for name, tensor in self.inputs.items()}, self.labels[order.numpy()])

    def data(self, frozen: Encoder, device: torch.device, in_memory: bool = True) -> TextData:
        """Return the split on `device`; tokens are always in memory."""
        return TextData(self, device)


class TextData:
    """A split on `device`; a batch is padded to its longest text."""

    evaluation_batch = EVALUATION_BATCH

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


def tokenized(encoder: Encoder, texts: Texts) -> TextSplit:
    """Encode texts to what `encoder` reads; its tokenizer joins the two sentences of a pair."""
    sentences = [list(column) for column in zip(*texts.texts, strict=True)]
    inputs = encoder.tokenizer(
        *sentences, padding="longest", truncation=True, max_length=encoder.max_length, return_tensors="pt"
    )
    return TextSplit(dict(inputs), texts.labels)
