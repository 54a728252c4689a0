"""Cards of adapters, and experiments/publish.py, which pushes them to a stand-in of the hub."""

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
from pvera import backbones, metrics
from pvera.files import sha256
from pvera.study import cards, results
from pvera.study.experiments import list_runs
from pvera.study.training import TrainingConfig

ROOT = Path(__file__).resolve().parents[2]
MINI = ROOT / "results" / "mini" / "benchmark"


@pytest.fixture
def adapter(tmp_path):
    """Of PVeRA, with random weights, beside a record; its data lies in data/."""
    profile = make_profile(tmp_path, ["vessels"], seeds=[0], methods={"pvera": {"rank": 8}})
    make_adapters(profile, tmp_path / "results")
    return tmp_path / "results/mine/benchmark/tiny/vessels/pvera/seed0.safetensors"


@pytest.fixture
def alone(adapter, tmp_path):
    """The same without its record, and the options that say what the record would."""
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


def parts(page: str) -> tuple[dict, str]:
    _, metadata, text = page.split("---\n", 2)
    return yaml.safe_load(metadata), text


def test_the_card_agrees_with_the_file(alone, tmp_path, capsys):
    published(capsys, *alone, "--output", tmp_path / "out", "--draws", 4, "--license", "cc-by-4.0")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"README.md", "adapter.safetensors"}
    assert sha256(tmp_path / "out" / "adapter.safetensors") == sha256(alone[0])
    metadata, text = parts((tmp_path / "out" / "README.md").read_text())
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


def test_the_code_of_a_card_loads_the_adapter(alone, tmp_path, capsys, monkeypatch):
    published(capsys, *alone, "--output", tmp_path / "out")
    (code,) = re.findall(r"```python\n(.*?)```", (tmp_path / "out" / "README.md").read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path / "out")
    names = {"images": torch.zeros(2, 3, 32, 32)}
    exec(code, names)
    expected = pvera.load(backbones.load("tiny").model, alone[0]).eval()(names["images"])
    assert torch.equal(names["logits"], expected) and expected.shape == (2, 4)


def test_a_committed_card_has_its_record(tmp_path, capsys):
    """A card of a committed adapter has the record's numbers, even beside other images under the data set's name."""
    make_profile(tmp_path, ["digits"])
    adapter = MINI / "tiny/digits/pvera/seed1.safetensors"
    published(capsys, adapter, "--data", tmp_path / "data", "--output", tmp_path / "out", "--device", "cpu")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "- Protocol: corrected, at most 500 epochs, float32" in text and "- Seed: 1" in text
    assert (tmp_path / "out" / "run.json").read_bytes() == adapter.with_suffix(".json").read_bytes()
    recorded = results.read(adapter.with_suffix(".json"))["test"]["accuracy"]
    assert f"| Accuracy | {recorded:.6f} |" not in text, "numbers are computed, not copied"


def test_it_is_pushed_with_its_card(alone, tmp_path, hub, capsys):
    output = published(capsys, *alone, "--repository", "me/a", "--private", "--output", tmp_path / "o")
    assert hub.made["name"] == "a" and hub.made["organization"] == "me"
    assert hub.made.get("private") is True or hub.made.get("visibility") == "private"
    assert hub.place == "/api/models/me/a/commit/main" and set(hub.tokens) == {"Bearer hf_test"}
    files = {str(path.relative_to(tmp_path / "o")): path.read_bytes() for path in (tmp_path / "o").rglob("*.*")}
    assert hub.pushed == files and len(files) == 2
    assert files["adapter.safetensors"] == Path(alone[0]).read_bytes()
    assert f"pushed: {hub.address}/me/a" in output

    hub.refuses = True
    refused = scripts.refusal("publish", capsys, *alone, "--repository", "me/b")
    assert "cannot push to me/b: " in refused and "403" in refused


def test_without_a_hub_or_a_token(alone, hub, capsys, monkeypatch, tmp_path):
    hub.shutdown()
    hub.server_close()
    assert "cannot push to me/a: " in scripts.refusal("publish", capsys, *alone, "--repository", "me/a")
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(huggingface_hub.constants, "HF_TOKEN_PATH", str(tmp_path / "none"))
    assert "run `hf auth login`" in scripts.refusal("publish", capsys, *alone, "--repository", "me/a")


BAD = {
    "nowhere": ([], "--output FOLDER writes the files, --repository USER/NAME pushes them"),
    "private": (["--output", "o", "--private"], "--private is for --repository"),
    "full": (["--output", "data"], "data is not an empty folder"),
    "name": (["--repository", "a b"], "--repository: "),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options(case, alone, tmp_path, capsys, monkeypatch, hub):
    monkeypatch.chdir(tmp_path)
    options, message = BAD[case]
    assert message in scripts.refusal("publish", capsys, *alone, *options)
    assert hub.pushed is None


# The page of one profile's adapters


def test_the_page_of_a_profile(tmp_path, capsys):
    profile = make_profile(
        tmp_path, ["digits", "vessels"], seeds=[0], methods={"vera": {"rank": 8}}, training=TrainingConfig(epochs=2)
    )
    trainings = list_runs(profile, "benchmark", tmp_path / "results")
    for run in trainings:
        run.execute()
    folder = tmp_path / "results" / "mine" / "benchmark"
    options = ("--profile", "mine", "--results", tmp_path / "results", "--data", tmp_path / "data")
    scripts.execute("cards", *options)
    page = (folder / "README.md").read_text()
    assert "- Method: VeRA" in page and "- Protocol: corrected, at most 2 epochs, float32" in page, "stated once"
    assert len(rows(page)) == 2 and "| Adapter | Trained values |" in page
    for row, run in zip(rows(page), trainings, strict=True):
        recorded = results.read(run.path)["test"]
        assert row[0] == f"[{run.dataset}, vera, seed 0]({run.path.with_suffix('.safetensors').relative_to(folder)})"
        assert row[-6:-1] == [f"{recorded[key]:.4f}" for key in cards.TITLES]

    (folder / "README.md").unlink()
    record = results.read(run.path)
    record["test"]["correct"] += 1
    adapter = run.path.with_suffix(".safetensors").read_bytes()
    scores, labels = results.read_predictions(run.path)
    results.write(run.path, record, scores, labels, adapter)
    status, _, errors = scripts.outcome("cards", capsys, *options)
    assert status == 2 and f"its run recorded {record['test']['correct']}" in errors.splitlines()[-1]
    assert not (folder / "README.md").exists()
    assert "holds no adapters" in scripts.refusal("cards", capsys, *options, "--profile", "none")


def rows(page: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in page.splitlines() if "](tiny/" in line]


def test_the_committed_page_is_of_the_committed_adapters():
    page = (MINI / "README.md").read_text()
    said = {re.search(r"\]\((.*)\)", row[0])[1]: row for row in rows(page)}
    adapters = sorted(MINI.rglob("*.safetensors"))
    assert len(adapters) == len(said) == 72
    assert page.count("| Accuracy | NLL | Brier score | ECE | ACE | SHA-256 |") == 1
    for adapter in adapters:
        file = adapter.relative_to(MINI).as_posix()
        row, record = said[file], results.read(adapter.with_suffix(".json"))
        assert row[-1] == f"`{sha256(adapter)[:16]}`"
        # Numbers are from this file: the metrics that its run recorded, whose predictions lie beside it.
        for text, key in zip(row[-6:-1], cards.TITLES, strict=True):
            assert float(text) == pytest.approx(record["test"][key], abs=1e-4)
        scores, labels = results.read_predictions(adapter.with_suffix(".json"))
        assert float(row[-5]) == pytest.approx(metrics.nll(scores, labels), abs=2e-3)
        assert row[0].startswith(f"[{record['dataset']}, {record['method']}, seed {record['seed']}]")


def test_the_licence_is_the_repositorys():
    assert (ROOT / "LICENSE").read_text().startswith("MIT License") and cards.LICENCE == "mit"
