"""Text tasks as the token numbers that an encoder reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pvera.data import glue
from pvera.text_encoders import Encoder

EVALUATION_BATCH = 32  # texts: each is padded to the longest of its batch


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


def encode(encoder: Encoder, texts: glue.Texts) -> TextSplit:
    """Encode texts to what `encoder` reads; its tokenizer joins the two sentences of a pair."""
    sentences = [list(column) for column in zip(*texts.texts, strict=True)]
    inputs = encoder.tokenizer(
        *sentences, padding="longest", truncation=True, max_length=encoder.max_length, return_tensors="pt"
    )
    return TextSplit(dict(inputs), texts.labels)
