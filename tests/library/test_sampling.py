"""Monte Carlo inference: the mean, samples, seeds; dropout in LoRA and VeRA."""

from dataclasses import replace

import pytest
import torch
from families import make, make_inputs
from tiny import CLASSES, adapted, make_vit, perturb

import pvera
from pvera import LoRA, PVeRA, VeRA
from pvera.adapters.stochastic import STATE_SIZE, _restore_state

INPUT = [LoRA(rank=3, dropout=0.25), VeRA(rank=8, dropout=0.25)]
LATENT = VeRA(rank=8, dropout=0.25, dropout_on="latent")
DROPPED = [*INPUT, LATENT]
VIT = "vit_base_patch14_dinov2"
SAMPLED = [(VIT, method) for method in (PVeRA(rank=8), PVeRA(rank=8, sigma=2.0), *DROPPED)]
SAMPLED += [(text, PVeRA(rank=8)) for text in ("BertModel", "DebertaV2Model(share_att_key=True)")]


def test_without_noise_training_takes_the_mean(images):
    model = adapted(PVeRA(rank=8, noise=False))
    mean = model.eval()(images)
    torch.testing.assert_close(model.train()(images), mean)
    with model.sampling(seed=0):
        assert not torch.allclose(model(images), mean), "sampling is still possible"


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("encoder, method", SAMPLED, ids=str)
def test_sample(encoder, method, training):
    model = perturb(pvera.adapt(make(encoder), method, CLASSES)).train(training)
    inputs = make_inputs(model.backbone)
    probabilities = pvera.sample(model, inputs, k=4, seed=7)
    assert probabilities.shape == (4, 3, CLASSES) and not probabilities.requires_grad
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(4, 3))
    assert model.training is training and not model.backbone.training
    assert len({sample.numpy().tobytes() for sample in probabilities}) == 4
    assert torch.equal(probabilities[:2], pvera.sample(model, inputs, k=2, seed=7))
    assert not torch.equal(probabilities, pvera.sample(model, inputs, k=4, seed=8))
    # Sampling is k passes of Eq. 6 through the softmax.
    with model.sampling(seed=7), torch.no_grad():
        passes = torch.stack([model(inputs).softmax(-1) for _ in range(4)])
    torch.testing.assert_close(probabilities, passes, rtol=0, atol=1e-5)


def test_sample_depends_on_the_models_seed(images):
    first, second = adapted(), adapted()
    second.members[0].seed = 1
    assert not torch.equal(pvera.sample(first, images, k=1), pvera.sample(second, images, k=1))


def test_sample_leaves_the_training_noise_alone(images):
    """Also after an error."""
    untouched, sampled = adapted(), adapted()
    for _ in range(2):
        pvera.sample(sampled, images, k=2, seed=7)
        assert torch.equal(untouched(images), sampled(images))
        with pytest.raises(RuntimeError, match="to have 3 channels"):
            pvera.sample(sampled, images[:, :1], k=2)
    assert sampled.kl_divergence() > 0


def test_sample_of_a_grid(images):
    methods, seeds = [PVeRA(rank=4), PVeRA(rank=8), PVeRA(rank=16)], [0, 1, 1]
    grid = adapted(methods, seeds)
    probabilities = pvera.sample(grid, images, k=2)
    assert probabilities.shape == (2, 3, 3, CLASSES) and not torch.equal(*probabilities)
    for i, (method, seed) in enumerate(zip(methods, seeds)):
        alone = pvera.adapt(make_vit(), method, CLASSES, seed)
        alone.members[0].load_state_dict(grid.members[i].state_dict())
        torch.testing.assert_close(
            probabilities[:, i], pvera.sample(alone, images, k=2), rtol=0, atol=1e-5
        )
    grid.active = [2, 1]
    torch.testing.assert_close(
        pvera.sample(grid, images, k=2), probabilities[:, [2, 1]], rtol=0, atol=1e-5
    )


def test_merged_model_has_neither_noise_nor_kl(images):
    model = adapted()
    model(images)
    model.merge_()
    with pytest.raises(RuntimeError, match="merged model .* cannot sample"):
        pvera.sample(model, images, k=2)
    with pytest.raises(RuntimeError, match="merged model has no KL term"):
        model.kl_divergence()
    with pytest.raises(RuntimeError, match="merged model cannot be trained"):
        model.train()
    assert model.merged and not model.training
    model.unmerge_()
    assert pvera.sample(model, images, k=2).shape == (2, 3, CLASSES)
    assert model.train()(images).requires_grad


# ---------------------------------------------------------------- dropout


@pytest.mark.parametrize("method", DROPPED, ids=["lora", "vera", "vera, latent"])
def test_the_adapter_reads_what_the_mask_leaves(method, monkeypatch):
    """Eq. 3 and 4 hold with x ⊙ m / (1 − p) instead of x, or z ⊙ m / (1 − p) instead of z = x A
    ⊙ d.
    """
    adapter = (
        perturb(pvera.adapt(make_vit(), method, CLASSES), scale=0.3).members[0].layers[0].train()
    )
    source = torch.Generator().manual_seed(1)
    x, y = torch.randn(5, 7, 24, generator=source), torch.zeros(5, 7, 3, 24)
    uniform = torch.rand(5, 7, *((2, 8) if method is LATENT else (24,)), generator=source)
    monkeypatch.setattr(adapter, "sample_noise", lambda _, like, settings: uniform)
    adapter.passes.begin()
    result, kept = adapter.project(x, y, "qkv"), (uniform >= 0.25) / 0.75
    if method is LATENT:
        for i, j in enumerate((0, 2)):
            z = (x @ adapter.shared.A[:, i] * adapter.d[i]) * kept[:, :, i]
            torch.testing.assert_close(
                result[:, :, j], method.alpha * (z @ adapter.shared.B[i]) * adapter.b[i]
            )
    else:
        torch.testing.assert_close(result, adapter.add(x * kept, y, "qkv"))


@pytest.mark.parametrize("method", DROPPED, ids=["lora", "vera", "vera, latent"])
def test_evaluation_drops_nothing(method, images):
    model = adapted(method)
    assert not torch.equal(model(images), model(images))
    assert torch.equal(model.eval()(images), adapted(replace(method, dropout=0.0)).eval()(images))
    assert model.kl_divergence() == 0


class ShortGenerator:
    """A generator with a state of 16 bytes, which takes any, as CUDA's may."""

    def get_state(self):
        return torch.zeros(16, dtype=torch.uint8)

    def set_state(self, state):
        self.state = state


def test_a_generator_takes_no_state_of_another_kind_of_device():
    short = ShortGenerator()
    assert not _restore_state(short, torch.Generator().get_state())
    saved = torch.ones(STATE_SIZE, dtype=torch.uint8)
    saved[16:] = 0
    assert _restore_state(short, saved) and len(short.state) == 16
    assert not _restore_state(torch.Generator(), saved)
