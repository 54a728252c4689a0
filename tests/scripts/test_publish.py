"""experiments/publish.py: cards of adapters, which it pushes to a stand-in of the hub."""

import base64
import json
import re
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

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


class Hub(BaseHTTPRequestHandler):
    """The part of the hub's interface that creates a repository and takes a commit."""

    def do_POST(self):
        self.server.tokens.append(self.headers.get("Authorization"))
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        lines = [json.loads(line) for line in content.splitlines()]
        if self.server.refuses:
            return self.answer({"error": "You don't have the rights to create a model"}, 403)
        if self.path == "/api/repos/create":
            self.server.made = lines[0]
            name = f"{lines[0].get('organization', 'me')}/{lines[0]['name']}"
            self.answer({"url": f"{self.server.address}/{name}", "id": name, "name": name})
        elif "/preupload/" in self.path:
            files = [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in lines[0]["files"]]
            self.answer({"files": files})
        elif "/commit/" in self.path:
            files = [line["value"] for line in lines if line["key"] == "file"]
            self.server.pushed = {f["path"]: base64.b64decode(f["content"]) for f in files}
            self.server.place = self.path
            self.answer({"success": True, "commitOid": "0" * 40, "commitUrl": f"{self.server.address}/me/a/commit/0"})
        elif self.path == "/api/validate-yaml":
            yaml.safe_load(lines[0]["content"].split("---")[1])
            self.answer({"errors": [], "warnings": []})
        else:
            self.answer({"error": f"unexpected {self.path}"}, 404)

    def do_GET(self):
        self.answer({"error": "nothing here"}, 404)

    do_HEAD = do_GET

    def answer(self, content: dict, status: int = 200) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments) -> None:
        """Say nothing."""


@pytest.fixture
def hub(monkeypatch):
    """A stand-in that listens on this machine; the client knows no other address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.address = f"http://127.0.0.1:{server.server_port}"
    server.made = server.pushed = server.place = None
    server.refuses, server.tokens = False, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.address)
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    yield server
    server.shutdown()
    server.server_close()


def published(capsys, *arguments) -> str:
    status, output, errors = scripts.outcome("publish", capsys, *arguments)
    assert status == 0, errors
    return output


def test_the_card_agrees_with_the_file(alone, tmp_path, capsys, monkeypatch):
    published(capsys, *alone, "--output", tmp_path / "out", "--draws", 4, "--license", "cc-by-4.0")
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
    assert "- Hyperparameters: rank 8, alpha 16.0" in text and "Accuracy of the class that most draws predict" in text
    assert "Protocol" not in text, "nothing is said that is not known"

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
    assert "- Protocol: corrected, at most 500 epochs, float32" in text and "- Seed: 1" in text
    assert (tmp_path / "out/run.json").read_bytes() == adapter.with_suffix(".json").read_bytes()
    recorded = results.read(adapter.with_suffix(".json"))["test"]["accuracy"]
    assert f"| Accuracy | {recorded:.6f} |" not in text


def test_it_is_pushed_with_its_card(alone, tmp_path, hub, capsys):
    output = published(capsys, *alone, "--repository", "me/a", "--private", "--output", tmp_path / "o")
    assert hub.made["name"] == "a" and hub.made["organization"] == "me"
    assert hub.made.get("private") is True or hub.made.get("visibility") == "private"
    assert hub.place == "/api/models/me/a/commit/main" and set(hub.tokens) == {"Bearer hf_test"}
    files = {str(path.relative_to(tmp_path / "o")): path.read_bytes() for path in (tmp_path / "o").rglob("*.*")}
    assert hub.pushed == files and len(files) == 2
    assert f"pushed: {hub.address}/me/a" in output

    hub.refuses, hub.pushed = True, None
    refused = scripts.refusal("publish", capsys, *alone, "--repository", "me/b")
    assert "cannot push to me/b: " in refused and "403" in refused and "hf auth login" in refused
    assert "cannot push to a b: " in scripts.refusal("publish", capsys, *alone, "--repository", "a b")
    assert "--output FOLDER writes the files" in scripts.refusal("publish", capsys, *alone)
    assert "data is not an empty folder" in scripts.refusal("publish", capsys, *alone, "--output", tmp_path / "data")
    assert hub.pushed is None
