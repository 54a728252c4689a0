"""The generated text tasks, shortened, and a small encoder with a tokenizer of their words."""

from pathlib import Path

import numpy as np
import pytest
from tiny import randomise
from transformers import BertConfig, BertModel, BertTokenizerFast

from pvera import text_encoders
from pvera.data import glue, grammar
from pvera.files import write_atomically

#: The size of a small encoder.
SMALL = dict(
    hidden_size=24, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, max_position_embeddings=40
)


def write(root: Path, names=grammar.RECIPES) -> None:
    """Write 60 training and 40 test texts of generated tasks below `root`."""
    for name in names:
        for split, texts in grammar.make(name).items():
            few = texts.take(np.arange(60 if split == "train" else 40))
            path = root / glue.TASKS[name].folder / f"{split}.tsv"
            write_atomically(path, glue.encode(few, glue.TASKS[name].layout))


def write_encoder(folder: Path, words: list[str] | None = None) -> Path:
    """Write a small BERT and its tokenizer to `folder`, as `save_pretrained` does; `words`: default, the tasks'."""
    if words is None:
        texts = (text for name in grammar.RECIPES for text in grammar.make(name)["train"].texts)
        words = sorted({word.strip(".,").lower() for text in texts for part in text for word in part.split()})
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
    """The generated tasks, shortened."""
    root = tmp_path_factory.mktemp("text")
    write(root)
    return root
