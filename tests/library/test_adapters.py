"""The eight methods one by one: numbers, initialisation, equations, gradients, merging."""

import copy

import pytest
import torch
from families import with_method
from scipy import stats
from tiny import METHODS, make_images, make_vit, perturb

import pvera
from pvera import IA3, AdaptFormer, Bottleneck, DoRA, Linear, LoRA, PVeRA, VeRA

# ---------------------------------------------------------------- trained numbers


@pytest.mark.parametrize(
    "method, numbers",
    [
        (PVeRA(rank=64), 21_504),
        (PVeRA(rank=128), 24_576),
        (PVeRA(rank=256), 30_720),
        (PVeRA(rank=512), 43_008),
        (PVeRA(rank=256, targets="q"), 15_360),
        (PVeRA(rank=256, targets="k"), 15_360),
        (PVeRA(rank=256, targets="v"), 15_360),
        (PVeRA(rank=256, targets="qkv"), 46_080),
        (VeRA(rank=256), 24_576),
        (LoRA(rank=32), 1_179_648),
        (LoRA(rank=64), 2_359_296),
        (LoRA(rank=128), 4_718_592),
        (DoRA(rank=32), 1_179_648 + 12 * 2 * 768),  # LoRA's number, plus the magnitudes of q and v
        (DoRA(rank=32, norm="output", train_magnitude=False), 1_179_648),
        (IA3(), 55_296),
        (Bottleneck(ratio=4), 7_100_928),
        (AdaptFormer(ratio=4), 3_550_476),
        (Linear(), 0),
    ],
    ids=str,
)
def test_trained_numbers_on_vit_b(vit_b, method, numbers):
    model = pvera.adapt(vit_b, method, num_classes=7)
    try:
        assert model.members[0].count() == {"adapter": numbers, "head": 7 * (768 + 1)}
        trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
        assert trained == numbers + 7 * (768 + 1)
    finally:
        model.unload()


def test_defaults_are_the_papers():
    assert (PVeRA().rank, PVeRA().alpha, PVeRA().targets) == (256, 16.0, "qv")
    assert (VeRA().rank, VeRA().alpha, VeRA().targets) == (256, 16.0, "qv")
    assert (LoRA().alpha, LoRA().targets, DoRA().targets) == (16.0, "qv", "qv")
    assert LoRA().rank in (32, 64, 128) and DoRA().rank in (32, 64, 128)
    assert Bottleneck().ratio in (4, 8, 16) and AdaptFormer().ratio in (4, 8, 16)


# ---------------------------------------------------------------- initialisation


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "method",
    [
        Linear(),
        LoRA(rank=3),
        LoRA(rank=3, targets="qkv", same_draw=True),
        VeRA(rank=8),
        VeRA(rank=8, targets="k", init="uniform"),
        PVeRA(rank=8),
        PVeRA(rank=8, targets="qkv", init="uniform", kl="mean"),
        IA3(),
        Bottleneck(ratio=4),
        AdaptFormer(ratio=4),
        AdaptFormer(ratio=4, inside_layer_scale=True),
    ],
    ids=str,
)
def test_starts_as_the_backbone(vit, images, method, training):
    expected = vit(images)
    features = pvera.adapt(vit, method, num_classes=5).train(training).features(images)[0]
    assert torch.equal(features, expected)


@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.parametrize("norm", ["input", "output"])
def test_dora_starts_as_the_backbone_up_to_rounding(vit, images, norm, transpose):
    expected = vit(images)
    method = DoRA(rank=3, norm=norm, targets="qkv", transpose=transpose)
    features = pvera.adapt(vit, method, num_classes=5).features(images)[0]
    torch.testing.assert_close(features, expected, rtol=0, atol=5e-6)


@pytest.mark.parametrize("transpose, zero", [(True, "output"), (False, "input")])
def test_which_side_of_the_weight_doras_zero_factor_is_on(transpose, zero):
    """Only the zero factor changes. ΔW then has the random factor's column space if that factor is on the output
    side."""
    adapter = pvera.adapt(make_vit(), DoRA(rank=3, transpose=transpose), 5).members[0].layers[0]
    with torch.no_grad():
        adapter.B.normal_(generator=torch.Generator().manual_seed(0))
    W, _ = adapter.layer.projection("q")
    update = adapter.direction(W[None], [0])[0][0] - W  # (d_out, d_in)
    random = adapter.A[:, 0]  # (d, r)
    spanned = update if zero == "input" else update.T
    rank = torch.linalg.matrix_rank(torch.cat([spanned, random], 1).detach().double(), rtol=1e-5)
    assert rank == 3


@pytest.mark.parametrize("method", [Bottleneck, AdaptFormer])
def test_published_initialisation_is_not_the_identity(vit, images, method):
    expected = vit(images)
    features = pvera.adapt(vit, method(ratio=4, near_identity=False), num_classes=5).features(images)[0]
    assert (features - expected).abs().max() > 0.01


def test_low_rank_draws():
    layers = {
        same: pvera.adapt(make_vit(dim=48), LoRA(rank=16, same_draw=same), 5).members[0].layers
        for same in (False, True)
    }
    first, second = (layer.A for layer in layers[False])
    assert stats.kstest(first.detach().flatten(), stats.norm(0, 16**-0.5).cdf).pvalue > 1e-4
    assert not torch.equal(first, second)
    assert not torch.equal(first[:, 0], first[:, 1])  # q and v
    assert torch.equal(layers[True][0].A, layers[True][1].A)
    assert not any(layer.B.any() for both in layers.values() for layer in both)


@pytest.mark.parametrize("init", ["normal", "uniform"])
@pytest.mark.parametrize("method, columns", [(VeRA, 32), (PVeRA, 64)])
def test_frozen_draws(method, columns, init):
    """One A and B per position, of variance 2 / columns (Kaiming), shared by all layers."""
    members = {
        targets: pvera.adapt(make_vit(dim=48), method(rank=32, targets=targets, init=init), 5).members[0]
        for targets in ("qv", "v")
    }
    shared = members["qv"].shared
    for matrix, variance in ((shared.A, 2 / columns), (shared.B, 2 / 48)):
        bound = (3 * variance) ** 0.5
        law = stats.norm(0, variance**0.5) if init == "normal" else stats.uniform(-bound, 2 * bound)
        assert stats.kstest(matrix.flatten(), law.cdf).pvalue > 1e-4
    assert not torch.equal(shared.A[..., 0, :], shared.A[..., 1, :])
    assert not torch.equal(shared.B[0], shared.B[1])
    assert all(layer.shared is shared for layer in members["qv"].layers)
    # A position's matrices do not depend on the other positions.
    assert torch.equal(shared.A[..., 1, :], members["v"].shared.A[..., 0, :])
    assert torch.equal(shared.B[1], members["v"].shared.B[0])
    if method is PVeRA:  # A_μ does not depend on σ
        fixed = pvera.adapt(make_vit(dim=48), PVeRA(rank=32, init=init, sigma=1.0), 5).members[0].shared
        assert torch.equal(fixed.A, shared.A[:, :1]) and torch.equal(fixed.B, shared.B)


@pytest.mark.parametrize("method", [VeRA, PVeRA])
def test_scale_draws(method):
    """d is constant per vector, drawn from uniform(1e-5, 1) (Algorithm 2); b is zero."""
    layers = pvera.adapt(make_vit(depth=200, dim=8), method(rank=4), 5).members[0].layers
    vectors = torch.stack([layer.d.detach() for layer in layers])  # (layers, p, r)
    if method is PVeRA:  # (layers, 2, p, r), and one vector is 2r long
        vectors = vectors.movedim(1, 2).flatten(2)
    numbers = vectors[..., 0].flatten()
    assert torch.equal(vectors, vectors[..., :1].expand_as(vectors))
    assert len(numbers.unique()) == 200 * 2
    assert stats.kstest(numbers, stats.uniform(1e-5, 1 - 1e-5).cdf).pvalue > 1e-4
    assert not any(layer.b.any() for layer in layers)


@pytest.mark.parametrize("key", METHODS)
def test_seed_decides_the_initial_tensors(key):
    def initial(seed):
        torch.manual_seed(torch.seed())  # the global random state does not matter
        member = pvera.adapt(make_vit(), METHODS[key], 5, seed).members[0]
        return torch.cat([t.flatten() for t in (*member.parameters(), *member.buffers())])

    assert torch.equal(initial(0), initial(0))
    assert not torch.equal(initial(0), initial(1))


def test_initialisation_leaves_the_global_random_state_alone(vit, images):
    before = torch.get_rng_state()
    for method in METHODS.values():
        model = pvera.adapt(vit, method, 5)
        model(images)
        model.unload()
    assert torch.equal(torch.get_rng_state(), before)


# ---------------------------------------------------------------- equations


@pytest.mark.parametrize(
    "method",
    [
        *METHODS.values(),
        AdaptFormer(ratio=4, inside_layer_scale=True),
        DoRA(rank=3, norm="output", train_magnitude=False, scaled=False),
        DoRA(rank=3, norm="output", train_magnitude=False, scaled=False, transpose=False),
        DoRA(rank=3, targets="qk", transpose=False),
        DoRA(rank=3, targets="k", alpha=2.0),
        LoRA(rank=2, targets="qkv", alpha=3.0),
        LoRA(rank=2, targets="k"),
        VeRA(rank=8, targets="qkv", alpha=3.0),
        VeRA(rank=8, targets="qk"),
        PVeRA(rank=8, targets="kv", alpha=3.0),
        PVeRA(rank=8, targets="q"),
    ],
    ids=str,
)
def test_forward_is_the_methods_equations(method):
    """In fp64, as an encoder whose weights and modules hold the method's closed form."""
    vit, images = make_vit().double(), make_images().double()
    plain = copy.deepcopy(vit)
    model = perturb(pvera.adapt(vit, method, num_classes=5).double()).eval()
    features = model.features(images)[0]
    torch.testing.assert_close(features, with_method(plain, model.members[0])(images), rtol=0, atol=1e-10)
    if method.key != "linear":
        assert (features - plain(images)).abs().max() > 0.05  # the method changes the output
    head = model.members[0].head
    torch.testing.assert_close(model(images), features @ head.weight.T + head.bias, rtol=0, atol=1e-12)


def test_order_of_targets_does_not_matter():
    assert PVeRA(targets="vq") == PVeRA(targets="qv")
    assert LoRA(targets="vkq").targets == "qkv"


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize(
    "method",
    [
        Bottleneck(ratio=4),
        IA3(),
        AdaptFormer(ratio=4),
        DoRA(rank=2),
        DoRA(rank=2, norm="output", targets="qk", scaled=False),
        DoRA(rank=2, transpose=False),
        LoRA(rank=2),
        VeRA(rank=3),
        PVeRA(rank=3),
        PVeRA(rank=2, targets="qkv", kl="mean"),
    ],
    ids=str,
)
def test_gradients_are_the_numerical_ones(method):
    """Gradients of logits and KL term with respect to every trained tensor, in fp64, through both layers."""
    vit = make_vit(dim=8, img_size=8, patch_size=4).double()
    model = perturb(pvera.adapt(vit, method, num_classes=2).double())
    images = make_images(2, size=8).double()
    names = list(model.members[0].trained())

    def outputs(*tensors):
        replaced = {f"members.0.{n}": t for n, t in zip(names, tensors)}
        if method.key != "pvera":
            return torch.func.functional_call(model, replaced, (images,))
        with model.sampling(seed=0):  # the same noise in every call
            logits = torch.func.functional_call(model, replaced, (images,))
        return logits, model.kl_divergence()

    tensors = tuple(p.detach().clone().requires_grad_() for p in model.members[0].trained().values())
    assert torch.autograd.gradcheck(outputs, tensors)
