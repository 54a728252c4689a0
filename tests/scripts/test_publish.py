"""experiments/publish.py: cards of adapters, which it pushes to a stand-in of the hub."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
import scripts
import torch
import yaml
from trained import make_adapters, make_profile

import pvera
from pvera import backbones
from pvera.study import results

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def alone(tmp_path):
    """PVeRA with random weights and without a record, and the options that say what the record would."""
    profile = make_profile(tmp_path, ["vessels"], seeds=[0], methods={"pvera": {"rank": 8}})
    make_adapters(profile, tmp_path / "results")
    adapter = tmp_path / "results/mine/benchmark/tiny/vessels/pvera/seed0.safetensors"
    data = ("--data", tmp_path / "data", "--backbone", "tiny", "--data-set", "vessels", "--device", "cpu")
    return (shutil.copy(adapter, tmp_path / "alone.safetensors"), *data)


@pytest.fixture
def hub(monkeypatch):
    """What was sent to a stand-in of the hub; `refuses`: its answer to everything."""
    sent = SimpleNamespace(made=None, files=None, refuses=None)

    def create(self, repository, private, exist_ok):
        if sent.refuses:
            raise sent.refuses
        sent.made = (repository, private)
        return f"https://huggingface.co/{repository}"

    def upload(self, repo_id, folder_path, commit_message):
        assert sent.made[0] == repo_id and commit_message
        sent.files = {path.name: path.read_bytes() for path in Path(folder_path).iterdir()}

    monkeypatch.setattr(huggingface_hub.HfApi, "create_repo", create)
    monkeypatch.setattr(huggingface_hub.HfApi, "upload_folder", upload)
    return sent


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
    said = {metric["type"]: metric["value"] for metric in entry["metrics"]}
    assert said == {key: pytest.approx(computed["metrics"][key], abs=1e-6) for key in said}
    assert set(said) == {"accuracy", "nll", "brier", "ece", "ace"} and entry["dataset"]["split"] == "test"
    for row in computed["classes"]:
        assert f"| {row['class']} | {row['images']} | {row['accuracy']:.4f} |" in text
    assert "- Hyperparameters: rank 8, alpha 16.0" in text and "- Protocol: unknown" in text

    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path / "out")
    names = {"images": torch.zeros(2, 3, 32, 32)}
    exec(code, names)
    expected = pvera.load(backbones.load("tiny").model, alone[0]).eval()(names["images"])
    assert torch.equal(names["logits"], expected) and expected.shape == (2, 4)


def test_the_card_of_a_committed_adapter_has_its_record(tmp_path, capsys):
    """Numbers are computed, also on other images under the data set's name."""
    make_profile(tmp_path, ["digits"])
    adapter = ROOT / "results/mini/benchmark/tiny/digits/pvera/seed1.safetensors"
    published(capsys, adapter, "--data", tmp_path / "data", "--output", tmp_path / "out", "--device", "cpu")
    text = (tmp_path / "out/README.md").read_text()
    assert "- Protocol: corrected\n" in text and "- Seed: 1" in text
    assert (tmp_path / "out/run.json").read_bytes() == adapter.with_suffix(".json").read_bytes()
    recorded = results.read(adapter.with_suffix(".json"))["test"]["accuracy"]
    assert f"| Accuracy | {recorded:.6f} |" not in text


def test_it_is_pushed_with_its_card(alone, tmp_path, hub, capsys):
    output = published(capsys, *alone, "--repository", "me/a", "--private", "--output", tmp_path / "o")
    assert hub.made == ("me/a", True) and "pushed: https://huggingface.co/me/a" in output
    assert hub.files == {path.name: path.read_bytes() for path in (tmp_path / "o").iterdir()} and len(hub.files) == 2

    hub.refuses, hub.files = OSError("403\nForbidden"), None
    refused = scripts.refusal("publish", capsys, *alone, "--repository", "me/b")
    assert "cannot push to me/b: 403 Forbidden; " in refused and "hf auth login" in refused
    assert "--output FOLDER writes the files" in scripts.refusal("publish", capsys, *alone)
    assert "data is not an empty folder" in scripts.refusal("publish", capsys, *alone, "--output", tmp_path / "data")
    assert hub.files is None
