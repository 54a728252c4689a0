"""Copies, pickles and states of adapted models stand for themselves."""

import copy
import pickle

import pytest
import torch
from tiny import CLASSES, METHODS, adapted, make_vit

import pvera
from pvera import processes

COPIES = {"deepcopy": copy.deepcopy, "pickle": lambda model: pickle.loads(pickle.dumps(model))}


@pytest.mark.parametrize("copying", COPIES)
def test_a_merged_copy_can_be_unmerged(copying, images):
    model = adapted().eval()
    expected = model(images)
    twin = COPIES[copying](model.merge_())
    assert torch.equal(twin(images), model(images))
    assert torch.equal(twin.unmerge_()(images), expected)
    assert model.merged


def logits_of(model, images, queue):
    torch.set_num_threads(1)
    queue.put(model(images).detach().numpy())


@pytest.mark.xdist_group("fork server")
def test_another_process_gets_the_model(images):
    model = adapted().eval()
    context = processes.context("pvera")
    queue = context.Queue()
    process = context.Process(target=logits_of, args=(model, images, queue))
    process.start()
    logits = torch.from_numpy(queue.get(timeout=120))
    process.join()
    torch.testing.assert_close(logits, model(images).detach(), rtol=0, atol=1e-6)


@pytest.mark.parametrize("parent", [False, True], ids=["alone", "in a parent"])
@pytest.mark.parametrize("key", ["ia3", "dora", "lora", "vera", "pvera"])
def test_the_state_means_the_same_merged_or_not(key, parent, images):
    model = adapted(key).eval()
    expected, plain = model(images), {n: t.clone() for n, t in model.state_dict().items()}
    model.merge_()
    state = (torch.nn.Sequential(model) if parent else model).state_dict()
    assert state.keys() == {f"0.{name}" if parent else name for name in plain}
    assert all(torch.equal(tensor, plain[name.removeprefix("0.")]) for name, tensor in state.items())
    fresh = pvera.adapt(make_vit(seed=2), METHODS[key], CLASSES, seed=1).eval()
    (torch.nn.Sequential(fresh) if parent else fresh).load_state_dict(state)
    assert torch.equal(fresh(images), expected)
    # The backbone alone is what is merged.
    assert not all(torch.equal(t, plain[f"backbone.{n}"]) for n, t in model.backbone.state_dict().items())


@pytest.mark.parametrize("parent", [False, True], ids=["alone", "in a parent"])
def test_a_merged_model_takes_no_state(parent):
    model = adapted()
    state = (torch.nn.Sequential(model) if parent else model).state_dict()
    model.merge_()
    with pytest.raises(RuntimeError, match=r"unmerge_\(\) first"):
        (torch.nn.Sequential(model) if parent else model).load_state_dict(state)
