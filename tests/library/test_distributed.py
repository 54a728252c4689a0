"""Two processes on one machine: DDP and FSDP2 train as one process does, with noise of each
rank's own.
"""

import multiprocessing

import pytest
import torch
from tiny import CLASSES, METHODS, adapted, make_images, make_vit
from torch import distributed
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import pvera
from pvera import InputError

RANKS = 2
IMAGES, LABELS = make_images(4), torch.tensor([0, 1, 2, 3])


def gradients(model, forward, rows) -> dict:
    """Return the gradients of one step with z = μ."""
    model.eval()
    (cross_entropy(forward(IMAGES[rows]), LABELS[rows]) + 0.1 * model.kl_divergence()).backward()
    return {name: p.grad for name, p in model.members[0].trainable_tensors().items()}


def sharded(key):
    model = adapted(key)
    for block in model.backbone.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def ddp(key, own):
    alone, model = adapted(key), adapted(key)
    expected = gradients(alone, alone, slice(None))
    torch.testing.assert_close(
        gradients(model, DistributedDataParallel(model), own), expected, rtol=1e-4, atol=1e-5
    )


def fsdp2(key, own):
    alone, model = adapted(key), sharded(key)
    expected, parts = gradients(alone, alone, slice(None)), gradients(model, model, own)
    assert any(hasattr(gradient, "full_tensor") for gradient in parts.values())
    whole = {name: g.full_tensor() if hasattr(g, "full_tensor") else g for name, g in parts.items()}
    torch.testing.assert_close(whole, expected, rtol=1e-4, atol=1e-5)
    if model.members[0].is_stochastic:
        drawn = pvera.sample(model, IMAGES, 2, seed=3)
        torch.testing.assert_close(drawn, pvera.sample(alone, IMAGES, 2, seed=3), rtol=0, atol=1e-5)
    gathered = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    again = pvera.adapt(make_vit(seed=1), METHODS[key], CLASSES)
    again.load_state_dict(gathered)
    assert torch.equal(again.eval()(IMAGES), alone(IMAGES))


def check_noise():
    """Ranks draw differently in training, alike from a seed of the user's, and again differently
    after resuming.
    """
    model = adapted("pvera").train()

    def on_both_ranks(logits):
        gathered = [torch.empty_like(logits) for _ in range(RANKS)]
        distributed.all_gather(gathered, logits.detach())
        return gathered

    first = on_both_ranks(model(IMAGES))
    assert not torch.allclose(*first, atol=1e-3)
    with model.sampling(seed=1):
        assert torch.equal(*on_both_ranks(model(IMAGES)))
    resumed = adapted("pvera").train()
    states = [model.state_dict()]
    distributed.broadcast_object_list(states, src=0)
    resumed.load_state_dict(states[0])
    after, expected = on_both_ranks(resumed(IMAGES)), on_both_ranks(model(IMAGES))
    assert torch.equal(after[0], expected[0]) and not torch.allclose(*after, atol=1e-3)


def run(rank: int, folder, queue) -> None:
    torch.set_num_threads(1)
    try:
        distributed.init_process_group(
            "gloo", init_method=f"file://{folder / 'store'}", rank=rank, world_size=RANKS
        )
        for key in ("pvera", "ia3", "adaptformer"):  # of projections, of the MLP, and beside it
            for check in (ddp, fsdp2):
                check(key, slice(2 * rank, 2 * rank + 2))
            for use in (
                pvera.AdaptedModel.merge_,
                pvera.checkpoint.dumps,
                lambda model: pvera.export_peft(model, "a"),
            ):
                with pytest.raises(InputError):
                    use(sharded(key))
        check_noise()
        distributed.destroy_process_group()
        queue.put("done")
    except BaseException as error:
        queue.put(f"rank {rank}: {type(error).__name__} {error}")
        raise


def test_two_processes(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pvera"])
    queue = context.Queue()
    ranks = [
        context.Process(target=run, args=(rank, tmp_path, queue), daemon=True)
        for rank in range(RANKS)
    ]
    for process in ranks:
        process.start()
    assert [queue.get(timeout=250) for _ in ranks] == ["done"] * RANKS
    for process in ranks:
        process.kill()
