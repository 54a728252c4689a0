"""Input that is refused, in one line and with nothing changed; how errors, files and scripts
end.
"""

import io
import math
import multiprocessing
import os
import resource
import stat
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import accelerate
import numpy as np
import pytest
import timm
import torch
from encoders import SIZE, make_text
from families import make, refused
from tiny import CLASSES, METHODS, adapted, make_images, make_vit
from tiny import refused as refused_call
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2Model,
    RobertaPreLayerNormConfig,
    RobertaPreLayerNormModel,
)
from windows import refuse_open_files

import pvera
from pvera import IA3, Bottleneck, InputError, LoRA, metrics, uncertainty
from pvera.errors import as_input_error, run_script
from pvera.files import write_atomically

FORM = "has layers of another form than those that are adapted: "


def of_two_widths():
    vit = make_vit()
    vit.blocks[1] = make_vit(dim=32).blocks[1]
    return vit


def all_tokens_of_xcit():
    xcit = make("xcit_nano_12_p8_224")
    xcit.reset_classifier(0, global_pool="")
    return xcit


def one_layer_twice():
    vit = make_vit()
    vit.blocks[1].attn.qkv = vit.blocks[0].attn.qkv
    return vit


def offloaded():
    """The weights stay in memory, and come to a layer only for its pass."""
    return accelerate.cpu_offload(make_vit(), torch.device("cpu"))


def buffer_on_meta():
    """As after load_state_dict(assign=True), which leaves out buffers that no state holds."""
    vit = make("vit_base_patch16_dinov3")
    vit.rope.periods = vit.rope.periods.to("meta")
    return vit


def of_timm(name: str):
    return lambda: timm.create_model(name, num_classes=0, device="meta")


@pytest.mark.parametrize(
    "make_encoder, message",
    [
        (lambda: torch.nn.Linear(3, 3), f"Linear {FORM}Linear has no attribute `blocks`"),
        (lambda: make_vit(depth=0), "VisionTransformer has no layers"),
        (of_two_widths, "out_features=96, bias=True) is no linear layer to 3 times the width"),
        (of_timm("swin_tiny_patch4_window7_224"), f"SwinTransformer {FORM}"),
        (
            of_timm("vit_base_patch16_xp_224"),
            f"VisionTransformer {FORM}ParallelScalingBlock has no",
        ),
        (
            of_timm("vit_large_patch16_sapiens2"),
            "Linear(in_features=1024, out_features=512, bias=True) is no linear layer to 1 times",
        ),
        (
            of_timm("hiera_tiny_224"),
            "Hiera: Linear(in_features=96, out_features=576, bias=True) is no linear layer",
        ),
        (of_timm("samvit_base_patch16"), "not one vector of the layers' width"),
        (of_timm("qwen3_vit_88m_enc"), "not one vector of the layers' width"),
        (lambda: make_vit(num_classes=10), "create it with num_classes=0"),
        (
            lambda: make_vit(global_pool=""),
            "VisionTransformer returns all tokens: create it with a global_pool",
        ),
        (all_tokens_of_xcit, "Xcit returns all tokens: create it with a global_pool"),
        (one_layer_twice, "VisionTransformer uses one linear layer in two places"),
        (lambda: make_vit().to("meta"), "cls_token is on the meta device, and has no numbers here"),
        (offloaded, "is on the meta device, and has no numbers here: load the weights first"),
        (
            lambda: BertModel(BertConfig(**SIZE)).to("meta"),
            "word_embeddings.weight is on the meta device",
        ),
        (buffer_on_meta, "rope.periods is on the meta device"),
        (
            lambda: torch.ao.quantization.quantize_dynamic(make_vit(), inplace=True),
            "dtype=torch.qint8, ",
        ),
        (lambda: BertForSequenceClassification(BertConfig(**SIZE)), FORM),
        (
            lambda: GPT2Model(
                GPT2Config(vocab_size=50, n_positions=8, n_embd=24, n_layer=1, n_head=2)
            ),
            FORM,
        ),
        # It has BERT's module names, but its norms are in other places.
        (
            lambda: RobertaPreLayerNormModel(RobertaPreLayerNormConfig(**SIZE)),
            f"RobertaPreLayerNormModel {FORM}",
        ),
    ],
)
def test_backbones(make_encoder, message):
    reason = refused(make_encoder().train())
    assert message in reason
    assert ("num_classes=0" in reason) is (
        "num_classes=0" in message
    )  # the others were made with it


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"num_classes": -1}, "num_classes must be a whole number from 0, not -1"),
        ({"num_classes": True}, "num_classes must be a whole number from 0, not True"),
        ({"seed": None}, "seed must be a whole number, or one for each member, not None"),
        ({"method": [LoRA(), LoRA()], "seed": [0, True]}, "seed must be a whole number"),
        ({"method": []}, "one method, or a non-empty sequence"),
        ({"method": "lora"}, "one method, or a non-empty sequence"),
        ({"method": [LoRA(), LoRA()], "seed": [0]}, "as many seeds"),
        ({"method": [LoRA(), IA3()]}, "members of a grid must adapt the same places"),
        ({"method": Bottleneck(ratio=25)}, "ratio 25 leaves no hidden unit of width 24"),
        ({"pool": "mean"}, "not 'mean'; of images, the backbone pools"),
        ({"pool": "max"}, "pool must be one of first, mean, not 'max'"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_arguments(vit, arguments, message):
    assert message in refused(vit.train(), **arguments)


TEXT = make_text()
MASK = torch.tensor([[1], [0], [1]]) * TEXT["attention_mask"]  # the second text is padding alone


@pytest.mark.parametrize(
    "inputs, pool, message",
    [
        ([1], None, "the model takes images: a floating-point tensor"),
        (TEXT, None, "(batch, 3, height, width), not dict"),
        (torch.zeros(3, 32, 32), None, "(batch, 3, height, width)"),
        (torch.zeros(2, 3, 32, 32, dtype=torch.uint8), None, "floating-point tensor"),
        (make_images(2), "first", "return_tensors='pt', not torch.float32 of shape"),
        ({"input_ids": [[1, 2]]}, "first", "return_tensors='pt'"),
        (
            TEXT | {"attention_mask": MASK},
            "first",
            "padding comes first, or alone, in a text: pad on the right",
        ),
        ({name: tensor.flip(1) for name, tensor in TEXT.items()}, "first", "pad on the right"),
        (TEXT | {"attention_mask": MASK}, "mean", "padding comes first, or alone, in a text"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_inputs(inputs, pool, message):
    encoder = make_vit() if pool is None else make("BertModel")
    model = pvera.adapt(encoder, METHODS["pvera"], CLASSES, pool=pool or "first")
    refused_call(lambda: model(inputs), message)


@torch.no_grad()
def with_numbers(model, name, number):
    """Return the model, in whose last layer each number of a trained tensor is this one."""
    model.members[0].layers[-1].get_parameter(name).fill_(number)
    return model


def without_active_members():
    model = adapted()
    model.active = []
    return model


def activate(indices):
    model = adapted()
    model.active = indices


SCORES, IMAGES = np.full((3, 4, 2), 0.5), make_images()
#: Calls, and what their refusal says.
CALLS = [
    (lambda: pvera.sample(make_vit(), IMAGES, k=2), "a model that adapt() returned, not"),
    (lambda: pvera.sample(adapted("lora"), IMAGES, k=2), "has no distribution to sample from"),
    (
        lambda: pvera.sample(with_numbers(adapted(), "d", math.nan), IMAGES, k=2),
        "sample(): layers.1.d holds NaN",
    ),
    (
        lambda: with_numbers(adapted(), "b", math.inf).merge_(),
        "merge_(): layers.1.b holds NaN or infinite",
    ),
    (lambda: activate([1]), "active=[1] names a member that is not there"),
    (lambda: activate([-1]), "active=[-1] names a member that is not there"),
    (lambda: uncertainty.estimate(SCORES[:1], np.zeros(4, int)), "k = 2 or more"),
    (lambda: uncertainty.estimate(5 * SCORES, np.zeros(4, int)), "sum to one"),
    (lambda: uncertainty.estimate(SCORES, np.full(4, -1)), "labels -1 to -1"),
    (lambda: uncertainty.estimate(SCORES, np.zeros(1, int)), "labels (1,) are not"),
    (lambda: without_active_members()(IMAGES), "no member is active: set `active`"),
]


@pytest.mark.parametrize("call, message", CALLS, ids=[message for _, message in CALLS])
def test_calls(call, message):
    refused_call(call, message)


@pytest.mark.parametrize(
    "metric", [metrics.ece, metrics.ace, metrics.nll, metrics.brier, metrics.evaluate]
)
@pytest.mark.parametrize(
    "probabilities, labels",
    [
        (np.full((2, 2), 0.5), [0]),
        (np.full(2, 0.5), [0, 1]),
        (np.empty((0, 2)), []),
        (np.full((2, 2), 0.5), [0, 2]),
        (np.full((2, 2), 0.5), [-1, 0]),
        (np.full((2, 2), 0.5), [0.5, 1]),
        (np.full((2, 2), 5.0), [0, 1]),
        (np.array([[1.5, -0.5]]), [0]),
        (np.array([[np.nan, 1.0]]), [0]),
    ],
)
def test_metrics(metric, probabilities, labels):
    with pytest.raises(InputError):
        metric(probabilities, np.array(labels))


# Errors, files and scripts


ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "message, said",
    [
        ("no  such\nfile", "no such file"),
        ("", "ValueError"),
        ("word " * 60, "word " * 39 + "wor …"),
        ("missing: " + "/folder" * 60, ("missing: " + "/folder" * 60)[:198] + " …"),
    ],
)
def test_long_messages_are_cut_but_not_dropped(message, said):
    with pytest.raises(InputError) as caught, as_input_error("pets", "try again"):
        raise ValueError(message)
    assert str(caught.value) == f"pets: {said}; try again"
    assert isinstance(caught.value.__cause__, ValueError)


@pytest.mark.parametrize(
    "encoding, printed", [("ascii", r"\u03b2 caf\xe9 \udcff"), ("latin-1", "\\u03b2 café \\udcff")]
)
def test_scripts_print_on_any_terminal(encoding, printed, monkeypatch):
    """Output and an error's line, also with a file name that is no UTF-8."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding) for name in ("stdout", "stderr")}

    def main():
        print("β café \udcff")
        raise InputError("β café \udcff")

    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    with pytest.raises(SystemExit) as ended:
        run_script(main)
    assert ended.value.code == 2
    for name, prefix in (("stdout", ""), ("stderr", "error: ")):
        streams[name].flush()
        assert streams[name].buffer.getvalue().decode(encoding) == f"{prefix}{printed}\n"


def files(place: Path) -> list[str]:
    return sorted(path.name for path in place.rglob("*") if path.is_file())


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    write_atomically(tmp_path / "table.md", b"old")
    # A limit on the size of files stops the write in the kernel, as a full disk does.
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10**5, hard))
    try:
        with pytest.raises(InputError, match=f"cannot write {tmp_path}/table.md: File too large"):
            write_atomically(tmp_path / "table.md", bytes(2 * 10**5))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert files(tmp_path) == ["table.md"] and (tmp_path / "table.md").read_bytes() == b"old"


def test_several_processes_write_one_file(tmp_path):
    path, names = tmp_path / "seed0.json", b"abcd"
    fork = multiprocessing.get_context("fork")

    def write(name: int) -> None:
        for _ in range(150):
            write_atomically(path, bytes([name]) * 1000)

    writers = [fork.Process(target=write, args=(name,)) for name in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == 4 * [0]
    assert path.read_bytes() in [bytes([name]) * 1000 for name in names] and files(tmp_path) == [
        path.name
    ]


@pytest.mark.parametrize("exists", [True, False])
@pytest.mark.parametrize("links", [["target"], ["second", "target"], ["folder/target"]])
def test_a_link_is_followed(tmp_path, links, exists):
    """Also a link to a link, one through a folder that is a link, and one to what is not there
    yet.
    """
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to("real")
    names = ["link", *links]
    target = tmp_path / names[-1]
    if exists:
        target.write_text("old")
    for name, leads_to in zip(names, links, strict=False):
        (tmp_path / name).symlink_to(leads_to)

    write_atomically(tmp_path / "link", "new")

    assert target.read_text() == "new" and not target.is_symlink()
    assert all((tmp_path / name).is_symlink() for name in names[:-1])


@pytest.mark.parametrize("umask", [0o022, 0o027, 0o077, 0o002])
def test_the_mode_is_that_of_the_old_file_or_the_umasks(tmp_path, umask):
    old, new = tmp_path / "old", tmp_path / "new"
    old.touch()
    old.chmod(0o604)
    before = os.umask(umask)
    try:
        for file in (old, new):
            write_atomically(file, "text")
    finally:
        os.umask(before)
    assert stat.S_IMODE(old.stat().st_mode) == 0o604
    assert stat.S_IMODE(new.stat().st_mode) == 0o666 & ~umask


def test_a_pipe_is_written_to(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        for path in (pipe, tmp_path / "link"):
            write_atomically(path, "text")
            assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert pipe.is_fifo() and (tmp_path / "link").is_symlink()


def test_a_device_is_written_to(tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, stat.S_IFCHR | 0o600, os.makedev(1, 3))
        device.write_bytes(b"")
    except PermissionError:
        pytest.skip("no device can be made here")
    write_atomically(device, "text")
    assert device.is_char_device()


def test_files_are_closed_before_they_are_replaced_or_removed(tmp_path, monkeypatch):
    refuse_open_files(monkeypatch)
    for text in ("first", "second"):
        write_atomically(tmp_path / "table.md", text)

    monkeypatch.setattr(os, "fsync", MagicMock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "table.md", "third")
    assert files(tmp_path) == ["table.md"] and (tmp_path / "table.md").read_text() == "second"


@pytest.mark.parametrize("count, end", [(1, "0"), (10**5, "0"), (1, "exit(1)")])
def test_a_reader_that_leaves_early_ends_a_script_quietly(count, end):
    """As `head` does: on the last flush, and in between."""
    # Without importing torch.
    code = "import runpy; run_script = runpy.run_path('pvera/errors.py')['run_script']\n"
    code += f"run_script(lambda: ([print('line') for _ in range({count})], {end}))"
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    process = subprocess.Popen([sys.executable, "-c", code], env=buffered, cwd=ROOT, **pipes)
    process.stdout.close()
    assert process.stderr.read() == "" and process.wait() == 141
