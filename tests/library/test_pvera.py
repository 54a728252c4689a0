"""PVeRA's distribution: Eq. 5-9 on plain tensors, the KL term, the noise, Monte Carlo inference."""

import copy

import pytest
import torch
from scipy import stats
from tiny import METHODS, adapted, make_images, make_vit
from torch.distributions import Normal, kl_divergence

import pvera
from pvera import PVeRA

SUBSETS = ("q", "k", "v", "qk", "qv", "kv", "qkv")


def transcribed(adapter, method, x, y, noise):
    """Compute Eq. 5-7 and 9 position by position, with σ from the log-variance.

    x (n, t, d), y (n, t, 3, d). Returns the new y and the KL term.
    """
    new, divergences = list(y.unbind(2)), []
    for i, position in enumerate(method.targets):
        A = torch.cat([adapter.shared.A[:, 0, i], adapter.shared.A[:, 1, i]], 1)  # (d, 2r)
        d = torch.cat([adapter.d[0, i], adapter.d[1, i]])  # (2r)
        mu, log_var = ((x @ A) * d).chunk(2, -1)
        sigma = torch.exp(log_var / 2)
        z = noise[:, :, i] * sigma + mu
        j = "qkv".index(position)
        new[j] = new[j] + method.alpha * ((z @ adapter.shared.B[i]) * adapter.b[i])
        divergences.append((mu**2 + sigma**2 - 1) / 2 - torch.log(sigma))
    if method.kl == "sum":  # Eq. 9 with the divergence of an r-dimensional normal, averaged over tokens
        kl = sum(D.sum(-1).mean() for D in divergences) / 2
    else:  # as in the published program
        kl = sum(D.mean() for D in divergences) / len(divergences)
    return torch.stack(new, 2), kl


def layer_inputs(model, images):
    """Return the inputs of every layer's projections in a forward pass of `model`."""
    inputs = []
    hooks = [
        b.attn.qkv.register_forward_pre_hook(lambda _, args: inputs.append(args[0])) for b in model.backbone.blocks
    ]
    model(images)
    for hook in hooks:
        hook.remove()
    return inputs


# ---------------------------------------------------------------- equations


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-12), (torch.float32, 1e-6)])
@pytest.mark.parametrize("kl", ["sum", "mean"])
@pytest.mark.parametrize("targets", SUBSETS)
def test_equations(targets, kl, dtype, tolerance):
    method = PVeRA(rank=8, alpha=3.0, targets=targets, kl=kl)
    model = adapted(method).to(dtype)
    source = torch.Generator().manual_seed(1)
    x, y, noise = (0.3 * torch.randn(2, 5, *s, generator=source).to(dtype) for s in ((24,), (3, 24), (len(targets), 8)))
    for adapter in model.members[0].layers:
        adapter.noise = lambda like, now: noise.to(like)
        for training in (True, False):
            adapter.train(training)
            expected, expected_kl = transcribed(adapter, method, x, y, noise if training else 0 * noise)
            torch.testing.assert_close(adapter.project(x, y.clone(), "qkv"), expected, rtol=0, atol=tolerance)
            torch.testing.assert_close(adapter.kl_divergence(), expected_kl, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kl", ["sum", "mean"])
@pytest.mark.parametrize("targets", ["qv", "k", "qkv"])
def test_kl_is_the_divergence_of_torch_distributions(images, targets, kl, training):
    """The model's KL term is Eq. 9 of the last forward pass, summed over layers (Eq. 8)."""
    model = adapted(PVeRA(rank=8, targets=targets, kl=kl))
    model.train(training)
    expected = 0
    for adapter, x in zip(model.members[0].layers, layer_inputs(model, images)):
        mu, log_var = adapter.distribution(x, list(range(len(targets))))
        divergence = kl_divergence(Normal(mu, (log_var / 2).exp()), Normal(0.0, 1.0))  # (n, t, p, r)
        if kl == "sum":
            expected = expected + 0.5 * divergence.sum((2, 3)).mean()
        else:
            expected = expected + divergence.mean()
    assert expected > 0.1
    torch.testing.assert_close(model.kl_divergence(), expected, rtol=1e-5, atol=0)
    # It belongs to the last pass, not to an earlier one or to their sum.
    model(2 * images)
    model(images)
    if not training:
        torch.testing.assert_close(model.kl_divergence(), expected, rtol=1e-5, atol=0)


def test_kl_is_zero_for_the_prior_alone(vit, images):
    model = pvera.adapt(vit, PVeRA(rank=8), num_classes=5)
    for adapter in model.members[0].layers:
        torch.nn.init.zeros_(adapter.d)
    model(images)
    assert model.kl_divergence() == 0


@pytest.mark.parametrize("key", [k for k in METHODS if k != "pvera"])
def test_kl_is_zero_for_the_other_methods(vit, images, key):
    model = pvera.adapt(vit, METHODS[key], num_classes=5)
    model(images)
    kl = model.kl_divergence()
    assert kl.shape == () and kl == 0 and kl.dtype == torch.float32


def test_kl_needs_a_forward_pass(vit, images):
    model = pvera.adapt(vit, PVeRA(rank=8), num_classes=5)
    with pytest.raises(RuntimeError, match="run a forward pass first"):
        model.kl_divergence()
    model(images)
    assert torch.isfinite(model.kl_divergence())
    with model.without_kl():
        model(images)
    with pytest.raises(RuntimeError, match="without_kl"):
        model.kl_divergence()


def test_without_kl_changes_nothing_else(images):
    model = adapted()
    model.eval()
    mean = model(images)
    with model.sampling(seed=1):
        drawn = model(images)
    with model.without_kl():
        torch.testing.assert_close(model(images), mean, rtol=0, atol=1e-6)
        with model.sampling(seed=1):
            assert torch.equal(model(images), drawn)
        pvera.sample(model, images, k=1)  # uses the same context inside
        with pytest.raises(RuntimeError):
            model.kl_divergence()
        model(images)
        with pytest.raises(RuntimeError):
            model.kl_divergence()
    model(images)
    assert model.kl_divergence() > 0


def test_gradient_of_the_kl_term(images):
    model = adapted(depth=1).double()
    model(images.double())
    adapter = model.members[0].layers[0]
    d, b = torch.autograd.grad(model.kl_divergence(), [adapter.d, adapter.b], allow_unused=True)
    assert (d.abs() > 1e-6).all()  # the halves of mean and log-variance, for q and v
    assert b is None or not b.any()
    # Closed form: dKL/dd_mu = mean of mu a_mu over images and tokens, halved, where mu = a_mu d.
    x = layer_inputs(model, images.double())[0]
    a = torch.einsum("ntd,dhpr->nthpr", x, adapter.shared.A)
    torch.testing.assert_close(d[0], 0.5 * (a[:, :, 0] ** 2 * adapter.d[0]).mean((0, 1)))
    variance = (a[:, :, 1] * adapter.d[1]).exp()
    torch.testing.assert_close(d[1], 0.25 * (a[:, :, 1] * (variance - 1)).mean((0, 1)))


# ---------------------------------------------------------------- noise


def expose_noise(model):
    """Set A = 0, B = I, b = 1, so that every adapter adds α ε to zeros and outputs show the noise.

    Returns a function that gives ε of each layer, (layers, n, t, p, d), for n images of t tokens.
    """
    member = model.members[0]
    method, dim = member.method, model.backbone.embed_dim
    assert method.rank == dim
    member.shared.A.zero_()
    member.shared.B.copy_(torch.eye(dim).expand(len(method.targets), dim, dim))
    for adapter in member.layers:
        torch.nn.init.ones_(adapter.b)
    positions = method.targets

    @torch.no_grad()
    def draw(n=4, t=5):
        x, y = torch.randn(n, t, dim), torch.zeros(n, t, len(positions), dim)
        return torch.stack([a.project(x, y.clone(), positions) for a in member.layers]) / method.alpha

    return draw


def noisy(seed=0, depth=3):
    return pvera.adapt(make_vit(depth=depth), PVeRA(rank=24), num_classes=5, seed=seed)


def test_noise_is_standard_normal_and_uncorrelated():
    """Over layers, draws, seeds, images, tokens, targets and latent dimensions."""
    draw, other_seed = expose_noise(noisy(0)), expose_noise(noisy(1))
    noise = torch.stack([draw(), draw(), other_seed(), other_seed()])  # (4, layers, n, t, p, r)
    assert stats.kstest(noise.flatten(), stats.norm.cdf).pvalue > 1e-4
    for axes in ((0, 1), (2,), (3,), (4,), (5,), (0, 1, 2), (0, 1, 4)):
        rows = noise.movedim(axes, tuple(range(len(axes)))).flatten(0, len(axes) - 1).flatten(1)
        n, pairs = rows.shape[1], len(rows) * (len(rows) - 1) / 2
        correlation = torch.corrcoef(rows) - torch.eye(len(rows))
        # √n ρ is nearly standard normal for independent rows; the bound fails once in a million over all pairs.
        assert correlation.abs().max() < stats.norm.isf(0.5e-6 / pairs) / n**0.5, axes


def test_equal_seeds_give_equal_noise():
    first, second = expose_noise(noisy(3)), expose_noise(noisy(3))
    for _ in range(3):
        assert torch.equal(first(), second())


def test_training_noise_differs_between_members_of_different_seeds():
    model = pvera.adapt(make_vit(), [PVeRA(rank=8)] * 3, num_classes=5, seed=[0, 1, 1])
    for member in model.members:  # one distribution for all
        for layer, first in zip(member.layers, model.members[0].layers):
            layer.load_state_dict(copy.deepcopy(first.state_dict()))
            torch.nn.init.constant_(layer.b, 0.1)
        member.head.load_state_dict(model.members[0].head.state_dict())
    first, second, third = model(make_images())
    assert not torch.allclose(first, second)
    assert torch.equal(second, third)


def test_mean_of_many_draws_is_the_mean_pass_of_a_single_layer():
    """The bound follows from the exact variance of one draw, α² b² Σ_r σ_r² B_r²."""
    draws = 20_000
    model = adapted(PVeRA(rank=8, alpha=2.0), depth=1).double()
    adapter = model.members[0].layers[0].eval()
    source = torch.Generator().manual_seed(0)
    x, y = (
        torch.randn(1, 2, 24, generator=source).double(),
        torch.randn(1, 2, 3, 24, generator=source).double(),
    )
    with torch.no_grad():
        mean = adapter.project(x, y.clone(), "qkv")[0]
        adapter.train()
        drawn = adapter.project(x.expand(draws, -1, -1), y.repeat(draws, 1, 1, 1), "qkv")
        _, log_var = adapter.distribution(x, [0, 1])
        variance = torch.einsum("tpr,pre->tpe", log_var[0].exp(), adapter.shared.B**2) * (2 * adapter.b) ** 2
    assert torch.equal(drawn[:, :, 1], y[:, :, 1].expand(draws, -1, -1))  # k is not adapted
    drawn, mean = drawn[:, :, [0, 2]], mean[:, [0, 2]]
    assert (variance.sqrt() > 1e-4).all() and variance.sqrt().max() > 0.1
    z_scores = (drawn.mean(0) - mean) / (variance / draws).sqrt()
    chi_squared = drawn.var(0) * (draws - 1) / variance
    tail = 0.5e-6 / variance.numel()  # each of the two tests fails once in a million
    assert z_scores.abs().max() < stats.norm.isf(tail)
    assert stats.chi2.ppf(tail, draws - 1) < chi_squared.min()
    assert chi_squared.max() < stats.chi2.isf(tail, draws - 1)
