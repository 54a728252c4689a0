"""Expressions with a backward pass of their own: values and gradients are those of the plain expressions."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import METHODS, make_images, make_vit, perturb

import pvera
from pvera.adapters import fused
from pvera.adapters.fused import add_products, draw, join, scale_at, split

SHAPES = st.tuples(*[st.integers(1, 4)] * 4)  # images, tokens, rank, width


def normal(*shape, seed, **options):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64, **options)


def leaves(*shapes, seed):
    return [normal(*shape, seed=seed + i).requires_grad_() for i, shape in enumerate(shapes)]


def plain_add(y, z, M, index):
    delta = torch.zeros_like(y)
    delta[:, :, index] = torch.einsum("ntpr,prd->ntpd", z, M)
    return y + delta


def plain_draw(h, d, noise):
    mu, log_var = (h * d).unbind(2)
    prior, own = (torch.distributions.Normal(m, s) for m, s in ((0.0, 1.0), (mu, torch.exp(log_var / 2))))
    return mu + noise * torch.exp(log_var / 2), torch.distributions.kl_divergence(own, prior).sum((2, 3))


@settings(deadline=None, max_examples=30)
@given(SHAPES, st.sampled_from([[0], [2], [0, 2], [0, 1, 2]]), st.integers(0, 99))
def test_add_products(shape, index, seed):
    n, t, r, d = shape
    y, z, M = leaves((n, t, 3, d), (n, t, len(index), r), (len(index), r, d), seed=seed)
    expected = plain_add(y, z, M, index)
    with torch.no_grad():
        torch.testing.assert_close(add_products(y.clone(), z, M, index), expected)
    found = add_products(y.clone(), z, M, index)
    torch.testing.assert_close(found, expected)
    cotangent = normal(*y.shape, seed=seed + 9)
    for ours, theirs in zip(*(torch.autograd.grad(out, (y, z, M), cotangent) for out in (found, expected))):
        torch.testing.assert_close(ours, theirs)


def test_add_products_overwrites_y_and_nothing_else():
    y, z, M = (normal(*shape, seed=0) for shape in ((2, 3, 3, 4), (2, 3, 1, 5), (1, 5, 4)))
    kept = [t.clone() for t in (y, z, M)]
    out = add_products(y, z, M, [1])
    assert out.data_ptr() == y.data_ptr() and not torch.equal(y, kept[0])
    assert torch.equal(y[:, :, ::2], kept[0][:, :, ::2])
    assert torch.equal(z, kept[1]) and torch.equal(M, kept[2])


@pytest.fixture(params=[1, 2**18])
def piece(request, monkeypatch):
    """One row at a time, or all."""
    monkeypatch.setattr(fused, "PIECE", request.param)


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SHAPES, st.sampled_from([[0], [2], [0, 2], [0, 1, 2]]), st.booleans(), st.integers(0, 99))
def test_scale_at(piece, shape, index, shifted, seed):
    n, t, _, d = shape
    leaf = leaves((n, t, 3, d), (len(index), d), *[(len(index), d)] * shifted, seed=seed)
    y, scale, shift = (*leaf, None)[:3]
    factor, added = torch.ones(3, d).double(), torch.zeros(3, d).double()
    factor[index] = scale
    if shifted:
        added[index] = shift
    expected = y * factor + added
    with torch.no_grad():
        torch.testing.assert_close(scale_at(y.clone(), scale, shift, index), expected)
    found = scale_at(y.clone(), scale, shift, index)
    torch.testing.assert_close(found, expected)
    cotangent = normal(*y.shape, seed=seed + 9)
    for ours, theirs in zip(*(torch.autograd.grad(out, leaf, cotangent) for out in (found, expected))):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_scales_keep_their_last_digits_in_half_precision(dtype):
    y = normal(2, 3, 2, 4, seed=0).to(dtype)
    scale = torch.full((1, 4), 1 + 2**-10, requires_grad=True)  # bf16 would round it to one
    out = scale_at(y.clone(), scale, None, [1])
    assert out.dtype == dtype and torch.equal(out[:, :, 1], (y[:, :, 1] * scale).to(dtype))
    (grad,) = torch.autograd.grad(out.float().sum(), scale)
    assert grad.dtype == torch.float32
    torch.testing.assert_close(grad[0], y[:, :, 1].float().sum((0, 1)))


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SHAPES, st.integers(0, 99))
def test_draw(piece, shape, seed):
    n, t, p, r = shape
    h, d = leaves((n, t, 2, p, r), (2, p, r), seed=seed)
    noise = normal(n, t, p, r, seed=seed + 5)
    expected = plain_draw(h, d, noise)
    with torch.no_grad():
        for ours, theirs in zip(draw(h, d, noise), expected):
            torch.testing.assert_close(ours, theirs)
    found = draw(h, d, noise)
    cotangents = normal(n, t, p, r, seed=seed + 6), normal(n, t, seed=seed + 7)
    gradients = [torch.autograd.grad(out, (h, d), cotangents) for out in (found, expected)]
    for ours, theirs in zip((*found, *gradients[0]), (*expected, *gradients[1])):
        torch.testing.assert_close(ours, theirs)


def test_draw_with_one_of_its_outputs_unused():
    """Neither β = 0 nor a KL term alone leaves the other gradient undefined."""
    h, d = leaves((2, 3, 2, 2, 4), (2, 2, 4), seed=0)
    noise = normal(2, 3, 2, 4, seed=5)
    for unused in (0, 1):
        used = [out[1 - unused].sum() for out in (draw(h, d, noise), plain_draw(h, d, noise))]
        for ours, theirs in zip(*(torch.autograd.grad(out, (h, d)) for out in used)):
            torch.testing.assert_close(ours, theirs)


def test_numerical_gradients():
    y, z, M = leaves((1, 2, 2, 3), (1, 2, 1, 2), (1, 2, 3), seed=1)
    assert torch.autograd.gradcheck(lambda y, z, M: add_products(y.clone(), z, M, [1]), (y, z, M))
    h, d = leaves((1, 2, 2, 1, 3), (2, 1, 3), seed=2)
    noise = normal(1, 2, 1, 3, seed=3)
    assert torch.autograd.gradcheck(lambda h, d: draw(h, d, noise), (h, d))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_draws_in_full(dtype):
    """σ and the divergence of a large log σ² overflow fp16."""
    h, d = torch.full((1, 1, 2, 1, 1), 4.0, dtype=dtype), torch.full((2, 1, 1), 3.0)
    z, divergence = draw(h.requires_grad_(), d.requires_grad_(), torch.ones(1, 1, 1, 1))
    assert z.dtype == divergence.dtype == torch.float32
    assert z.item() == pytest.approx(12 + torch.e**6, rel=1e-6)
    assert divergence.item() == pytest.approx((torch.e**12 + 144 - 13) / 2, rel=1e-6)
    (z.sum() + divergence.sum()).backward()
    assert h.grad.dtype == dtype and d.grad.dtype == torch.float32


def test_split_and_join_copy_nothing_that_was_overwritten():
    batch = normal(6, 2, seed=0)
    parts = split(batch.clone().requires_grad_(), 3)
    assert torch.equal(torch.cat(parts), batch)
    with torch.no_grad():
        for part in parts:
            part.mul_(2)
    joined = join(list(parts))
    assert joined.data_ptr() == parts[0].data_ptr() and torch.equal(joined, 2 * batch)
    uneven = batch.clone()
    assert torch.equal(join(list(split(uneven, 4))), batch)  # 2, 2, 2
    assert torch.equal(join(list(split(uneven[:5], 2))), batch[:5])  # 3, 2
    swapped = join([parts[1], parts[0], parts[2]])
    assert torch.equal(swapped, 2 * batch[[2, 3, 0, 1, 4, 5]]) and swapped.data_ptr() != parts[1].data_ptr()


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 4), st.integers(1, 3), st.lists(st.booleans(), min_size=4, max_size=4),
       st.integers(0, 9))
def test_gradients_of_split_and_join(count, size, scaled, seed):
    """Whether parts come back as they were, or as other tensors."""
    (batch,) = leaves((count * size, 3), seed=seed)
    expected = torch.cat([p * 3 if scaled[i] else p for i, p in enumerate(batch.chunk(count))])
    found = join([p * 3 if scaled[i] else p for i, p in enumerate(split(batch, count))])
    torch.testing.assert_close(found, expected)
    cotangent = normal(*batch.shape, seed=seed + 1)
    (ours,), (theirs,) = (torch.autograd.grad(out, batch, cotangent) for out in (found, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("key", ["pvera", "vera", "lora", "dora", "ia3"])
def test_backward_twice(key):
    """What one backward pass reads is still there for the next."""
    model = perturb(pvera.adapt(make_vit(), METHODS[key], num_classes=5))
    loss = model(make_images()).square().sum() + model.kl_divergence()
    trained = list(model.members[0].trained().values())
    first = torch.autograd.grad(loss, trained, retain_graph=True)
    for once, again in zip(first, torch.autograd.grad(loss, trained)):
        assert torch.equal(once, again)


@pytest.mark.parametrize("key", ["pvera", "vera", "lora", "dora", "ia3"])
def test_members_do_not_overwrite_each_other(key):
    """Logits and gradients of a grid are those of its members alone."""
    methods, images = [METHODS[key]] * 3, make_images()
    grid = pvera.adapt(make_vit(), methods, num_classes=5, seed=[0, 1, 2])
    for member in grid.members:
        perturb(member, member.seed)
    logits = grid(images)
    logits.square().sum().backward()
    for i, member in enumerate(grid.members):
        alone = pvera.adapt(make_vit(), METHODS[key], num_classes=5, seed=i)
        perturb(alone.members[0], i)
        own = alone(images)
        own.square().sum().backward()
        torch.testing.assert_close(own, logits[i], rtol=1e-5, atol=1e-5)
        for ours, theirs in zip(member.trained().values(), alone.members[0].trained().values()):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-3, atol=1e-4)
