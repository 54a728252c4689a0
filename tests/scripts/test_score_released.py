"""Scores of released adapters: every layout of their folders, made with PEFT, and refusals."""

import json

import pandas as pd
import peft
import pytest
import torch
from rehearsal import write_vtab
from safetensors.torch import load_file, save_file
from scripts import outcome, refusal
from tiny import randomise
from torch import nn
from transformers import Dinov2Config, Dinov2Model

from pvera.backbones import Backbone
from pvera.data import image_splits, vtab

TEST_IMAGES, CLASSES = 32, 6
CONFIG = dict(
    hidden_size=24, num_hidden_layers=2, num_attention_heads=2, image_size=518, patch_size=14
)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
pytestmark = pytest.mark.filterwarnings("ignore")


class Classifier(nn.Module):
    """An encoder with a head on its class token."""

    def __init__(self):
        super().__init__()
        self.encoder = randomise(Dinov2Model(Dinov2Config(**CONFIG)), seed=0).eval()
        self.classifier = nn.Linear(24, CLASSES)

    def forward(self, images):
        return self.classifier(self.encoder(images).last_hidden_state[:, 0])


@pytest.fixture(scope="module")
def backbone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("backbone")
    Classifier().encoder.save_pretrained(folder)
    return folder


def adapted(save_projection=True):
    """Return a PVeRA classifier of PEFT with random trained tensors."""
    options = {"modules_to_save": ["classifier"], "save_projection": save_projection}
    torch.manual_seed(0)
    model = peft.get_peft_model(
        Classifier(), peft.PveraConfig(r=16, target_modules=["q_proj", "v_proj"], **options)
    )
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.5 * torch.randn(parameter.shape)
        # Images of noise have similar features, so the head reads differences from their mean.
        noise = torch.rand(8, 3, 8, 8)
        images = nn.functional.interpolate(noise, size=224, mode="bilinear").sub(0.45).div(0.225)
        head = model.base_model.model.classifier.modules_to_save["default"]
        features = model.eval().base_model.model.encoder(images).last_hidden_state[:, 0]
        head.bias.copy_(-head.weight @ features.mean(0))
    return model


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Label DMLab's test images with PEFT's predictions, so that the correct score is 100 %."""
    root = tmp_path_factory.mktemp("vtab")
    write_vtab(root, ["dmlab", "kitti"], TEST_IMAGES)
    test = image_splits.load_split(root, "dmlab", "test", 224)
    images = test.data(Backbone(None, "", 224, MEAN, STD, ""), torch.device("cpu"))[:]
    with torch.no_grad():
        labels, bare = (model(images).argmax(1) for model in (adapted(), adapted().unload()))
    assert len(labels.unique()) > 2 and (labels != bare).float().mean() > 0.2
    lines = [
        f"{line.split()[0]} {label}\n"
        for line, label in zip(open(root / "dmlab/test.txt"), labels.tolist())
    ]
    (root / "dmlab/test.txt").write_text("".join(lines))
    findings = {}
    for name in ("dmlab", "kitti"):
        findings[name] = [finding.text for finding in vtab.check(root, name)]
    (root / vtab.RECORD).write_text(json.dumps(findings))  # as `prepare_vtab.py --accept` does
    return root


def write(folder, layout):
    """An adapter of one layout below `folder`."""
    folder = folder / "pvera_dinov2_b_dmlab"
    adapted(save_projection=layout != "redrawn").save_pretrained(folder)
    file, old = folder / "adapter_model.safetensors", {}
    if (
        layout == "head file"
    ):  # as PEFT saves an adapter of the bare encoder, with an earlier transformers
        old |= {
            "attention.q_proj": "attention.attention.query",
            "attention.v_proj": "attention.attention.value",
        }
        old |= {"model.encoder.encoder": "model.encoder"}
    tensors = load_file(file)
    for new_name, old_name in old.items():
        tensors = {name.replace(new_name, old_name): tensor for name, tensor in tensors.items()}
    if layout == "head file":
        head = {
            name: tensors.pop(f"base_model.model.classifier.{name}") for name in ("weight", "bias")
        }
        save_file(head, folder / "classifier.safetensors")
    save_file(tensors, file)
    return folder


@pytest.fixture
def arguments(tmp_path, data, backbone):
    folders = (
        "--source",
        tmp_path,
        "--data",
        data,
        "--backbone",
        backbone,
        "--output",
        tmp_path / "out",
    )
    return [*folders, "--device", "cpu"]


COLUMNS = "dataset,paper,backbone,copy,accuracy,test_images"


@pytest.mark.parametrize("layout", ["head file", "redrawn"])
def test_layouts(tmp_path, arguments, capsys, layout):
    write(tmp_path, layout)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "accuracy.csv").write_text(f"{COLUMNS}\nkitti,1,mine,none,1,9\n")
    status, output, errors = outcome("score_released", capsys, *arguments, "--datasets", "dmlab")
    assert status == 0, errors
    assert output.splitlines()[-1].split()[-2:] == ["100.0", "32"]
    table = pd.read_csv(tmp_path / "out" / "accuracy.csv").set_index("dataset")
    row, other = table.loc["dmlab"], table.loc["kitti"]
    assert other["accuracy"] == 1.0, "the row of another data set stays"
    assert (row["accuracy"], row["paper"], row["test_images"], row["copy"]) == (
        100,
        48.6,
        32,
        "differs from VTAB-1k",
    )


def test_refused(tmp_path, arguments, capsys):
    def refused(message, *options) -> None:
        assert message in refusal(
            "score_released", capsys, *arguments, "--datasets", "dmlab", *options
        )

    refused("has no adapter for dmlab: it must lie in pvera_dinov2_b_dmlab")
    (write(tmp_path, "head file") / "classifier.safetensors").unlink()
    refused("holds no head")
    refused("give its folder with --backbone", "--backbone", tmp_path / "none")
    assert not (tmp_path / "out" / "accuracy.csv").exists()
