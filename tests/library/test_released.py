"""The page's score of a released adapter, in every layout of their folders, made with PEFT."""

import huggingface_hub
import pages
import peft
import pytest
import torch
from rehearsal import write_vtab
from safetensors.torch import load_file, save_file
from tiny import randomise
from torch import nn
from transformers import Dinov2Config, Dinov2Model

from pvera import InputError
from pvera.backbones import Backbone
from pvera.data import image_splits

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
    write_vtab(root / "data/vtab-1k", ["dmlab"], TEST_IMAGES)
    split_file = root / "data/vtab-1k/dmlab/test.txt"
    test = image_splits.load_split(root / "data/vtab-1k", "dmlab", "test", 224)
    images = test.data(Backbone(None, "", 224, MEAN, STD, ""), torch.device("cpu"))[:]
    with torch.no_grad():
        labels, bare = (model(images).argmax(1) for model in (adapted(), adapted().unload()))
    assert len(labels.unique()) > 2 and (labels != bare).float().mean() > 0.2
    lines = [
        f"{line.split()[0]} {label}\n" for line, label in zip(open(split_file), labels.tolist())
    ]
    split_file.write_text("".join(lines))
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


@pytest.mark.parametrize("layout", ["head file", "redrawn"])
def test_layouts(tmp_path, data, backbone, monkeypatch, layout):
    folder = write(tmp_path, layout)
    encoder = Dinov2Model.from_pretrained(backbone)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda repository: folder)
    monkeypatch.setattr(Dinov2Model, "from_pretrained", lambda name: encoder)
    monkeypatch.chdir(data)
    code = pages.section("peft", "The released adapters").split("```python\n")[1].split("```")[0]
    names = {}
    exec(code.replace("dtd", "dmlab"), names)
    assert names["accuracy"] == 1 and len(names["scores"]) == TEST_IMAGES

    if layout == "head file":
        (folder / "classifier.safetensors").unlink()
        names["model"].unload()
        with pytest.raises(InputError, match="holds no head"):
            exec(code.replace("dtd", "dmlab"), names)
