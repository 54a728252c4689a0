"""Text tasks as the token numbers that an encoder reads."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pvera.data import glue
from pvera.errors import InputError
from pvera.text_encoders import Encoder

EVALUATION_BATCH = 32  # texts: every one is padded to the longest of its batch


@dataclass(frozen=True, eq=False)
class Split:
    """n texts as tokens: per input of the encoder a tensor (n, longest), padded on the right, and labels (n,)."""

    inputs: dict[str, Tensor]
    labels: np.ndarray


class Data:
    """A split on `device`, as `training.ImageData`: a batch is padded to its own longest text."""

    evaluation_batch = EVALUATION_BATCH

    def __init__(self, split: Split, device: torch.device):
        self.inputs = {name: tensor.to(device) for name, tensor in split.inputs.items()}
        self.labels = torch.from_numpy(split.labels).to(device)
        self.lengths = split.inputs["attention_mask"].sum(1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index) -> dict[str, Tensor]:
        """The encoder's inputs, each (len(index), longest of these)."""
        width = int(self.lengths[index].max())
        return {name: tensor[index][:, :width] for name, tensor in self.inputs.items()}


def encode(encoder: Encoder, texts: glue.Texts) -> Split:
    """Texts as what `encoder` reads; the two sentences of a pair as its tokenizer joins them."""
    sentences = [list(column) for column in zip(*texts.texts, strict=True)]
    inputs = encoder.tokenizer(
        *sentences, padding="longest", truncation=True, max_length=encoder.max_length, return_tensors="pt"
    )
    return Split(dict(inputs), texts.labels)


def load_splits(root: str | Path, name: str, encoder: Encoder, first: int | None = None) -> tuple[Split, ...]:
    """Training, validation and test split of a task; with `first` that many texts of each. Those that are not
    trained on are ordered by length, so that their batches need little padding. InputError for a split without texts,
    and as `glue.load_split`."""
    parts = [glue.load_split(root, name, split) for split in glue.SPLITS]
    if not all(map(len, parts)):
        raise InputError(f"{Path(root) / glue.TASKS[name].folder}: too few texts for training, validation and test")
    train, *others = (encode(encoder, part.take(np.arange(len(part))[:first])) for part in parts)
    return train, *map(by_length, others)


def by_length(split: Split) -> Split:
    """`split` with its shortest texts first."""
    order = split.inputs["attention_mask"].sum(1).argsort(stable=True)
    return Split({name: tensor[order] for name, tensor in split.inputs.items()}, split.labels[order.numpy()])


def digest(splits: Sequence[Split]) -> str:
    """SHA-256 over tokens and labels of each split in turn: all that training and testing read of them."""
    found = hashlib.sha256()
    for split in splits:
        for name, tensor in sorted(split.inputs.items()):
            found.update(f"{name} {tuple(tensor.shape)}\n".encode() + tensor.numpy().astype("<i4").tobytes())
        found.update(split.labels.astype("<i8").tobytes())
    return found.hexdigest()
