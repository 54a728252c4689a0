"""experiments/publish.py: cards of adapters, and their way to the hub."""

import json
import re
import shutil
from pathlib import Path
from unittest.mock import MagicMock

import huggingface_hub
import pytest
import scripts
import torch
import yaml
from trained import make_adapters, make_profile

import pvera
from pvera import backbones


@pytest.fixture
def alone(tmp_path):
    """PVeRA with random weights and without a record, and the options that say what the record would."""
    profile = make_profile(tmp_path, ["vessels"], seeds=[0], methods={"pvera": {"rank": 8}})
    make_adapters(profile, tmp_path / "results")
    adapter = tmp_path / "results/mine/benchmark/tiny/vessels/pvera/seed0.safetensors"
    data = ("--data", tmp_path / "data", "--backbone", "tiny", "--data-set", "vessels", "--device", "cpu")
    return (shutil.copy(adapter, tmp_path / "alone.safetensors"), *data)


def published(capsys, *arguments) -> str:
    status, output, errors = scripts.outcome("publish", capsys, *arguments)
    assert status == 0, errors
    return output


def test_the_card_agrees_with_the_file(alone, tmp_path, capsys, monkeypatch):
    published(capsys, *alone, "--output", tmp_path / "out", "--license", "cc-by-4.0")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"README.md", "adapter.safetensors"}
    assert (tmp_path / "out/adapter.safetensors").read_bytes() == Path(alone[0]).read_bytes()
    _, metadata, text = (tmp_path / "out/README.md").read_text().split("---\n", 2)
    metadata = yaml.safe_load(metadata)
    assert (metadata["license"], metadata["library_name"]) == ("cc-by-4.0", "pvera")
    assert metadata["pipeline_tag"] == "image-classification" and "pvera" in metadata["tags"]

    scripts.execute("evaluate", *alone, "--metrics", tmp_path / "m.json")
    computed = json.loads((tmp_path / "m.json").read_text())
    (entry,) = metadata["model-index"][0]["results"]
    scores = {metric["type"]: metric["value"] for metric in entry["metrics"]}
    assert scores == {key: pytest.approx(computed["metrics"][key], abs=1e-6) for key in scores}
    assert set(scores) == {"accuracy", "nll", "brier", "ece", "ace"} and entry["dataset"]["split"] == "test"
    for row in computed["classes"]:
        assert f"| {row['class']} | {row['images']} | {row['accuracy']:.4f} |" in text
    assert "- Hyperparameters: rank 8, alpha 16.0" in text and "- Protocol: unknown" in text

    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path / "out")
    names = {"images": torch.zeros(2, 3, 32, 32)}
    exec(code, names)
    expected = pvera.load(backbones.load("tiny").model, alone[0]).eval()(names["images"])
    assert torch.equal(names["logits"], expected) and expected.shape == (2, 4)


def test_it_is_pushed_with_its_card(alone, tmp_path, capsys, monkeypatch):
    hub, options = MagicMock(), (*alone, "--output", tmp_path / "out", "--repository", "me/a")
    for name in ("create_repo", "upload_folder"):
        monkeypatch.setattr(huggingface_hub, name, getattr(hub, name))
    hub.create_repo.return_value = "https://huggingface.co/me/a"
    assert "pushed: https://huggingface.co/me/a" in published(capsys, *options)
    hub.create_repo.assert_called_once_with("me/a", private=False, exist_ok=True)
    hub.upload_folder.assert_called_once_with(repo_id="me/a", folder_path=tmp_path / "out")
    assert f"{tmp_path / 'out'} exists" in scripts.refusal("publish", capsys, *options)

    shutil.rmtree(tmp_path / "out")
    hub.create_repo.side_effect = OSError("403\nForbidden")
    refused = scripts.outcome("publish", capsys, *options)
    assert refused[0] == 2 and refused[2].startswith("error: cannot push to me/a: 403 Forbidden; `hf auth login`")
