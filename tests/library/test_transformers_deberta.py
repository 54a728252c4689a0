"""DeBERTa-v3 against closed forms, and encoders that are refused."""

import pytest
import torch
from test_transformers import CLASSES, DEBERTA_V3, DINOV2, ENCODERS, SIZE, TEXT_METHODS, close, make_encoder, make_text
from tiny import METHODS
from torch import nn
from torch.nn import functional as F
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DebertaV2Config,
    DebertaV2Model,
    Dinov2Config,
    Dinov2Model,
    GPT2Config,
    GPT2Model,
    RobertaPreLayerNormConfig,
    RobertaPreLayerNormModel,
    SiglipVisionConfig,
    SiglipVisionModel,
)

import pvera
from pvera import IA3, AdaptFormer, Bottleneck, DoRA, InputError, Linear, LoRA, PVeRA, VeRA

# ---------------------------------------------------------------- DeBERTa-V3


def closed_forms(layers, d, h):
    """Return each method's number of trained values, for layers of width d with an MLP of width h."""
    return {
        Linear(): 0,
        Bottleneck(ratio=8): layers * 2 * (2 * d * (d // 8) + d // 8 + d),
        IA3(): layers * (2 * d + h),
        DoRA(rank=8): layers * 2 * (2 * d * 8 + d),
        LoRA(rank=8): layers * 2 * 2 * d * 8,
        VeRA(rank=16): layers * 2 * (d + 16),
        PVeRA(rank=16): layers * 2 * (d + 2 * 16),
    }


def everything(encoder, config, text, folder):
    """Adapt, train a step, merge and save with all seven methods."""
    numbers = closed_forms(config.num_hidden_layers, config.hidden_size, config.intermediate_size)
    assert [m.key for m in numbers] == list(TEXT_METHODS)
    for method, number in numbers.items():
        model = pvera.adapt(encoder, method, CLASSES)
        assert model.members[0].count() == {"adapter": number, "head": CLASSES * (config.hidden_size + 1)}
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
        before = {n: p.detach().clone() for n, p in model.members[0].trained().items()}
        loss = F.cross_entropy(model(text), torch.tensor([0, 1, 2])) + 1e-3 * model.kl_divergence()
        loss.backward()
        optimizer.step()
        moved = [not torch.equal(p, before[n]) for n, p in model.members[0].trained().items()]
        assert sum(moved) >= len(moved) / 2  # tensors that multiply zeros do not move in the first step
        expected = model.eval()(text)
        if method.key != "bottleneck":
            close(model.merge_()(text), expected)
            model.unmerge_()
        pvera.save(model, folder / "adapter.safetensors")
        loaded = pvera.load(model.unload(), folder / "adapter.safetensors").eval()
        assert torch.equal(loaded(text), expected)
        loaded.unload()


def test_deberta_v3_architecture_in_small(tmp_path):
    config = DebertaV2Config(**SIZE, **DEBERTA_V3)
    everything(make_encoder("deberta-v3"), config, make_text(), tmp_path)


@pytest.mark.slow
def test_deberta_v3_base(tmp_path):
    base = dict(
        vocab_size=128100,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        max_relative_positions=-1,
        position_buckets=256,
    )
    config = DebertaV2Config(**DEBERTA_V3 | base)
    encoder = DebertaV2Model(config).eval()
    assert sum(p.numel() for p in encoder.parameters()) == 183_831_552  # of microsoft/deberta-v3-base
    everything(encoder, config, make_text((20, 31, 12)), tmp_path)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", ENCODERS)
def test_adaptformer_is_for_pre_norm_layers(name):
    encoder = make_encoder(name)
    with pytest.raises(InputError, match="AdaptFormer needs a LayerNorm before the MLP"):
        pvera.adapt(encoder, AdaptFormer(ratio=4), CLASSES)
    assert not getattr(encoder, "_adapted", False)


@pytest.mark.parametrize(
    "encoder",
    [
        lambda: BertForSequenceClassification(BertConfig(**SIZE)),
        lambda: GPT2Model(GPT2Config(vocab_size=50, n_positions=8, n_embd=24, n_layer=1, n_head=2)),
        lambda: Dinov2Model(Dinov2Config(**DINOV2, use_swiglu_ffn=True)),
        lambda: nn.Linear(2, 2),
    ],
)
def test_other_models_are_refused(encoder):
    with pytest.raises(InputError, match="is neither a timm vision transformer .* nor a bare encoder of transformers"):
        pvera.adapt(encoder(), METHODS["lora"], CLASSES)


def test_siglip_without_its_pooling_is_refused():
    config = SiglipVisionConfig(**DINOV2, vision_use_head=False)
    with pytest.raises(InputError, match="pools nothing: create it with vision_use_head=True"):
        pvera.adapt(SiglipVisionModel(config), METHODS["lora"], CLASSES)


def test_encoders_that_only_look_alike_are_refused():
    """RoBERTa-PreLayerNorm has BERT's module names, but its norms are in other places."""
    config = RobertaPreLayerNormConfig(
        hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=48, vocab_size=50
    )
    with pytest.raises(InputError, match="neither a timm vision transformer"):
        pvera.adapt(RobertaPreLayerNormModel(config), pvera.PVeRA(rank=2), 3)
