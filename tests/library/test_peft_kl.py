"""The KL term of PEFT's PVeRA layers: the closed form, and training with it."""

import copy

import peft
import pytest
import torch
from exchange import FUSED, RANK, SEPARATE, configurations, peft_made
from torch.distributions import Normal, kl_divergence
from torch.utils.checkpoint import checkpoint

import pvera
from pvera import InputError


def tracked(targets=FUSED, library="timm", **options):
    model = peft_made(peft.PveraConfig(r=RANK, target_modules=targets, **options), library)
    pvera.track_kl(model)
    return model


def pvera_layers(model):
    return [module for module in model.modules() if type(module).__name__ == "Linear" and hasattr(module, "pvera_A")]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("targets, library", [(FUSED, "timm"), (SEPARATE, "transformers")])
def test_it_is_the_divergence_of_torch_distributions(images, targets, library, training):
    model, inputs = tracked(targets, library).train(training), []
    layers = pvera_layers(model)
    for layer in layers:
        layer.register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(images)
    expected = 0
    for layer, x in zip(layers, inputs):
        projected = x @ layer.pvera_A["default"].T * layer.pvera_lambda_d["default"]
        mu, log_var = projected.chunk(2, -1)
        expected = expected + kl_divergence(Normal(mu, (log_var / 2).exp()), Normal(0.0, 1.0)).sum(-1).mean() / 2
    assert expected > 0.1
    torch.testing.assert_close(pvera.kl_divergence(model), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("training", [True, False])
def test_gradient_checkpointing(images, training):
    gradients = []
    for repeated in (False, True):
        model = tracked().train(training)
        torch.manual_seed(1)
        outputs = checkpoint(model, images, use_reentrant=False) if repeated else model(images)
        (outputs.square().mean() + pvera.kl_divergence(model)).backward()
        gradients.append([p.grad for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(*gradients, rtol=1e-5, atol=1e-6)
    model = tracked().train()
    outputs = checkpoint(model, images.requires_grad_(), use_reentrant=True)
    with pytest.raises(RuntimeError, match="use_reentrant=False"):
        (outputs.square().mean() + pvera.kl_divergence(model)).backward()


def test_a_copy_has_had_no_pass(images):
    model = tracked()
    model(images)
    kl = pvera.kl_divergence(model)
    twin = copy.deepcopy(model)
    with pytest.raises(RuntimeError, match="run a forward pass"):
        pvera.kl_divergence(twin)
    twin(2 * images)
    assert pvera.kl_divergence(twin) != kl and pvera.kl_divergence(model) == kl


def test_dropout_and_draws_stay_peft_s(images):
    """Watching changes no output, and the KL term sees the input that dropout left."""
    outputs = []
    for watched in (False, True):
        config = peft.PveraConfig(r=RANK, target_modules=FUSED, pvera_dropout=0.5)
        model = peft_made(config).train()
        if watched:
            pvera.track_kl(model)
            pvera.track_kl(model)
        torch.manual_seed(2)
        outputs.append(model(images))
    assert torch.equal(*outputs)
    kl = pvera.kl_divergence(model)
    torch.manual_seed(3)
    model(images)
    assert pvera.kl_divergence(model) != kl


def test_refused(images):
    with pytest.raises(InputError, match="no PVeRA layer of PEFT"):
        pvera.track_kl(peft_made(configurations(FUSED)["lora"]))
    model = peft_made(configurations(FUSED)["pvera"])
    model(images)
    with pytest.raises(RuntimeError, match="call track_kl"):
        pvera.kl_divergence(model)
    pvera.track_kl(model)
    model(images)
    pvera.kl_divergence(model)
    with torch.no_grad():
        model(images)
    with pytest.raises(RuntimeError, match="no_grad"):
        pvera.kl_divergence(model.train())
    pvera.kl_divergence(model.eval())
    with model.disable_adapter(), pytest.raises(RuntimeError, match="merged or disabled"):
        pvera.kl_divergence(model)
    model.merge_adapter()
    with pytest.raises(RuntimeError, match="merged or disabled"):
        pvera.kl_divergence(model)
