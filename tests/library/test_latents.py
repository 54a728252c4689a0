"""The last layer's latents against the weights, and their maps against a principal component by hand."""

import numpy as np
import pytest
import torch
from tiny import make_images, make_vit, perturb

import pvera
from pvera import latents


def adapted(method, vit=None):
    return perturb(pvera.adapt(vit or make_vit(), method, 5), scale=0.3).eval()


def last_input(model, images):
    """Return the input of the last layer's projections, layer by layer."""
    vit = model.backbone
    x = vit.norm_pre(vit.patch_drop(vit._pos_embed(vit.patch_embed(images))))
    for block in vit.blocks[:-1]:
        x = block(x)
    return vit.blocks[-1].norm1(x)


@pytest.mark.parametrize(
    "method",
    [pvera.VeRA(rank=8), pvera.VeRA(rank=8, dropout=0.5), pvera.PVeRA(rank=8), pvera.PVeRA(rank=8, targets="qkv")],
    ids=str,
)
@pytest.mark.parametrize("training", [False, True])
def test_mu_and_sigma_from_the_weights(method, training):
    model, images = adapted(method).train(training), make_images()
    mu, sigma = latents.last_layer(model, images, "qv")
    member = model.members[0]
    A, d = member.shared.A, member.layers[-1].d
    with torch.no_grad(), model.sampling(enabled=False) if member.is_stochastic else torch.no_grad():
        x = last_input(model, images)
        for i, position in enumerate("qv"):
            p = method.targets.index(position)
            if method.key == "vera":
                torch.testing.assert_close(mu[:, :, i], x @ A[:, p] * d[p])
                assert sigma is None
            else:
                torch.testing.assert_close(mu[:, :, i], x @ A[:, 0, p] * d[0, p])
                torch.testing.assert_close(sigma[:, :, i], torch.exp(x @ A[:, 1, p] * d[1, p] / 2))
    assert model.training == training


def test_adaptation_by_hand():
    model, images = adapted(pvera.PVeRA(rank=8)), make_images()
    mu, _ = latents.last_layer(model, images, "qv")
    adaptation = latents.adaptation(model, images)
    for i, image in enumerate(mu.double().numpy()):  # tokens, 2, r
        values = image[:, 0] + image[:, 1]
        assert adaptation["mean"][i].item() == pytest.approx(values.mean(), abs=1e-6)
        assert adaptation["norm"][i].item() == pytest.approx(np.mean([np.sqrt((v**2).sum()) for v in values]), rel=1e-5)


def test_a_pass_leaves_the_model_as_it_was():
    model, images = adapted(pvera.PVeRA(rank=8)), make_images()
    before = model(images)
    latents.maps(model, images, 2)
    assert torch.equal(model(images), before)
    assert not model._layers[-1].projections[0][0]._forward_pre_hooks


@pytest.mark.parametrize("registers", [0, 3])
def test_maps_are_the_first_principal_component(registers):
    vit = make_vit(reg_tokens=registers) if registers else make_vit()
    model, images = adapted(pvera.PVeRA(rank=8), vit), make_images(4)
    maps = latents.maps(model, images, draws=3, seed=5)
    assert maps.mu.shape == (4, 4, 4) and maps.draws.shape == (3, 4, 4, 4)
    mu, sigma = (part[:, 1 + registers :, 0].double().numpy() for part in latents.last_layer(model, images, "q"))
    flat = mu.reshape(-1, 8)
    _, values, axes = np.linalg.svd(flat - flat.mean(0))
    by_hand = ((flat - flat.mean(0)) @ axes[0]).reshape(4, 4, 4)
    sign = np.sign((by_hand * maps.mu).sum())
    np.testing.assert_allclose(maps.mu, sign * by_hand, atol=1e-5)
    assert maps.explained == pytest.approx(values[0] ** 2 / (values**2).sum(), rel=1e-5)
    assert np.corrcoef(maps.mu.ravel(), np.linalg.norm(flat, axis=1))[0, 1] >= 0
    # A draw differs from the mean by noise of variance Σ_i (σ_i a_i)², so this has variance one.
    scale = np.sqrt(((sigma * axes[0]) ** 2).sum(-1)).reshape(4, 4, 4)
    many = latents.maps(model, images, draws=400, seed=5).draws
    assert ((many - maps.mu) / scale).std() == pytest.approx(1, abs=0.03)
    assert abs(((many - maps.mu) / scale).mean()) < 0.03


def test_vera_has_no_draws():
    maps = latents.maps(adapted(pvera.VeRA(rank=8)), make_images(), 3)
    assert maps.draws.shape == (0, 3, 4, 4) and np.ptp(maps.mu) > 0
