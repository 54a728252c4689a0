"""Backbones: the packaged one, names, weights from files; pretraining end to end on a small archive."""

import hashlib
import json
import os
import runpy
import time
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import safetensors
import scripts
import timm
import torch
from PIL import Image
from safetensors.torch import load_file

from pvera import backbones, processes
from pvera.errors import InputError

ROOT = Path(__file__).parents[2]
WEIGHTS = ROOT / "pvera" / "weights" / "vit_tiny_patch8_32.safetensors"
SCRIPT = ROOT / "experiments" / "pretrain_tiny.py"
EPOCHS = 8


def metadata(path):
    with safetensors.safe_open(path, "pt") as file:
        return {key: json.loads(value) for key, value in file.metadata().items()}


def one_line(error):
    assert "\n" not in str(error.value) and len(str(error.value)) < 400
    return str(error.value)


def test_tiny_loads_frozen_and_in_evaluation_mode():
    tiny = backbones.load("tiny")
    assert tiny.image_size == 32 and not tiny.model.training
    assert all(p.dtype == torch.float32 and not p.requires_grad for p in tiny.model.parameters())
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    assert tiny.model.forward_features(images).shape == (2, 4 * 4 + 1, 96)
    # The head reads the normalised class token.
    torch.testing.assert_close(tiny.model(images), tiny.model.forward_features(images)[:, 0])


def test_tiny_has_its_trained_weights():
    tiny, file = backbones.load("tiny"), load_file(WEIGHTS)
    assert tiny.model.state_dict().keys() == file.keys()
    assert all(torch.equal(file[key], tensor) for key, tensor in tiny.model.state_dict().items())
    assert tiny.weights_sha256 != backbones.load("tiny", pretrained=False).weights_sha256


def test_card_metadata_and_weights_agree():
    card, made = WEIGHTS.with_suffix(".md").read_text(), metadata(WEIGHTS)
    assert WEIGHTS.stat().st_size <= 4e6
    assert made["weights_sha256"] == backbones.load("tiny").weights_sha256
    assert made["weights_sha256"] in card
    assert f"{100 * made['held_out_accuracy']:.2f} %" in card
    assert made["architecture"] == backbones.TINY_ARCHITECTURE
    assert f"--epochs {made['epochs']} " in card and f"--seed {made['seed']}" in card
    assert (made["training_images"], made["held_out_images"]) == (45_000, 5_000)


def test_hash_sees_names_shapes_types_and_values():
    state = {"a": torch.zeros(2, 3), "b": torch.ones(4)}
    variants = [
        state,
        {"c": state["a"], "b": state["b"]},
        state | {"a": torch.zeros(3, 2)},
        state | {"a": torch.zeros(2, 3, dtype=torch.int32)},
        state | {"b": torch.tensor([1.0, 1.0, 1.0, 1.0 + 2**-23])},
    ]
    assert len({backbones.weights_sha256(v) for v in variants}) == len(variants)
    assert backbones.weights_sha256(dict(reversed(state.items()))) == backbones.weights_sha256(state)


def test_random_weights_come_from_the_seed_and_leave_the_global_generator_alone():
    before = torch.get_rng_state()
    hashes = [backbones.load("tiny", pretrained=False, seed=seed).weights_sha256 for seed in (0, 0, 1)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert torch.equal(torch.get_rng_state(), before)


def test_dinov2_has_257_tokens_and_reads_weights_from_a_file(tmp_path):
    small = backbones.load("dinov2_s", pretrained=False)
    assert small.image_size == 224 and small.model.pos_embed.shape == (1, 257, 384)
    assert small.mean == (0.485, 0.456, 0.406) and small.std == (0.229, 0.224, 0.225)
    torch.save(small.model.state_dict(), tmp_path / "weights.pth")
    read = backbones.load("dinov2_s", weights=tmp_path / "weights.pth", seed=1)
    assert read.weights_sha256 == small.weights_sha256
    assert read.file_sha256 == hashlib.sha256((tmp_path / "weights.pth").read_bytes()).hexdigest()
    assert small.file_sha256 is None


def test_published_weights_are_named_by_their_file_in_the_hubs_cache(tmp_path, monkeypatch):
    """A stand-in for the cache that a download leaves."""
    state = backbones.load("dinov2_s", pretrained=False).model.state_dict()
    snapshots = tmp_path / "models--timm--vit_small_patch14_dinov2.lvd142m" / "snapshots"
    file = snapshots / "abc" / "model.safetensors"
    file.parent.mkdir(parents=True)
    (snapshots.parent / "refs").mkdir()
    (snapshots.parent / "refs" / "main").write_text("abc")
    safetensors.torch.save_file(state, file)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    for module in ("constants", "file_download"):
        monkeypatch.setattr(f"huggingface_hub.{module}.HF_HUB_CACHE", str(tmp_path), raising=False)
    loaded = backbones.load("dinov2_s")
    assert loaded.weights_sha256 == backbones.weights_sha256(state)
    assert loaded.file_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


def test_dinov2_with_other_tokens_is_refused(monkeypatch):
    name, _ = backbones.NAMES["dinov2_s"]
    monkeypatch.setitem(backbones.NAMES, "dinov2_s", (name, {}))
    with pytest.raises(InputError) as error:
        backbones.load("dinov2_s", pretrained=False)
    assert "dinov2_s has 37x37 + 1 tokens, not 16x16 + 1" in one_line(error)


def test_position_embedding_of_518_pixels_is_resampled_to_224(tmp_path):
    """The published weights have 37 x 37 positions and a mask token."""
    state = dict(backbones.load("dinov2_s", pretrained=False).model.state_dict())
    state["pos_embed"] = torch.full((1, 1 + 37 * 37, 384), 0.5)
    state["mask_token"] = torch.zeros(1, 384)
    safetensors.torch.save_file(state, tmp_path / "weights.safetensors")
    read = backbones.load("dinov2_s", weights=tmp_path / "weights.safetensors").model.pos_embed
    torch.testing.assert_close(read, torch.full((1, 257, 384), 0.5))


@pytest.mark.parametrize(
    "name, says",
    [
        ("vit_nonsense", "unknown backbone"),
        ("resnet18", "fused"),
        ("vit_base_patch14_dinov2.nonsense", "tag"),
    ],
)
def test_unsuitable_names(name, says):
    with pytest.raises(InputError) as error:
        backbones.load(name, pretrained=False)
    assert says in one_line(error)


def test_download_without_network_says_what_to_get(monkeypatch):
    def no_network(*args, **kwargs):
        raise OSError("no route to host")

    monkeypatch.setattr("timm.models._builder.load_state_dict_from_hf", no_network)
    with pytest.raises(InputError) as error:
        backbones.load("dinov2_s")
    assert "huggingface.co/timm/vit_small_patch14_dinov2.lvd142m" in one_line(error)
    assert "--weights dinov2_s=FILE" in str(error.value)


def damaged_safetensors(path):
    path.write_bytes(WEIGHTS.read_bytes()[:-1000])


def not_a_pickle(path):
    path.write_bytes(b"not a pickle")


def pickled_code(path):
    torch.save({"blocks": os.system}, path)


def other_architecture(path):
    torch.save({"blocks.0.norm1.weight": torch.ones(5)}, path)


@pytest.mark.parametrize(
    "name, write",
    [
        ("a.safetensors", damaged_safetensors),
        ("a.pth", not_a_pickle),
        ("a.pth", pickled_code),
        ("a.pth", other_architecture),
        ("a.txt", not_a_pickle),
        ("missing.pth", lambda path: None),
    ],
)
def test_unsuitable_weights(tmp_path, name, write):
    write(tmp_path / name)
    with pytest.raises(InputError) as error:
        backbones.load("tiny", weights=tmp_path / name)
    assert name in one_line(error)


# The pretraining, on 2 x 40 images of noise around each class's mean.


def member(rng, mean, size=32):
    pixels = rng.normal(mean, 40, (size, size, 3)).clip(0, 255).astype(np.uint8)
    content = BytesIO()
    Image.fromarray(pixels).save(content, "png")
    return content.getvalue()


@pytest.fixture(scope="module")
def members():
    rng = np.random.default_rng(0)
    return {
        f"{folder}/{n:03}.png": member(rng, mean) for folder, mean in (("dark", 90), ("light", 160)) for n in range(40)
    }


def write_zip(path, members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


@pytest.fixture(scope="module")
def archive(tmp_path_factory, members):
    return write_zip(tmp_path_factory.mktemp("source") / "source.zip", members)


def arguments(source, output, *options):
    small = ("--held-out", "8", "--batch-size", "16", "--warmup-epochs", "0", "--epochs", str(EPOCHS))
    return ["--source", str(source), "--output", str(output), *small, *options]


def pretrain(*args):
    scripts.execute("pretrain_tiny", *arguments(*args))


@pytest.fixture(scope="module")
def trained(archive, tmp_path_factory):
    output = tmp_path_factory.mktemp("whole") / "weights.safetensors"
    pretrain(archive, output)
    return output


@pytest.mark.xdist_group("fork server")
def test_pretraining_ends_with_weights_that_load(trained):
    made = metadata(trained)
    assert made["weights_sha256"] == backbones.load("tiny", weights=trained).weights_sha256
    assert made["classes"] == ["dark", "light"]
    assert (made["training_images"], made["held_out_images"]) == (64, 16)
    assert made["held_out_accuracy"] > 0.8  # brightness alone tells the classes apart
    assert [p.name for p in trained.parent.iterdir()] == [trained.name]


@pytest.mark.xdist_group("fork server")
@pytest.mark.slow
def test_pretraining_repeats_and_resumes_bit_for_bit(archive, trained, tmp_path, capsys):
    """A run is killed after its first epoch; another resumes from its checkpoint."""
    output = tmp_path / "weights.safetensors"
    checkpoint = output.with_suffix(".checkpoint")
    context = processes.context("pvera.study.runs")  # one server serves all tests of the group
    process = context.Process(target=pretrain, args=(archive, output))
    process.start()
    while not checkpoint.exists() and process.is_alive():
        time.sleep(0.005)
    process.kill()
    process.join()
    assert 1 <= torch.load(checkpoint, weights_only=True)["epoch"] < EPOCHS and not output.exists()
    pretrain(archive, output)
    assert "epoch 1:" not in capsys.readouterr().out
    assert metadata(output)["weights_sha256"] == metadata(trained)["weights_sha256"]


def refused(capsys, args, *says):
    status, _, errors = scripts.outcome("pretrain_tiny", capsys, *arguments(*args))
    error = errors.splitlines()[-1]  # progress bars come before it
    assert status == 2 and error.startswith("error: ") and all(s in error for s in says), error


@pytest.mark.xdist_group("fork server")
def test_existing_weights_are_kept(archive, trained, capsys):
    before = trained.read_bytes()
    refused(capsys, (archive, trained), "--force")
    assert trained.read_bytes() == before


def test_a_checkpoint_of_other_arguments_is_not_resumed(archive, tmp_path, capsys):
    output = tmp_path / "weights.safetensors"
    torch.save({"config": "{}"}, output.with_suffix(".checkpoint"))
    refused(capsys, (archive, output), "other arguments")
    output.with_suffix(".checkpoint").write_bytes(b"damaged")
    refused(capsys, (archive, output), "damaged")
    assert not output.exists()


@pytest.mark.parametrize(
    "option, value", [("--epochs", "0"), ("--lr", "-1"), ("--crop-scale", "2"), ("--held-out", "40")]
)
def test_arguments_out_of_range(archive, tmp_path, capsys, option, value):
    refused(capsys, (archive, tmp_path / "weights.safetensors", option, value), option)
    assert not any(tmp_path.iterdir())


ODD = {
    "name": ({"dark/portrait.png": b""}, "'dark/portrait.png' is not named"),
    "size": ({"light/040.png": member(np.random.default_rng(1), 100, size=48)}, "light/040.png has (48, 48)"),
    "broken": ({"light/040.png": b"no image"}, "cannot read light/040.png"),
    "large": ({"light/040.png": bytes(1 << 21)}, "light/040.png has 2097152 bytes"),
    "few": ({"new/000.png": member(np.random.default_rng(1), 100)}, "has only 1 image"),
}


@pytest.mark.parametrize("odd, says", ODD.values(), ids=ODD)
def test_archives_with_an_odd_member(members, tmp_path, capsys, odd, says):
    source = write_zip(tmp_path / "source.zip", members | odd)
    refused(capsys, (source, tmp_path / "weights.safetensors"), says)
    assert not list(tmp_path.glob("weights*"))


def test_torchvision_images_are_ordered_by_class(monkeypatch):
    class Downloaded:
        classes = ["airplane", "automobile"]
        targets = [1, 0, 1, 0]
        data = np.arange(4, dtype=np.uint8).reshape(4, 1, 1, 1)

        def __init__(self, folder, train, download):
            assert train and download

    monkeypatch.setattr("torchvision.datasets.CIFAR10", Downloaded)
    images, labels, classes = runpy.run_path(str(SCRIPT))["read_torchvision"]("folder")
    assert images.ravel().tolist() == [1, 3, 0, 2] and labels.tolist() == [0, 0, 1, 1]
    assert classes == Downloaded.classes


def test_sources_that_are_no_archive_of_classes(members, tmp_path, capsys):
    output = tmp_path / "weights.safetensors"
    refused(capsys, (tmp_path / "missing.zip", output), "missing.zip: no such file")
    (tmp_path / "text.zip").write_text("no archive")
    refused(capsys, (tmp_path / "text.zip", output), "text.zip: not a readable zip archive")
    write_zip(tmp_path / "one.zip", {k: v for k, v in members.items() if k.startswith("dark")})
    refused(capsys, (tmp_path / "one.zip", output), "two classes")


@pytest.mark.parametrize("name, size", [("xcit_nano_12_p16_224", 224), ("naflexvit_base_patch16_gap", 384)])
def test_models_that_embed_patches_in_their_own_way(name, size, monkeypatch):
    create = timm.create_model
    monkeypatch.setattr(timm, "create_model", lambda *args, **options: create(*args, **options, device="meta"))
    monkeypatch.setattr(backbones, "weights_sha256", lambda state: "")
    assert backbones.load(name, pretrained=False).image_size == size


def test_dinov3_gets_the_class_token_under_its_short_name():
    vit = backbones.shapes("dinov3_s")
    assert vit.global_pool == "token"
    assert timm.create_model("vit_small_patch16_dinov3.lvd1689m", device="meta").global_pool == "avg"


def test_the_small_backbone_takes_other_sizes():
    """As timm's models do: another depth, another width."""
    model = timm.create_model("vit_tiny_patch8_32", depth=2, embed_dim=48, num_classes=0)
    assert len(model.blocks) == 2 and model(torch.zeros(1, 3, 32, 32)).shape == (1, 48)
