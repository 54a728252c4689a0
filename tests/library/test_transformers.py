"""Encoders of transformers, with separate q, k and v layers: equations, text, padding."""

import copy

import pytest
import torch
from test_adapters import EQUATIONS
from text_tasks import SMALL
from tiny import METHODS, make_images, make_vit, perturb, randomise
from torch import nn
from torch.distributions import Normal, kl_divergence
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertModel,
    DebertaV2Config,
    DebertaV2Model,
    Dinov2Config,
    Dinov2Model,
    RobertaConfig,
    RobertaModel,
)

import pvera
from pvera import AdaptFormer, DoRA, InputError, LoRA, PVeRA, VeRA

CLASSES = 3
SIZE = SMALL | {"vocab_size": 50}
#: DeBERTa-V3's differences: the query and key layers also read embeddings of relative positions.
DEBERTA_V3 = dict(
    type_vocab_size=0,
    position_biased_input=False,
    relative_attention=True,
    position_buckets=8,
    norm_rel_ebd="layer_norm",
    share_att_key=True,
    pos_att_type=["p2c", "c2p"],
    pad_token_id=0,
)
DINOV2 = dict(hidden_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=32, patch_size=8)
ENCODERS = {
    "bert": lambda: BertModel(BertConfig(**SIZE)),
    "roberta": lambda: RobertaModel(RobertaConfig(**SIZE, pad_token_id=1)),
    "deberta-v2": lambda: DebertaV2Model(
        DebertaV2Config(**SIZE, **DEBERTA_V3 | {"share_att_key": False, "conv_kernel_size": 3})
    ),
    "deberta-v3": lambda: DebertaV2Model(DebertaV2Config(**SIZE, **DEBERTA_V3)),
}
TEXT_METHODS = {key: method for key, method in METHODS.items() if key != "adaptformer"}
#: The submodules of a layer for the places of `EQUATIONS`.
PLACES = {"hidden": "intermediate", "after_attention": "attention.output.dense", "after_mlp": "output.dense"}


def places_of(encoder: str) -> dict:
    ending = "_proj" if encoder.startswith("deberta") else ""
    return PLACES | {name[0]: f"attention.self.{name}{ending}" for name in ("query", "key", "value")}


def make_encoder(name: str, seed: int = 0):
    return randomise(ENCODERS[name](), seed).eval()


def make_text(lengths=(5, 9, 3), padding: int = 0, pad_token: int = 1, seed: int = 0) -> dict:
    """Make texts of random tokens with these `lengths`, padded to the longest plus `padding`."""
    source = torch.Generator().manual_seed(seed)
    width = max(lengths) + padding
    ids = torch.full((len(lengths), width), pad_token)
    mask = torch.zeros_like(ids)
    for i, length in enumerate(lengths):
        ids[i, :length] = torch.randint(2, 50, (length,), generator=source)
        mask[i, :length] = 1
    return {"input_ids": ids, "attention_mask": mask}


def rows(text: dict, index) -> dict:
    return {name: tensor[index] for name, tensor in text.items()}


def adapted(encoder="bert", method=METHODS["pvera"], seed=0):
    return perturb(pvera.adapt(make_encoder(encoder, seed), method, CLASSES, seed), seed).eval()


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


# ---------------------------------------------------------------- equations


class Replacement(nn.Module):
    """A module followed by a function of its input and output."""

    def __init__(self, module, function):
        super().__init__()
        self.module, self.function = module, function

    def forward(self, x):
        return self.function(x, self.module(x))


def with_equations(encoder, places, adapters, method):
    """Return a copy of `encoder` whose modules compute the methods' equations."""
    encoder = copy.deepcopy(encoder)
    for layer, adapter in zip(encoder.encoder.layer, adapters):
        linear = {p: layer.get_submodule(places[p]) for p in "qkv"}
        equations = EQUATIONS[method.key](adapter, method, {p: (m.weight, m.bias) for p, m in linear.items()})
        for place, function in equations.items():
            if place not in linear:
                function = lambda x, y, function=function: function(y)  # noqa: E731
            layer.set_submodule(places[place], Replacement(layer.get_submodule(places[place]), function))
    return encoder


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize(
    "method",
    [
        *TEXT_METHODS.values(),
        LoRA(rank=2, targets="qkv"),
        DoRA(rank=2, norm="output", targets="k"),
        PVeRA(rank=8, targets="k"),
    ],
    ids=str,
)
def test_forward_is_the_methods_equations(name, method):
    text, plain = make_text(), make_encoder(name).double()
    model = perturb(pvera.adapt(copy.deepcopy(plain), method, CLASSES).double()).eval()
    features = model.features(text)[0]
    expected = with_equations(plain, places_of(name), model.members[0].layers, method)(**text)
    expected = expected.last_hidden_state[:, 0]
    torch.testing.assert_close(features, expected, rtol=0, atol=1e-9)
    if method.key != "linear":
        assert (features - plain(**text).last_hidden_state[:, 0]).abs().max() > 1e-2
    head = model.members[0].head
    torch.testing.assert_close(model(text), features @ head.weight.T + head.bias, rtol=0, atol=1e-12)


def as_dinov2(vit) -> Dinov2Model:
    """Return transformers' DINOv2 with the weights of timm's."""
    config = Dinov2Config(**DINOV2)
    model, source = Dinov2Model(config).eval(), vit.state_dict()
    names = {
        "embeddings.cls_token": "cls_token",
        "embeddings.position_embeddings": "pos_embed",
        "embeddings.patch_embeddings.projection": "patch_embed.proj",
        "encoder.layer": "blocks",
        "attention.o_proj": "attn.proj",
        "layer_scale1.lambda1": "ls1.gamma",
        "layer_scale2.lambda1": "ls2.gamma",
        "layernorm": "norm",
    }
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            for theirs, ours in names.items():
                name = name.replace(theirs, ours)
            for i, p in enumerate("qkv"):
                if f"attention.{p}_proj" in name:
                    fused = source[name.replace(f"attention.{p}_proj", "attn.qkv")]
                    tensor.copy_(fused.chunk(3)[i])
            if name in source:
                tensor.copy_(source[name])
    return model


@pytest.mark.parametrize(
    "method",
    [
        *METHODS.values(),
        *(m(rank=4, targets=t) for m in (DoRA, LoRA, VeRA, PVeRA) for t in ("k", "qkv")),
        DoRA(rank=4, norm="output", transpose=False),
        AdaptFormer(ratio=4, inside_layer_scale=True),
    ],
    ids=str,
)
def test_separate_projections_are_the_fused_ones(method):
    """Equal weights give equal outputs, KL terms, gradients and merged outputs."""
    images = make_images().double()
    vit = make_vit().double()
    models = [pvera.adapt(x, method, CLASSES).double().eval() for x in (as_dinov2(vit).double(), vit)]
    results = []
    for model in models:
        logits = perturb(model)(images)
        kl = model.kl_divergence()
        (logits.square().sum() + kl).backward()
        gradients = [p.grad for p in model.members[0].trained().values()]
        results.append([logits, kl, gradients])
        if method.key not in ("bottleneck", "adaptformer"):
            results[-1].append(model.merge_()(images))
    torch.testing.assert_close(*results, rtol=1e-8, atol=1e-8)
    assert all(g.abs().max() > 1e-6 for g in results[0][2])


# ---------------------------------------------------------------- padding


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("name", ENCODERS)
def test_more_padding_changes_neither_output_nor_kl(name, sampled):
    model = adapted(name)
    results = []
    for padding in (0, 7):
        with model.sampling(seed=1, enabled=sampled):
            results.append((model(make_text(padding=padding)), model.kl_divergence()))
    close(*results)
    if sampled:
        assert (results[0][0] - model(make_text())).abs().max() > 1e-3


@pytest.mark.parametrize("name", ENCODERS)
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


@pytest.mark.parametrize("kl", ["sum", "mean"])
@pytest.mark.parametrize("name", ["bert", "deberta-v3"])
def test_kl_is_the_divergence_at_the_tokens(name, kl):
    """Padding and DeBERTa's position embeddings do not count."""
    method = PVeRA(rank=8, kl=kl)
    model, text = adapted(name, method), make_text(padding=2)
    inputs = []  # of each layer's value projection
    for layer in model.backbone.encoder.layer:
        value = getattr(layer.attention.self, "value" if name == "bert" else "value_proj")
        value.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(text)
    expected = 0
    for adapter, x in zip(model.members[0].layers, inputs):
        for i, length in enumerate(text["attention_mask"].sum(1)):
            mu, log_var = adapter.distribution(x[i : i + 1, :length], [0, 1])
            divergence = kl_divergence(Normal(mu, (log_var / 2).exp()), Normal(0.0, 1.0))  # (1, t, p, r)
            own = 0.5 * divergence.sum((2, 3)).mean() if kl == "sum" else divergence.mean()
            expected = expected + own / 3
    assert expected > 0.05
    close(model.kl_divergence(), expected)


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
        pvera.adapt(make_encoder("bert"), PVeRA(rank=2), CLASSES, pool="mean")(text | {"attention_mask": mask})


def test_training_step_does_not_depend_on_padding():
    gradients = []
    for padding in (0, 6):
        model = adapted("deberta-v3").train()
        loss = F.cross_entropy(model(make_text(padding=padding)), torch.tensor([0, 1, 2]))
        (loss + 0.1 * model.kl_divergence()).backward()
        gradients.append({n: p.grad for n, p in model.members[0].trained().items()})
    close(*gradients)
    assert all(g.abs().max() > 1e-5 for g in gradients[0].values())


def test_padding_draws_no_noise():
    model, text = adapted(), make_text(padding=3)
    adapter = model.members[0].layers[0]
    adapter.tokens, adapter.sampling = text["attention_mask"].bool(), True
    noise = adapter.noise(torch.empty(*text["input_ids"].shape, 2, 8), adapter.settings("qkv", torch.device("cpu")))
    assert not noise[~adapter.tokens].any()
    drawn = noise[adapter.tokens]
    assert len(drawn.unique()) == drawn.numel() == 17 * 2 * 8


# ---------------------------------------------------------------- the adapted model


@pytest.mark.parametrize("key", [key for key in TEXT_METHODS if key != "bottleneck"])
@pytest.mark.parametrize("name", ENCODERS)
def test_merged_equals_unmerged(name, key):
    model, text = adapted(name, METHODS[key]), make_text(padding=1)
    encoder = model.backbone
    weights, unmerged = copy.deepcopy(encoder.state_dict()), model(text)
    features = model.features(text)[0]
    close(model.merge_()(text), unmerged)
    close(encoder(**text).last_hidden_state[:, 0], features)
    assert torch.equal(model.unmerge_()(text), unmerged)
    assert model.unload() is encoder
    assert all(torch.equal(t, weights[n]) for n, t in encoder.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in encoder.modules())


@pytest.mark.parametrize("key", TEXT_METHODS)
@pytest.mark.parametrize("name", ["bert", "deberta-v3"])
def test_grid_is_its_members_side_by_side(name, key):
    text, grid = make_text(), [METHODS[key]] * 3
    model = perturb(pvera.adapt(make_encoder(name), grid, CLASSES, seed=[0, 1, 2])).eval()
    logits, kl = model(text), model.kl_divergence()
    assert logits.shape == (3, 3, CLASSES) and model.active == [0, 1, 2]
    for m in range(3):
        single = pvera.adapt(make_encoder(name), METHODS[key], CLASSES, seed=m).eval()
        single.members[0].load_state_dict(model.members[m].state_dict())
        close((logits[m], kl[m]), (single(text), single.kl_divergence()))
    assert (logits[0] - logits[1]).abs().max() > 1e-3


@pytest.mark.parametrize("name", ["bert", "deberta-v3"])
def test_draws(name):
    model, text = adapted(name), make_text()
    probabilities = pvera.sample(model, text, k=4, seed=2)
    assert probabilities.shape == (4, 3, CLASSES)
    close(probabilities.sum(-1), torch.ones(4, 3))
    assert torch.equal(probabilities, pvera.sample(model, text, k=4, seed=2))
    assert len(probabilities[:, 0, 0].unique()) == 4
    close(pvera.sample(model, make_text(padding=5), k=4, seed=2), probabilities)
    # `sample` merges the mean into the weights, which DeBERTa's position embeddings pass as well.
    with model.sampling(2), torch.no_grad():
        close(torch.stack([model(text).softmax(-1) for _ in range(4)]), probabilities)


@pytest.mark.parametrize("key", TEXT_METHODS)
def test_round_trip(tmp_path, key):
    model, text = adapted("deberta-v3", METHODS[key], seed=3), make_text()
    pvera.save(model, tmp_path / "adapter.safetensors")
    loaded = pvera.load(make_encoder("deberta-v3", seed=3), tmp_path / "adapter.safetensors").eval()
    assert torch.equal(loaded(text), model(text))
    with pytest.raises(InputError, match="another backbone"):
        pvera.load(make_encoder("deberta-v3", seed=4), tmp_path / "adapter.safetensors")


def test_mean_pooling_leaves_padding_out(tmp_path):
    """Features are the mean of the tokens' hidden states; a text's own do not depend on the padding of its batch."""
    text, plain = make_text(), make_encoder("bert")
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
        pvera.adapt(make_encoder("bert"), PVeRA(rank=8), CLASSES, pool="max")
    with pytest.raises(InputError, match="is for text; of images, the backbone pools"):
        pvera.adapt(make_vit(), PVeRA(rank=8), CLASSES, pool="mean")
