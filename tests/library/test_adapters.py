"""The eight methods one by one: numbers, initialisation, gradients, hyperparameters, parameters
and multiply-adds.
"""

import pytest
import torch
from scipy import stats
from tiny import CLASSES, METHODS, make_vit, refused

import pvera
from pvera import IA3, AdaptFormer, Bottleneck, DoRA, Linear, LoRA, PVeRA, VeRA, cost

# ---------------------------------------------------------------- trained numbers


@pytest.mark.parametrize(
    "method, numbers",
    [
        (PVeRA(), 30_720),
        (PVeRA(rank=256, targets="qkv"), 46_080),
        (VeRA(), 24_576),
        (LoRA(rank=32), 1_179_648),
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


# ---------------------------------------------------------------- initialisation


@pytest.mark.parametrize("method", [Bottleneck, AdaptFormer])
def test_published_initialisation_is_not_the_identity(vit, images, method):
    expected = vit(images)
    features = pvera.adapt(vit, method(ratio=4, near_identity=False), num_classes=5).features(
        images
    )[0]
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
        targets: pvera.adapt(
            make_vit(dim=48), method(rank=32, targets=targets, init=init), 5
        ).members[0]
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
        fixed = (
            pvera.adapt(make_vit(dim=48), PVeRA(rank=32, init=init, sigma=1.0), 5).members[0].shared
        )
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
def test_seed_decides_the_initial_tensors(key, images):
    """The global random state neither matters nor changes."""

    def initial(seed):
        vit = make_vit()
        torch.manual_seed(torch.seed())
        before = torch.get_rng_state()
        model = pvera.adapt(vit, METHODS[key], 5, seed)
        model(images)
        assert torch.equal(torch.get_rng_state(), before)
        member = model.members[0]
        return torch.cat([t.flatten() for t in (*member.parameters(), *member.buffers())])

    assert torch.equal(initial(0), initial(0))
    assert not torch.equal(initial(0), initial(1))


def test_head_is_the_same_for_every_method():
    heads = [pvera.adapt(make_vit(), m, 5, seed=3).members[0].head for m in METHODS.values()]
    assert all(torch.equal(head.weight, heads[0].weight) for head in heads)
    assert heads[0].weight.shape == (5, 24) and heads[0].bias.shape == (5,)


# ---------------------------------------------------------------- gradients


@pytest.mark.parametrize(
    "value, dtype", [(0.0, torch.float32), (1e-30, torch.float32), (0.0, torch.bfloat16)]
)
@pytest.mark.parametrize(
    "method", [DoRA(rank=2), DoRA(rank=2, norm="output", transpose=False)], ids=str
)
def test_dora_on_a_weight_with_rows_and_columns_of_norm_zero(method, value, dtype, images):
    """It starts as the identity and trains; merging keeps what it has learned."""
    vit, images = make_vit(), images.to(dtype)
    with torch.no_grad():
        for block in vit.blocks:
            block.attn.qkv.weight[[3, 50]] = block.attn.qkv.weight[:, [7]] = value
    expected = vit.to(dtype)(images)
    model = pvera.adapt(vit, method, CLASSES)
    assert torch.equal(model.features(images)[0], expected)
    optimizer = torch.optim.Adam(model.members[0].trainable_tensors().values(), 1e-2)
    magnitudes = [layer.m.detach().clone() for layer in model.members[0].layers]
    for _ in range(3):
        optimizer.zero_grad()
        model(images).square().sum().backward()
        optimizer.step()
    logits = model.eval()(images)
    assert logits.isfinite().all() and not torch.equal(model.features(images)[0], expected)
    trained = [layer.m != before for layer, before in zip(model.members[0].layers, magnitudes)]
    assert torch.stack(trained).all(), "those of norm zero too"
    torch.testing.assert_close(
        model.merge_()(images), logits, rtol=0, atol=1e-4 if dtype == torch.float32 else 0.3
    )


# ---------------------------------------------------------------- bad hyperparameters


RANKED, RATIOS = (LoRA, DoRA, VeRA, PVeRA), (Bottleneck, AdaptFormer)
BAD = [
    (RANKED, "rank", [0, -1, 2.0, True, "8", None], "rank must be a positive integer"),
    (
        RANKED,
        "targets",
        ["", "qq", "vq", "x", "qvx", "Q", "q,v", None, ["q", "v"], 3],
        "targets must be one of q, k, v, qk, qv, kv, qkv, not",
    ),
    (
        RANKED,
        "alpha",
        [0, -1.0, float("nan"), float("inf"), "16", None],
        "alpha must be a positive number",
    ),
    (RATIOS, "ratio", [0, -4, 1.5], "ratio must be a positive integer"),
    (
        (LoRA, VeRA),
        "dropout",
        [1, -0.1, "half", float("nan")],
        "dropout must be a number from 0 and below 1",
    ),
    ((PVeRA,), "sigma", [0, -1.0, float("nan"), "1"], "sigma must be a positive number or None"),
    ((VeRA, PVeRA), "pair", ["both"], "pair must be one of position, shared, not 'both'"),
    ((VeRA, PVeRA), "init", ["zeros"], "init must be one of normal, uniform, not 'zeros'"),
    ((PVeRA,), "kl", ["zeros"], "kl must be one of sum, mean, not 'zeros'"),
    ((DoRA,), "norm", ["zeros"], "norm must be one of input, output, not 'zeros'"),
    ((PVeRA,), "noise", ["no", 0, None], "noise must be True or False"),
    ((LoRA, DoRA, VeRA, PVeRA), "alpha", [True], "alpha must be a positive number, not True"),
    ((VeRA,), "dropout", [False], "dropout must be a number from 0 and below 1, not False"),
]


@pytest.mark.parametrize(
    "methods, option, values, message", BAD, ids=[message for *_, message in BAD]
)
def test_bad_hyperparameters(methods, option, values, message):
    for method in methods:
        for value in values:
            refused(lambda: method(**{option: value}), message)


# ---------------------------------------------------------------- parameters and multiply-adds


@pytest.mark.parametrize(
    "method",
    [*METHODS.values(), VeRA(rank=5, targets="qkv", pair="shared"), PVeRA(rank=5, sigma=1.0)],
    ids=str,
)
def test_counts_agree_and_leave_the_vit_as_it_was(vit, method):
    """Of weights and of the shapes without weights."""
    vit.train().norm.weight.requires_grad_(False)
    before, counted = (
        {name: p.requires_grad for name, p in vit.named_parameters()},
        cost.count_cost(vit, method, CLASSES),
    )
    bare = counted.backbone_multiply_adds
    assert counted.merged == (None if method.key in ("bottleneck", "adaptformer") else bare)
    assert (counted.sampled is None) == (method.key != "pvera") and counted.inference >= bare
    assert (counted.head_multiply_adds, counted.head_parameters) == (24 * CLASSES, 25 * CLASSES)
    assert cost.trained_parameters(vit, method) == counted.adapter_parameters
    assert vit.training and before == {name: p.requires_grad for name, p in vit.named_parameters()}
    assert cost.count_cost(vit.to("meta"), method, CLASSES) == counted


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize(
    "method", [Bottleneck(), AdaptFormer(), LoRA(rank=8), VeRA(rank=8), PVeRA(rank=8)], ids=str
)
def test_fvcore_counts_the_same(vit, method):
    """The paper counts with fvcore, for which a fused attention is nothing and a LayerNorm five
    per number.
    """
    from fvcore.nn import FlopCountAnalysis

    for block in vit.blocks:
        block.attn.fused_attn = False
    images = torch.zeros(1, 3, 32, 32)
    model = pvera.adapt(vit, method, CLASSES).eval()
    with model.without_kl():
        analysis = (
            FlopCountAnalysis(model, images)
            .unsupported_ops_warnings(False)
            .uncalled_modules_warnings(False)
        )
        assert analysis.total() - analysis.by_operator()["layer_norm"] == cost.multiply_adds(
            model, images
        )


def test_a_case_by_hand(vit):
    """2 layers of width 24, 17 tokens; the adapter of r = 8 on q and v."""
    counted = cost.count_cost(vit, PVeRA(rank=8))
    patches = 16 * (3 * 8 * 8) * 24
    projections, attention = 17 * (72 + 24 + 96 + 96) * 24, 2 * 17 * 17 * 24
    assert counted.backbone_multiply_adds == 2 * (projections + attention) + patches
    assert counted.inference - counted.backbone_multiply_adds == 2 * 2 * (17 * 24 * 8 + 17 * 8 * 24)
    assert counted.sampled - counted.backbone_multiply_adds == 2 * 2 * (17 * 24 * 16 + 17 * 8 * 24)
    assert counted.adapter_parameters == 2 * 2 * (2 * 8 + 24)
    fixed, vera = (
        cost.count_cost(vit, method) for method in (PVeRA(rank=8, sigma=1.0), VeRA(rank=8))
    )
    assert (fixed.sampled, fixed.adapter_parameters) == (vera.inference, vera.adapter_parameters)
    assert counted.frozen_parameters == 2 * (24 * 16 + 8 * 24)
    assert counted.backbone_parameters == sum(p.numel() for p in vit.parameters())
