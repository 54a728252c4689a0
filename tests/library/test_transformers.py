"""Encoders of transformers, with separate q, k and v layers: equations, text, padding."""

import copy

import pytest
import torch
from encoders import DINOV2, SIZE, make_text
from families import make
from tiny import METHODS, make_images, make_vit, perturb
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2Model,
    RobertaPreLayerNormConfig,
    RobertaPreLayerNormModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)

import pvera
from pvera import InputError, PVeRA

CLASSES = 3
DEBERTA_V3 = "DebertaV2Model(share_att_key=True)"
TEXT = ["BertModel", "RobertaModel", "DebertaV2Model", DEBERTA_V3]


def rows(text: dict, index) -> dict:
    return {name: tensor[index] for name, tensor in text.items()}


def adapted(encoder="BertModel", method=METHODS["pvera"], seed=0):
    return perturb(pvera.adapt(make(encoder, seed), method, CLASSES, seed), seed).eval()


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- padding


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("name", TEXT)
def test_more_padding_changes_neither_output_nor_kl(name, sampled):
    model = adapted(name)
    results = []
    for padding in (0, 7):
        with model.sampling(seed=1, enabled=sampled):
            results.append((model(make_text(padding=padding)), model.kl_divergence()))
    close(*results)
    if sampled:
        assert (results[0][0] - model(make_text())).abs().max() > 1e-3


@pytest.mark.parametrize("name", TEXT)
def test_a_text_counts_as_much_as_it_does_alone(name):
    """A batch's output and KL term equal those of its texts one by one, without padding."""
    model, text, lengths = adapted(name), make_text(), (5, 9, 3)
    logits, kl = model(text), model.kl_divergence()
    alone = []
    for i, length in enumerate(lengths):
        one = rows(text, (slice(i, i + 1), slice(length)))
        alone.append((model(one)[0], model.kl_divergence()))
        without_mask = model({"input_ids": one["input_ids"]})[0], model.kl_divergence()
        close(without_mask, alone[-1])
    close(logits, torch.stack([one[0] for one in alone]))
    close(kl, torch.stack([one[1] for one in alone]).mean())


def test_inputs_that_are_no_texts_are_refused():
    model, text = adapted(), make_text()
    mask = text["attention_mask"].clone()
    mask[1] = 0
    for inputs, message in (
        (make_images(2), "the model takes texts, as a tokenizer's mapping, not Tensor"),
        ({}, "texts are a mapping of tensors"),
        ({"input_ids": torch.zeros(0, 4)}, "at least one text"),
        ({"input_ids": [[1, 2]]}, "return_tensors='pt'"),
        (text | {"attention_mask": mask}, "the first token of a text is padding"),
    ):
        with pytest.raises(InputError, match=message):
            model(inputs)
    with pytest.raises(InputError, match="a text is padding alone"):
        pvera.adapt(make("BertModel"), PVeRA(rank=2), CLASSES, pool="mean")(text | {"attention_mask": mask})


# ---------------------------------------------------------------- the adapted model


def test_mean_pooling_leaves_padding_out(tmp_path):
    """Features are the mean of the tokens' hidden states; a text's own do not depend on the padding of its batch."""
    text, plain = make_text(), make("BertModel")
    mask = text["attention_mask"]
    assert not mask.all(), "some text must be padded"
    model = perturb(pvera.adapt(copy.deepcopy(plain), PVeRA(rank=8), CLASSES, pool="mean")).eval()
    features = model.features(text)[0]
    hidden = model.backbone(**text).last_hidden_state
    for row, states in enumerate(hidden):
        torch.testing.assert_close(features[row], states[mask[row].bool()].mean(0))
    alone = {name: tensor[:1, : mask[0].sum()] for name, tensor in text.items()}
    torch.testing.assert_close(model.features(alone)[0, 0], features[0], atol=1e-5, rtol=0)
    pvera.save(model, tmp_path / "a.safetensors")
    loaded = pvera.load(copy.deepcopy(plain), tmp_path / "a.safetensors").eval()
    assert loaded.pool == "mean" and torch.equal(loaded(text), model(text))
    with pytest.raises(InputError, match="pools tokens by 'mean', not by 'first'"):
        pvera.load(pvera.adapt(copy.deepcopy(plain), PVeRA(rank=8), CLASSES), tmp_path / "a.safetensors")


def test_pooling_is_checked():
    with pytest.raises(InputError, match="pool must be one of first, mean, not 'max'"):
        pvera.adapt(make("BertModel"), PVeRA(rank=8), CLASSES, pool="max")
    with pytest.raises(InputError, match="is for text; of images, the backbone pools"):
        pvera.adapt(make_vit(), PVeRA(rank=8), CLASSES, pool="mean")


# ---------------------------------------------------------------- numbers, and encoders that are refused


NO_ENCODER = "is neither a timm vision transformer .* nor a bare encoder of transformers"
PRE_LAYER_NORM = RobertaPreLayerNormConfig(
    hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48, vocab_size=50
)


@pytest.mark.parametrize(
    "encoder, message",
    [
        (lambda: BertForSequenceClassification(BertConfig(**SIZE)), NO_ENCODER),
        (lambda: GPT2Model(GPT2Config(vocab_size=50, n_positions=8, n_embd=24, n_layer=1, n_head=2)), NO_ENCODER),
        # It has BERT's module names, but its norms are in other places.
        (lambda: RobertaPreLayerNormModel(PRE_LAYER_NORM), NO_ENCODER),
        (
            lambda: SiglipVisionModel(SiglipVisionConfig(**DINOV2, vision_use_head=False)),
            "pools nothing: create it with vision_use_head=True",
        ),
    ],
)
def test_other_models_are_refused(encoder, message):
    with pytest.raises(InputError, match=message):
        pvera.adapt(encoder(), METHODS["lora"], CLASSES)
