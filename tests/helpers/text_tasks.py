"""Small text tasks in the layouts of GLUE's, and a small encoder with a tokenizer of their
words."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tiny import randomise
from transformers import BertConfig, BertModel, BertTokenizerFast

from pvera import text_encoders
from pvera.data import glue
from pvera.files import write_atomically

#: The size of a small encoder.
SMALL = dict(
    hidden_size=24,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=48,
    max_position_embeddings=40,
)


WORDS = [
    "a", "the", "teacher", "student", "cat", "dog", "sees", "likes", "finds", "old",
    "young", "here", "there", "today",
    "smiles", "laughs",
]  # fmt: skip


def make(name: str, split: str) -> pd.DataFrame:
    """Return 60 training or 40 test texts of random words; the label says whether the first
    word is "the"."""
    source = np.random.default_rng([len(split), *name.encode()])
    parts, labels = glue.GLUE[name].text_columns, np.arange(60 if split == "train" else 40) % 2
    texts = [
        [
            " ".join([("a", "the")[label], *source.choice(WORDS, source.integers(3, 20))])
            for _ in parts
        ]
        for label in labels
    ]
    return pd.DataFrame(texts, columns=parts).assign(label=labels)


def write(root: Path, names=tuple(glue.GLUE)) -> None:
    """Write small tasks below `root`."""
    for name in names:
        for split in ("train", "dev"):
            path = root / glue.GLUE[name].title / f"{split}.tsv"
            write_atomically(path, glue.to_tsv(make(name, split), glue.GLUE[name]))


def write_encoder(folder: Path, words: Sequence[str] = WORDS) -> Path:
    """Write a small BERT and its tokenizer to `folder`, as `save_pretrained` does."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", ",", *words]
    folder.mkdir(exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    BertTokenizerFast(str(folder / "vocab.txt"), model_max_length=30).save_pretrained(folder)
    randomise(BertModel(BertConfig(vocab_size=len(vocabulary), **SMALL)), 0).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def encoder_folder(tmp_path_factory):
    """A small BERT and its tokenizer, as `save_pretrained` writes them."""
    return write_encoder(tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def encoder(encoder_folder):
    return text_encoders.load("minilm", encoder_folder)


@pytest.fixture(scope="module")
def text_folder(tmp_path_factory):
    """The small tasks."""
    root = tmp_path_factory.mktemp("text")
    write(root)
    return root
