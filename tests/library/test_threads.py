"""Threads that share an adapted model wait for one another; test_training_loops.py has those that predict."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tiny import METHODS, make_images, make_vit, perturb

import pvera

TIMES = 40


@pytest.fixture
def model():
    return perturb(pvera.adapt(make_vit(depth=4), METHODS["pvera"], 5)).eval()


def all_equal(tensors, expected):
    return all(torch.equal(tensor, expected) for tensor in tensors)


def test_two_threads_sample(model):
    images = make_images(16)
    expected = [pvera.sample(model, images, k=4, seed=seed) for seed in (0, 1)]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with ThreadPoolExecutor(2) as pool:
        drawn = list(pool.map(lambda i: pvera.sample(model, images, k=4, seed=i % 2), range(TIMES)))
    assert all_equal(drawn[::2], expected[0]) and all_equal(drawn[1::2], expected[1])
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_one_merges_while_the_other_predicts(model):
    images = make_images(16)
    mean = model(images)
    with ThreadPoolExecutor(2) as pool, torch.no_grad():
        merging = pool.submit(lambda: [model.merge_().unmerge_() for _ in range(TIMES)])
        passes = [model(images) for _ in range(TIMES)]
        merging.result()
    for logits in passes:
        torch.testing.assert_close(logits, mean, rtol=0, atol=1e-5)
