"""PVeRA with noise of fixed size: beside PVeRA with a trained σ that is set to the same value."""

import pytest
import torch
from tiny import adapted, make_images, make_vit

import pvera
from pvera import InputError, PVeRA, VeRA
from pvera.encoders import Shape


@pytest.fixture
def pair():
    """PVeRA with σ = 1 fixed, and PVeRA whose trained log σ² is 0 (d's second half), with equal μ."""
    fixed, trained = adapted(PVeRA(rank=8, sigma=1.0)), adapted(PVeRA(rank=8))
    with torch.no_grad():
        trained.members[0].head.load_state_dict(fixed.members[0].head.state_dict())
        for one, other in zip(fixed.members[0].layers, trained.members[0].layers, strict=True):
            other.d[0], other.d[1] = one.d[0], 0
            other.b.copy_(one.b)
    return fixed, trained


def test_it_draws_what_a_trained_sigma_of_that_size_draws(pair):
    fixed, trained = pair
    images = make_images()
    torch.testing.assert_close(fixed(images), trained(images))
    torch.testing.assert_close(fixed.kl_divergence(), trained.kl_divergence())
    torch.testing.assert_close(fixed.eval()(images), trained.eval()(images))
    draws = [pvera.sample(model, images, 3, seed=1) for model in pair]
    torch.testing.assert_close(*draws)
    assert draws[0].std(0).max() > 1e-3


def test_the_noise_has_the_size_sigma():
    """σ = 3 moves the projection by three times what σ = 1 does, with the same noise."""
    moved = []
    for sigma in (1.0, 3.0):
        adapter = adapted(PVeRA(rank=8, sigma=sigma)).members[0].layers[0]
        x, y = torch.randn(2, 7, 24, generator=torch.Generator().manual_seed(0)), torch.zeros(2, 7, 3, 24)
        out = {}
        for training in (True, False):
            adapter.train(training)
            adapter.passes.begin()
            out[training] = adapter.project(x, y, "qkv")
        moved.append(out[True] - out[False])
    torch.testing.assert_close(moved[1], 3 * moved[0])


def test_it_trains_and_computes_as_much_as_vera():
    fixed, vera = adapted(PVeRA(rank=8, sigma=1.0)), adapted(VeRA(rank=8))
    assert fixed.members[0].count() == vera.members[0].count()
    shape = Shape.of(make_vit())
    assert PVeRA(rank=8, sigma=1.0).multiply_adds(shape, sampled=True) == VeRA(rank=8).multiply_adds(shape)


def test_peft_holds_its_mean_alone(tmp_path, pair):
    fixed, images = pair[0].eval(), make_images()
    pvera.export_peft(fixed, tmp_path / "folder")
    torch.testing.assert_close(pvera.import_peft(tmp_path / "folder", make_vit()).eval()(images), fixed(images))
    with pytest.raises(InputError, match="fixed sigma"):
        pvera.export_peft(fixed, tmp_path / "sampling", sampling=True)
