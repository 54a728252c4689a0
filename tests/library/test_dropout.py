"""Dropout in LoRA and VeRA: masks, modes, draws, and the rest of the library."""

from dataclasses import replace

import pytest
import torch
from tiny import make_vit, perturb

import pvera
from pvera import InputError, LoRA, VeRA

METHODS = [LoRA(rank=3, dropout=0.25), VeRA(rank=8, dropout=0.25)]
by_key = pytest.mark.parametrize("method", METHODS, ids=lambda method: method.key)
LATENT = VeRA(rank=8, dropout=0.25, dropped="latent")
by_method = pytest.mark.parametrize("method", [*METHODS, LATENT], ids=["lora", "vera", "vera, latent"])


def adapted(method, seed=0):
    return perturb(pvera.adapt(make_vit(), method, 4, seed), scale=0.3)


@by_key
def test_the_adapter_reads_the_masked_input(method):
    """Eq. 3 and 4 hold with x ⊙ m / (1 − p) instead of x, in the adapter's product only."""
    adapter = adapted(method).members[0].layers[0].train()
    x, y = torch.randn(5, 7, 24, generator=torch.Generator().manual_seed(1)), torch.zeros(5, 7, 3, 24)
    seen = []
    add = adapter.add
    adapter.add = lambda x, y, positions: seen.append(x) or add(x, y, positions)
    adapter.passes.begin()
    result = adapter.project(x, y, "qkv")
    kept = seen[0] / x
    assert ((kept.abs() < 1e-6) | ((kept - 4 / 3).abs() < 1e-5)).all()
    assert abs((kept > 0).float().mean() - 0.75) < 0.05
    torch.testing.assert_close(result, add(x * kept, y, "qkv"))
    adapter.passes.begin()
    adapter.project(x, y, "qkv")
    assert not torch.equal(seen[0], seen[1]), "each pass draws a new mask"


def test_the_latent_is_masked(monkeypatch):
    """Eq. 4 holds with z ⊙ m / (1 − p) instead of z = x A ⊙ d."""
    adapter = adapted(LATENT).members[0].layers[0].train()
    x, y = torch.randn(5, 7, 24, generator=torch.Generator().manual_seed(1)), torch.zeros(5, 7, 3, 24)
    mask = (torch.rand(5, 7, 2, 8, generator=torch.Generator().manual_seed(2)) >= 0.25) / 0.75
    monkeypatch.setattr(adapter, "uniform", lambda like, now: torch.where(mask.to(bool), 0.3, 0.2))
    adapter.passes.begin()
    result = adapter.project(x, y, "qkv")
    for i, j in enumerate((0, 2)):
        z = (x @ adapter.shared.A[:, i] * adapter.d[i]) * mask[:, :, i]
        torch.testing.assert_close(result[:, :, j], LATENT.alpha * (z @ adapter.shared.B[i]) * adapter.b[i])


@by_method
def test_evaluation_drops_nothing(method, images):
    plain = adapted(replace(method, dropout=0.0)).eval()
    model = adapted(method)
    assert not torch.equal(model(images), model(images))
    assert torch.equal(model.eval()(images), plain(images))
    assert model.kl_divergence() == 0


@by_method
def test_draws_are_the_passes_of_training(method, images):
    """Merging the mean changes no draw, and the draws' mean is near the scores of the mean."""
    model = adapted(method).eval()
    drawn = pvera.sample(model, images, 3, seed=5)
    with model.sampling(seed=5):
        one_by_one = torch.stack([model(images).softmax(-1) for _ in range(3)])
    torch.testing.assert_close(drawn, one_by_one.detach(), atol=1e-5, rtol=1e-4)
    assert drawn.std(0).max() > 1e-3
    assert torch.equal(drawn, pvera.sample(model, images, 3, seed=5))


def test_without_dropout_there_is_nothing_to_draw(images):
    for method in (LoRA(rank=3), VeRA(rank=8)):
        with pytest.raises(InputError, match="has no distribution to sample from"):
            pvera.sample(adapted(method).eval(), images, 2)
