"""Monte Carlo inference with PVeRA: the mean, draws, seeds, and the limits of the variance."""

import pytest
import torch
from tiny import METHODS, adapted, make_vit, perturb

import pvera
from pvera import InputError, PVeRA

# ---------------------------------------------------------------- mean, sampled, k draws


def test_train_samples_and_eval_takes_the_mean(images):
    model = adapted()
    assert not torch.equal(model(images), model(images))
    model.eval()
    mean = model(images)
    assert torch.equal(mean, model(images))
    with model.sampling(seed=0):
        drawn = model(images)
        assert not torch.equal(model(images), drawn)
    assert not torch.allclose(drawn, mean, atol=1e-3)
    model.train()
    with model.sampling(enabled=False):
        assert torch.equal(model(images), mean)
    assert not torch.equal(model(images), mean)


@pytest.mark.parametrize("training", [True, False])
def test_sample(images, training):
    model = adapted()
    model.train(training)
    probabilities = pvera.sample(model, images, k=4, seed=7)
    assert probabilities.shape == (4, 3, 5) and not probabilities.requires_grad
    torch.testing.assert_close(probabilities.sum(-1), torch.ones(4, 3))
    assert model.training is training and not model.backbone.training
    assert len({draw.numpy().tobytes() for draw in probabilities}) == 4
    assert torch.equal(probabilities, pvera.sample(model, images, k=4, seed=7))
    assert torch.equal(probabilities[:2], pvera.sample(model, images, k=2, seed=7))
    assert not torch.equal(probabilities, pvera.sample(model, images, k=4, seed=8))
    # Sampling is k passes of Eq. 6 through the softmax.
    with model.sampling(seed=7), torch.no_grad():
        passes = torch.stack([model(images).softmax(-1) for _ in range(4)])
    torch.testing.assert_close(probabilities, passes, rtol=0, atol=1e-5)


def test_sample_depends_on_the_models_seed(images):
    first, second = adapted(), adapted()
    second.members[0].seed = 1
    assert not torch.equal(pvera.sample(first, images, k=1), pvera.sample(second, images, k=1))


def test_sample_leaves_the_training_noise_alone(images):
    untouched, sampled = adapted(), adapted()
    for _ in range(3):
        assert torch.equal(untouched(images), sampled(images))
        pvera.sample(sampled, images, k=2, seed=7)


def test_noise_and_weights_are_restored_after_an_error(images):
    untouched, failed = adapted(), adapted()
    with pytest.raises(RuntimeError):
        pvera.sample(failed, images[:, :1], k=2)
    for before, after in zip(untouched.backbone.parameters(), failed.backbone.parameters()):
        assert torch.equal(before, after)
    assert torch.equal(untouched(images), failed(images))
    failed(images)
    assert failed.kl_divergence() > 0


def test_sample_of_a_grid(images):
    methods, seeds = [PVeRA(rank=4), PVeRA(rank=8), PVeRA(rank=16)], [0, 1, 1]
    grid = pvera.adapt(make_vit(), methods, num_classes=5, seed=seeds)
    alone = [pvera.adapt(make_vit(), m, num_classes=5, seed=s) for m, s in zip(methods, seeds)]
    for i, model in enumerate(alone):
        perturb(model, seed=i)
        perturb(grid.members[i], seed=i)
    probabilities = pvera.sample(grid, images, k=2)
    assert probabilities.shape == (2, 3, 3, 5)
    for i, model in enumerate(alone):
        torch.testing.assert_close(probabilities[:, i], pvera.sample(model, images, k=2), rtol=0, atol=1e-5)
    grid.active = [2, 1]
    torch.testing.assert_close(pvera.sample(grid, images, k=2), probabilities[:, [2, 1]], rtol=0, atol=1e-5)


@pytest.mark.parametrize("key", [k for k in METHODS if k != "pvera"])
def test_only_pvera_can_be_sampled(vit, images, key):
    model = pvera.adapt(vit, METHODS[key], num_classes=5)
    with pytest.raises(InputError, match="has no distribution to sample from"):
        pvera.sample(model, images, k=2)


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
    assert pvera.sample(model, images, k=2).shape == (2, 3, 5)
    assert model.train()(images).requires_grad


# ---------------------------------------------------------------- limits


def test_variance_at_the_limits():
    """exp of a log-variance overflows fp32 above 88. Below, everything is finite; above, the KL term is infinite."""
    adapter = adapted().members[0].layers[0]
    x, y = torch.ones(1, 1, 24), torch.zeros(1, 1, 3, 24)
    column_sums = adapter.shared.A[:, 1].sum(0)
    for log_var, finite in ((80.0, True), (89.0, False)):
        with torch.no_grad():
            adapter.d[1] = log_var / column_sums
        adapter.zero_grad()
        out, kl = adapter.project(x, y.clone(), "qkv"), adapter.kl_divergence()
        assert torch.isfinite(out).all() and out.abs().max() > 1e10
        assert bool(torch.isfinite(kl)) is finite
        kl.backward()
        assert bool(torch.isfinite(adapter.d.grad).all()) is finite


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_seed_on_cuda(images):
    model = adapted().cuda()
    images = images.cuda()
    first = pvera.sample(model, images, k=3, seed=1)
    assert first.device.type == "cuda" and len({d.cpu().numpy().tobytes() for d in first}) == 3
    assert torch.equal(first, pvera.sample(model, images, k=3, seed=1))
    assert not torch.equal(first, pvera.sample(model, images, k=3, seed=2))
    torch.testing.assert_close(model.eval()(images).cpu(), model.cpu()(images.cpu()), rtol=0, atol=1e-4)
