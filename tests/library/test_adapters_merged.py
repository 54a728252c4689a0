"""Merged adapters, and hyperparameters that are refused."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import make_images, make_vit, perturb

import pvera
from pvera import IA3, AdaptFormer, Bottleneck, DoRA, InputError, Linear, LoRA, PVeRA, VeRA

# ---------------------------------------------------------------- merging

targets = st.sets(st.sampled_from("qkv"), min_size=1).map("".join)
alphas = st.floats(0.5, 16)
ranks = st.integers(1, 12)
mergeable = {
    "linear": st.builds(Linear),
    "ia3": st.builds(IA3),
    "lora": st.builds(LoRA, rank=ranks, targets=targets, alpha=alphas, same_draw=st.booleans()),
    "dora": st.builds(
        DoRA,
        rank=ranks,
        targets=targets,
        alpha=alphas,
        norm=st.sampled_from(["input", "output"]),
        train_magnitude=st.booleans(),
        scaled=st.booleans(),
        transpose=st.booleans(),
    ),
    "vera": st.builds(VeRA, rank=ranks, targets=targets, alpha=alphas, init=st.sampled_from(["normal", "uniform"])),
    "pvera": st.builds(
        PVeRA,
        rank=ranks,
        targets=targets,
        alpha=alphas,
        init=st.sampled_from(["normal", "uniform"]),
        sigma=st.sampled_from([None, 0.5]),
    ),
}


@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize("key", mergeable)
def test_merged_equals_unmerged(key, qkv_bias):
    images = make_images()

    @settings(max_examples=12, deadline=None, derandomize=True, database=None)
    @given(mergeable[key], st.integers(0, 2**31))
    def check(method, seed):
        vit = make_vit(seed, qkv_bias=qkv_bias)
        weights = copy.deepcopy(vit.state_dict())
        plain = vit(images)
        model = perturb(pvera.adapt(vit, method, num_classes=5, seed=seed), seed).eval()
        unmerged = model(images)
        features = model.features(images)[0]
        assert model.merge_() is model and model.merged
        torch.testing.assert_close(model(images), unmerged, rtol=0, atol=1e-5)
        # Now the backbone alone computes the adapted features.
        torch.testing.assert_close(vit(images), features, rtol=0, atol=1e-5)
        if key != "linear":
            assert (features - plain).abs().max() > 1e-3
        model.unmerge_()
        assert not model.merged
        for name, tensor in vit.state_dict().items():
            assert torch.equal(tensor, weights[name]), name
        assert torch.equal(model(images), unmerged)

    check()


# ---------------------------------------------------------------- bad hyperparameters


@pytest.mark.parametrize("method", [Bottleneck, AdaptFormer])
def test_ratio_larger_than_the_width(vit, images, method):
    expected = vit(images)
    with pytest.raises(InputError, match="ratio 25 leaves no hidden unit of width 24"):
        pvera.adapt(vit, method(ratio=25), num_classes=5)
    assert torch.equal(pvera.adapt(vit, method(ratio=24), num_classes=5).features(images)[0], expected)


RANKED, RATIOS = (LoRA, DoRA, VeRA, PVeRA), (Bottleneck, AdaptFormer)
BAD = [
    (RANKED, "rank", [0, -1, 2.0, True, "8", None], "rank must be a positive integer"),
    (RANKED, "targets", ["", "qq", "x", "qvx", "Q", "q,v", None, ["q", "v"], 3], "different letters out of q, k, v"),
    (RANKED, "alpha", [0, -1.0, float("nan"), float("inf"), "16", None], "alpha must be a positive number"),
    (RATIOS, "ratio", [0, -4, 1.5], "ratio must be a positive integer"),
    ((LoRA, VeRA), "dropout", [1, -0.1, "half", float("nan")], "dropout must be a number from 0 and below 1"),
    ((PVeRA,), "sigma", [0, -1.0, float("nan"), "1"], "sigma must be a positive number or None"),
    ((VeRA, PVeRA), "pair", ["both"], "pair must be one of position, shared, not 'both'"),
    ((VeRA, PVeRA), "init", ["zeros"], "init must be one of normal, uniform, not 'zeros'"),
    ((PVeRA,), "kl", ["zeros"], "kl must be one of sum, mean, not 'zeros'"),
    ((DoRA,), "norm", ["zeros"], "norm must be one of input, output, not 'zeros'"),
]


@pytest.mark.parametrize("methods, option, values, message", BAD, ids=[option for _, option, *_ in BAD])
def test_bad_hyperparameters(methods, option, values, message):
    for method in methods:
        for value in values:
            with pytest.raises(InputError, match=message) as error:
                method(**{option: value})
            assert "\n" not in str(error.value)
