"""PVeRA's distribution: Eq. 5-9 on plain tensors, the KL term, the noise; the last layer's
latents and their maps.
"""

import math

import numpy as np
import pytest
import torch
from families import make, make_inputs
from scipy import stats
from tiny import adapted, make_images, make_vit, perturb
from torch.distributions import Normal, kl_divergence

import pvera
from pvera import PVeRA, latents
from pvera.adapters.stochastic import PassSettings


def transcribed(adapter, method, x, y, noise):
    """Compute Eq. 5-7 and 9 position by position, with σ from the log-variance.

    x (n, t, d), y (n, t, 3, d). Returns the new y and the KL term.
    """
    new, divergences = list(y.unbind(2)), []
    for i, position in enumerate(method.targets):
        pair = i if method.pair == "position" else 0
        mu = x @ adapter.shared.A[:, 0, pair] * adapter.d[0, i]
        if method.sigma is None:
            sigma = torch.exp(x @ adapter.shared.A[:, 1, pair] * adapter.d[1, i] / 2)
        else:
            sigma = torch.full_like(mu, method.sigma)
        z = noise[:, :, i] * sigma + mu
        j = "qkv".index(position)
        new[j] = new[j] + method.alpha * ((z @ adapter.shared.B[pair]) * adapter.b[i])
        divergences.append((mu**2 + sigma**2 - 1) / 2 - torch.log(sigma))
    if (
        method.kl == "sum"
    ):  # Eq. 9 with the divergence of an r-dimensional normal, averaged over tokens
        kl = sum(D.sum(-1).mean() for D in divergences) / 2
    else:  # as in the official code
        kl = sum(D.mean() for D in divergences) / len(divergences)
    return torch.stack(new, 2), kl


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("kl", ["sum", "mean"])
@pytest.mark.parametrize(
    "options", [{}, {"sigma": 1.0}, {"sigma": 3.0}, {"pair": "shared"}], ids=str
)
@pytest.mark.parametrize("targets", ["q", "k", "v", "qk", "qv", "kv", "qkv"])
def test_equations(targets, options, kl, dtype, tolerance):
    method = PVeRA(rank=8, alpha=3.0, targets=targets, kl=kl, **options)
    model = adapted(method).to(dtype)
    source = torch.Generator().manual_seed(1)
    x, y, noise = (
        0.3 * torch.randn(2, 5, *s, generator=source).to(dtype)
        for s in ((24,), (3, 24), (len(targets), 8))
    )
    for adapter in model.members[0].layers:
        adapter.sample_noise = lambda _, like, settings: noise.to(like)
        for training in (True, False):
            adapter.train(training)
            expected, expected_kl = transcribed(
                adapter, method, x, y, noise if training else 0 * noise
            )
            torch.testing.assert_close(
                adapter.project(x, y.clone(), "qkv"), expected, rtol=0, atol=tolerance
            )
            torch.testing.assert_close(
                adapter.kl_divergence(), expected_kl, rtol=tolerance, atol=tolerance
            )


# ---------------------------------------------------------------- the KL term


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kl", ["sum", "mean"])
@pytest.mark.parametrize("targets", ["qv", "k", "qkv"])
@pytest.mark.parametrize(
    "encoder", ["vit_base_patch14_dinov2", "BertModel", "DebertaV2Model(share_att_key=True)"]
)
def test_kl_is_the_divergence_of_torch_distributions(encoder, targets, kl, training):
    """It is Eq. 9 of the last pass, summed over layers (Eq.

    8); padding and DeBERTa's positions do not count.
    """
    model = perturb(pvera.adapt(make(encoder), PVeRA(rank=8, targets=targets, kl=kl), 3)).train(
        training
    )
    given, inputs = make_inputs(model.backbone), []
    for layer in model.encoder_layers:
        layer.qkv_linears[-1][0].register_forward_pre_hook(lambda _, args: inputs.append(args[0]))
    model(given)
    expected = 0
    for adapter, x in zip(model.members[0].layers, inputs):
        lengths = (
            [x.shape[1]] * len(x)
            if isinstance(given, torch.Tensor)
            else given["attention_mask"].sum(1)
        )
        for tokens, length in zip(x, lengths):
            mu, log_sigma = adapter.distribution(tokens[None, :length], list(range(len(targets))))
            divergence = kl_divergence(
                Normal(mu, log_sigma.exp()), Normal(0.0, 1.0)
            )  # (1, t, p, r)
            mean = 0.5 * divergence.sum((2, 3)).mean() if kl == "sum" else divergence.mean()
            expected = expected + mean / len(x)
    assert expected > 0.02
    torch.testing.assert_close(model.kl_divergence(), expected, rtol=1e-5, atol=0)


def test_kl_is_that_of_the_last_pass(images):
    model = adapted(seed=1)
    with pytest.raises(RuntimeError, match="run a forward pass first"):
        model.kl_divergence()
    logits = model.eval()(images)
    kl = model.kl_divergence()
    model(2 * images)
    assert model.kl_divergence() != kl
    with model.without_kl():
        torch.testing.assert_close(model(images), logits, rtol=0, atol=1e-6)
        pvera.sample(model, images, k=1)  # uses the same context inside
    with pytest.raises(RuntimeError, match="without_kl"):
        model.kl_divergence()
    model(images)
    assert model.kl_divergence() == kl


def test_variance_at_the_limits():
    """exp of a log-variance overflows fp32 above 88.

    Below, everything is finite; above, the KL term is infinite.
    """
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


# ---------------------------------------------------------------- the noise


def noise_of(seed):
    """Return a function that gives ε of each layer, (layers, n, t, p, d), for n images of t tokens.

    With A = 0, B = I and b = 1 every adapter adds α ε to zeros.
    """
    member = pvera.adapt(
        make_vit(depth=3), PVeRA(rank=24, alpha=1.0), num_classes=5, seed=seed
    ).members[0]
    member.shared.A.zero_()
    member.shared.B.copy_(torch.eye(24).expand(2, 24, 24))
    for adapter in member.layers:
        torch.nn.init.ones_(adapter.b)

    @torch.no_grad()
    def sample(n=4, t=5):
        x, y = torch.randn(n, t, 24), torch.zeros(n, t, 2, 24)
        return torch.stack([adapter.project(x, y.clone(), "qv") for adapter in member.layers])

    return sample


def test_noise_is_standard_normal_and_uncorrelated():
    """Over layers, samples, seeds, images, tokens, targets and latent dimensions."""
    one_seed, other_seed, same_seed = noise_of(0), noise_of(1), noise_of(0)
    noise = torch.stack(
        [one_seed(), one_seed(), other_seed(), other_seed()]
    )  # (4, layers, n, t, p, r)
    assert torch.equal(torch.stack([same_seed(), same_seed()]), noise[:2])
    assert stats.kstest(noise.flatten(), stats.norm.cdf).pvalue > 1e-4
    for axes in ((0, 1), (2,), (3,), (4,), (5,), (0, 1, 2), (0, 1, 4)):
        rows = noise.movedim(axes, tuple(range(len(axes)))).flatten(0, len(axes) - 1).flatten(1)
        n, pairs = rows.shape[1], math.comb(len(rows), 2)
        correlation = torch.corrcoef(rows) - torch.eye(len(rows))
        # √n ρ is nearly standard normal for independent rows; the bound fails once in a million
        # over all pairs.
        assert correlation.abs().max() < stats.norm.isf(0.5e-6 / pairs) / n**0.5, axes


@pytest.mark.parametrize(
    "start, seeds",
    [
        # Of "3/noise/0" and "3/noise/1", the first 8 bytes that sha256sum prints, from last to
        # first, halved.
        (lambda member: None, (5151373772390472493, 284546072201018067)),
        # Of "7/sample/3/0" and "7/sample/3/1".
        (
            lambda member: member.seed_noise(7, on_all_ranks=True),
            (3616317664316104457, 8561410219770384731),
        ),
    ],
    ids=["training", "sampling"],
)
def test_the_noise_of_a_layer_follows_from_its_index(start, seeds):
    member = adapted(seed=3).members[0]
    start(member)
    like = torch.empty(2, 5, 2, 8)
    for adapter, seed in zip(member.layers, seeds, strict=True):
        noise = adapter.sample_noise(torch.randn, like, PassSettings(True, True, None, None))
        assert torch.equal(
            noise, torch.randn(like.shape, generator=torch.Generator().manual_seed(seed))
        )


# ---------------------------------------------------------------- the last layer's latents


def trained(method, vit=None):
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
    [
        pvera.VeRA(rank=8),
        pvera.VeRA(rank=8, dropout=0.5),
        pvera.PVeRA(rank=8),
        pvera.PVeRA(rank=8, targets="qkv"),
    ],
    ids=str,
)
def test_mu_and_sigma_from_the_weights(method):
    model, images = trained(method), make_images()
    mu, sigma = latents.last_layer(model, images, "qv")
    member = model.members[0]
    A, d = member.shared.A, member.layers[-1].d
    with torch.no_grad():
        x = last_input(model, images)
        for i, position in enumerate("qv"):
            p = method.targets.index(position)
            if method.key == "vera":
                torch.testing.assert_close(mu[:, :, i], x @ A[:, p] * d[p])
                assert sigma is None
            else:
                torch.testing.assert_close(mu[:, :, i], x @ A[:, 0, p] * d[0, p])
                torch.testing.assert_close(sigma[:, :, i], torch.exp(x @ A[:, 1, p] * d[1, p] / 2))


def test_adaptation_by_hand():
    model, images = trained(pvera.PVeRA(rank=8)), make_images()
    mu, _ = latents.last_layer(model, images, "qv")
    adaptation = latents.adaptation(model, images)
    for i, image in enumerate(mu.double().numpy()):  # tokens, 2, r
        values = image[:, 0] + image[:, 1]
        assert adaptation["mean"][i].item() == pytest.approx(values.mean(), abs=1e-6)
        assert adaptation["norm"][i].item() == pytest.approx(
            np.mean([np.sqrt((v**2).sum()) for v in values]), rel=1e-5
        )


@pytest.mark.parametrize("method", [pvera.PVeRA(rank=8), pvera.VeRA(rank=8)], ids=str)
def test_maps_without_samples(method):
    maps = latents.maps(trained(method), make_images(), samples=0)
    assert maps.mu.shape == (3, 4, 4) and maps.samples.shape == (0, 3, 4, 4)


def test_a_pass_leaves_the_model_as_it_was():
    model, images = trained(pvera.PVeRA(rank=8)), make_images()
    before = model(images)
    latents.maps(model, images, 2)
    assert torch.equal(model(images), before)
    assert not model.encoder_layers[-1].qkv_linears[0][0]._forward_pre_hooks


@pytest.mark.parametrize("registers", [0, 3])
def test_maps_are_the_first_principal_component(registers):
    vit = make_vit(reg_tokens=registers) if registers else make_vit()
    model, images = trained(pvera.PVeRA(rank=8), vit), make_images(4)
    maps = latents.maps(model, images, samples=3, seed=5)
    assert maps.mu.shape == (4, 4, 4) and maps.samples.shape == (3, 4, 4, 4)
    mu, sigma = (
        part[:, 1 + registers :, 0].double().numpy()
        for part in latents.last_layer(model, images, "q")
    )
    flat = mu.reshape(-1, 8)
    _, values, axes = np.linalg.svd(flat - flat.mean(0))
    by_hand = ((flat - flat.mean(0)) @ axes[0]).reshape(4, 4, 4)
    sign = np.sign((by_hand * maps.mu).sum())
    np.testing.assert_allclose(maps.mu, sign * by_hand, atol=1e-5)
    assert maps.explained == pytest.approx(values[0] ** 2 / (values**2).sum(), rel=1e-5)
    assert np.corrcoef(maps.mu.ravel(), np.linalg.norm(flat, axis=1))[0, 1] >= 0
    # A sample differs from the mean by noise of variance Σ_i (σ_i a_i)², so this has variance one.
    scale = np.sqrt(((sigma * axes[0]) ** 2).sum(-1)).reshape(4, 4, 4)
    many = latents.maps(model, images, samples=400, seed=5).samples
    assert ((many - maps.mu) / scale).std() == pytest.approx(1, abs=0.03)
    assert abs(((many - maps.mu) / scale).mean()) < 0.03
