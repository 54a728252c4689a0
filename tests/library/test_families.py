"""Every method on every family of encoders in the tables of docs/backbones.md."""

import re

import pytest
import timm
import torch
import transformers
from families import CHECKS, CLASSES, OPTIONS, VARIANTS, Case, close, make, make_inputs, refused
from pages import table
from tiny import METHODS

import pvera
from pvera import AdaptFormer, DoRA, Linear, LoRA, PVeRA, VeRA


def examples(heading: str) -> dict[str, list[str]]:
    """Return the examples of a table of docs/backbones.md, each with its row."""
    rows = table("backbones", heading)[1:]
    return {example: row for row in rows for example in re.findall("`(.+?)`", row[1])}


EXAMPLES, REFUSED = examples("What works"), examples("What is refused")
#: Encoders of every kind of layer with every check; the other families are slow tests.
FAST = ["vit_base_patch14_dinov2", "beit_base_patch16_224", "DebertaV2Model(share_att_key=True)"]
#: Encoders with the checks that tell one family from another.
FEW = [
    "vit_base_patch16_siglip_224",
    "deit_base_distilled_patch16_224",
    "vit_base_patch16_rpn_224",
    "BertModel",
]
FEW += ["Dinov2Model", "Dinov2Model(use_swiglu_ffn=True)"]
FEW_CHECKS = ["reference", "merging", "exchange"]


CELLS = [
    (example, key)
    for example in EXAMPLES
    for key, method in METHODS.items()
    if f"(without {method.title})" not in EXAMPLES[example][0]
]


def marks(example: str, check: str) -> list:
    fast = example in FAST or example in FEW and check in FEW_CHECKS
    return [] if fast else [pytest.mark.slow]


@pytest.mark.parametrize(
    "example, key, check",
    [pytest.param(*cell, check, marks=marks(cell[0], check)) for cell in CELLS for check in CHECKS],
)
def test_method_on_family(example, key, check, tmp_path):
    CHECKS[check](Case(example, key), *([tmp_path] if check == "exchange" else []))


#: Hyperparameters that change the equations.
METHODS_VARIED = [
    AdaptFormer(ratio=4, inside_layer_scale=True),
    DoRA(rank=3, norm="output", train_magnitude=False, scaled=False),
    DoRA(rank=3, norm="output", train_magnitude=False, scaled=False, transpose=False),
    DoRA(rank=3, targets="qk", transpose=False),
    DoRA(rank=3, targets="k", alpha=2.0),
    LoRA(rank=2, targets="qkv", alpha=3.0, same_draw=True),
    LoRA(rank=2, targets="k"),
    VeRA(rank=8, targets="qkv", alpha=3.0, init="uniform"),
    VeRA(rank=8, targets="qk"),
    PVeRA(rank=8, targets="kv", alpha=3.0, kl="mean"),
    PVeRA(rank=8, targets="q"),
    VeRA(rank=8, pair="shared"),
    PVeRA(rank=8, targets="qkv", pair="shared"),
    PVeRA(rank=8, sigma=0.5, init="uniform"),
]


@pytest.mark.parametrize("check", ["start", "reference", "merging"])
@pytest.mark.parametrize("method", METHODS_VARIED, ids=str)
def test_hyperparameters(method, check):
    CHECKS[check](Case("vit_base_patch14_dinov2", method))


@pytest.mark.parametrize("check", ["start", "reference", "merging"])
@pytest.mark.parametrize("key", METHODS)
@pytest.mark.parametrize("example", VARIANTS)
def test_variants_of_timms_vision_transformer(example, key, check):
    CHECKS[check](Case(example, key))


@pytest.mark.parametrize(
    "example, key", [(e, k) for e in EXAMPLES for k in METHODS if (e, k) not in CELLS]
)
def test_method_that_does_not_fit_is_refused(example, key):
    assert METHODS[key].title in refused(make(example), method=METHODS[key])


# ---------------------------------------------------------------- what the head reads

READS = {
    "class token": lambda encoder, tokens: tokens[:, 0],
    "first token": lambda encoder, tokens: tokens[:, 0],
    "mean of class and distillation token": lambda encoder, tokens: (
        (tokens[:, 0] + tokens[:, 1]) / 2
    ),
    "mean of the patches": lambda encoder, tokens: tokens[:, encoder.num_prefix_tokens :].mean(1),
    "class token behind the last LayerNorm": lambda encoder, tokens: encoder.post_layernorm(
        tokens[:, 0]
    ),
    "attention pooling of all tokens": lambda encoder, tokens: getattr(
        encoder, "attn_pool", encoder.head
    )(tokens),
    "attention pooling of the patches": lambda encoder, tokens: encoder.attn_pool(
        tokens[:, encoder.num_prefix_tokens :]
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("example, reads", [(example, row[2]) for example, row in EXAMPLES.items()])
@torch.no_grad()
def test_head_reads(example, reads):
    encoder = make(example)
    inputs = make_inputs(encoder)
    if isinstance(encoder, transformers.PreTrainedModel):
        output = encoder(inputs) if isinstance(inputs, torch.Tensor) else encoder(**inputs)
        tokens = output.last_hidden_state
    else:
        tokens = encoder.forward_features(inputs)
    expected = getattr(encoder, "fc_norm", torch.nn.Identity())(READS[reads](encoder, tokens))
    close(pvera.adapt(encoder, Linear(), CLASSES).eval().features(inputs)[0], expected)


# ---------------------------------------------------------------- the page


def shape_only(example: str):
    """Make the example without weights, at full size."""
    kind = getattr(transformers, example, None)
    if kind is not None:
        with torch.device("meta"):
            return kind(kind.config_class())
    try:
        return timm.create_model(example, num_classes=0, device="meta")
    except (AssertionError, NotImplementedError, RuntimeError, TypeError):
        return timm.create_model(
            example, num_classes=0
        )  # it computes with numbers that the meta device lacks


@pytest.mark.slow
@pytest.mark.parametrize("example", REFUSED)
def test_refused(example):
    assert "num_classes=0" not in refused(shape_only(example))  # it was made with it


def test_page_is_well_formed():
    rows = table("backbones", "What works")[1:] + table("backbones", "What is refused")[1:]
    named = re.findall("`(.+?)`", " ".join(row[1] for row in rows))
    assert sorted(named) == sorted([*EXAMPLES, *REFUSED]), "no example stands twice"
    assert set(OPTIONS) <= set(EXAMPLES) and {*FAST, *FEW} <= set(EXAMPLES)
    titles = {method.title for method in METHODS.values()}
    assert {title for row in rows for title in re.findall(r"\(without (.+?)\)", row[0])} <= titles
