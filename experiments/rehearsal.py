"""Rehearse the paper's experiment with stand-ins, without data, network or GPU; `bash run_all.sh rehearsal` calls it.

    python experiments/rehearsal.py

VTAB-1k and GLUE are random pixels and generated sentences, a ViT and DeBERTa-V3 small and random. This process serves
them like the Hugging Face hub. A damaged download and a disk that takes no more have to be refused in one line, and one
that is cut has to go on; then run_profile.py does all of the profile `rehearsal`, with `paper`'s experiments and
methods. It starts anew each time, in data/rehearsal and results/rehearsal. Options go to run_profile.py.
"""

import argparse
import hashlib
import http.server
import json
import os
import resource
import shutil
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import safetensors.torch
from options import ROOT, Parser, read_profile
from PIL import Image

from pvera import backbones, text_encoders
from pvera.data import glue, grammar, store, tasks, vtab, vtab_sources
from pvera.study.script import run

FOLDER = ROOT / "data/rehearsal"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
TEST_IMAGES = 32
BROKEN = 20_000_000  # bytes of VTAB-1k's archive after which the hub breaks off
SENTENCES = {"rte": "entailment", "mrpc": "paraphrase", "cola": "acceptability"}  # of GLUE's tasks
#: DeBERTa-V3's settings, in small.
DEBERTA = dict(
    vocab_size=256, hidden_size=48, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96,
    max_position_embeddings=128, type_vocab_size=0, position_biased_input=False, relative_attention=True,
    position_buckets=16, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"], pad_token_id=0,
)  # fmt: skip


class Hub(http.server.ThreadingHTTPServer):
    """A server of repositories like the Hugging Face hub: <folder>/<model>/... and <folder>/datasets/<data set>/...

    broken_after: bytes of a file after which it closes the connection. damaged: whether a byte in the middle of
    each answer is wrong. ranges: the byte ranges that were requested.
    """

    def __init__(self, folder: Path):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.broken_after, self.damaged, self.ranges = None, False, []
        contents = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
        self.files = {name: (content, hashlib.sha256(content).hexdigest()) for name, content in contents.items()}
        self.address = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_):
        pass  # a client that goes away


class _Answer(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self, asked: list[str] | None = None):
        path = unquote(self.path.partition("?")[0]).removeprefix("/api").removeprefix("/models").strip("/")
        length = 3 if path.startswith("datasets/") else 2
        parts = path.split("/")
        repository, name = "/".join(parts[:length]), "/".join(parts[length + 2 :])
        kind = parts[length] if len(parts) > length else ""
        start = f"{repository}/"
        files = {path.removeprefix(start): file for path, file in self.server.files.items() if path.startswith(start)}
        if kind == "resolve" and name in files:
            self.send_file(*files[name])
        elif kind in ("tree", "paths-info"):
            listed = [self.describe(name, *file) for name, file in files.items() if asked is None or name in asked]
            self.send(200, json.dumps(listed).encode(), Content_Type="application/json")
        elif kind in ("", "revision") and files:
            about = {"id": repository.removeprefix("datasets/"), "sha": COMMIT, "private": False, "tags": []}
            about |= {"siblings": [{"rfilename": name} for name in files], "downloads": 0, "likes": 0}
            self.send(200, json.dumps(about).encode(), Content_Type="application/json")
        else:
            self.send(404, b"", X_Error_Code="EntryNotFound")

    def do_POST(self):
        self.do_GET(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["paths"])

    def describe(self, name: str, content: bytes, sha256: str) -> dict:
        large = {"oid": sha256, "size": len(content), "pointerSize": 134}
        return {"type": "file", "path": name, "size": len(content), "oid": sha256[:40], "lfs": large}

    def send_file(self, content: bytes, sha256: str):
        code, headers = 200, {"ETag": f'"{sha256}"', "X_Repo_Commit": COMMIT, "Accept_Ranges": "bytes"}
        if asked := self.headers.get("Range"):
            first, last = asked.removeprefix("bytes=").split("-")
            first, last = int(first), min(int(last or len(content)), len(content) - 1)
            self.server.ranges.append((first, last))
            headers["Content_Range"] = f"bytes {first}-{last}/{len(content)}"
            content, code = content[first : last + 1], 206
        if self.server.damaged:
            half = len(content) // 2
            content = content[:half] + bytes([content[half] ^ 255]) + content[half + 1 :]
        self.send(code, content, self.server.broken_after, **headers)

    def send(self, code: int, content: bytes, at_most: int | None = None, **headers):
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[:at_most])
        self.close_connection = at_most is not None


def write_vtab(
    root: Path, names=vtab.NAMES, test_images: int = TEST_IMAGES, suffix: str = "png", side: int = 8
) -> None:
    """Write data sets of VTAB-1k's layout and training splits below `root`, with `test_images` test images.

    Files are links to eight images per split; no training image equals a test image.
    """
    for name in names:
        classes, lines = tasks.task(name).classes, {}
        for part, (split, count) in enumerate({"train800": 800, "val200": 200, "test": test_images}.items()):
            folder = root / name / "images" / split
            folder.mkdir(parents=True)
            source = np.random.default_rng([part, *name.encode()])
            for i in range(min(count, 8)):
                pixels = source.integers(256, size=(side, side, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.{suffix}")
            for i in range(8, count):
                os.link(folder / f"{i % 8}.{suffix}", folder / f"{i}.{suffix}")
            # If there are more classes than images, each split starts at another class.
            labels = (np.arange(count) + 800 * part) % classes
            lines[split] = [f"images/{split}/{i}.{suffix} {label}\n" for i, label in enumerate(labels)]
        for split, entries in lines.items():
            (root / name / f"{split}.txt").write_text("".join(entries))


def write_glue(folder: Path) -> None:
    """Write generated sentences as the hub's files of GLUE."""
    for name, generated in SENTENCES.items():
        for split, texts in grammar.make(generated).items():
            columns = ["sentence"] if len(texts.texts[0]) == 1 else ["sentence1", "sentence2"]
            file = folder / name / f"{'train' if split == 'train' else 'validation'}-00000-of-00001.parquet"
            file.parent.mkdir(parents=True, exist_ok=True)
            pd.DataFrame(texts.texts, columns=columns).assign(label=texts.labels).to_parquet(file)


def write_vit(hub: Path, name: str) -> None:
    """Write random weights where timm looks for those of the ViT `name`."""
    model = backbones.load(name, pretrained=False).model
    folder = hub / model.pretrained_cfg["hf_hub_id"]
    folder.mkdir(parents=True)
    safetensors.torch.save_file(model.state_dict(), folder / "model.safetensors")


def write_deberta(folder: Path) -> None:
    """Write a small DeBERTa-V3 with random weights, and its tokenizer's pieces of the generated sentences."""
    import sentencepiece
    from transformers import DebertaV2Config, DebertaV2Model

    with text_encoders.quiet():
        DebertaV2Model(DebertaV2Config(**DEBERTA)).save_pretrained(folder)
    sentences = [part for name in SENTENCES.values() for text in grammar.make(name)["train"].texts for part in text]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_prefix=str(folder / "spm"), vocab_size=150,
        pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]",
        unk_piece="[UNK]", minloglevel=2,
    )  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": False, "vocab_type": "spm"}))


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("options", nargs=argparse.REMAINDER, help="options of experiments/train.py")
    options, profile = parser.parse_args().options, read_profile("rehearsal")
    for folder in (FOLDER, ROOT / "results/rehearsal"):
        shutil.rmtree(folder, ignore_errors=True)
    repository = FOLDER / "hub/datasets" / vtab_sources.REPO
    write_vtab(FOLDER / "made", profile.datasets, side=64)
    shutil.make_archive(str(repository / "vtab-1k"), "zip", FOLDER / "made")
    write_glue(FOLDER / "hub/datasets" / glue.HUB)
    write_vit(FOLDER / "hub", profile.backbones[0])
    write_deberta(FOLDER / "hub" / text_encoders.NAMES[profile.language.backbones[0]])
    hub = Hub(FOLDER / "hub")
    environment = os.environ | {"HF_ENDPOINT": hub.address, "HF_HOME": str(FOLDER / "home"), "NO_PROXY": "127.0.0.1"}
    environment |= {store.VARIABLE: str(FOLDER / "cache"), "HF_HUB_OFFLINE": "0"}
    prepare = ["prepare_vtab.py", "--root", str(ROOT / profile.data), "--datasets", *profile.datasets]
    prepare += ["--accept"]  # test splits are short

    def call(*words: str, **how) -> subprocess.CompletedProcess:
        return subprocess.run([sys.executable, *words], cwd=ROOT / "experiments", env=environment, **how)

    def refused(reason: str, **how) -> None:
        ended = call(*prepare, capture_output=True, text=True, **how)
        said = (ended.stderr.splitlines() or [""])[-1]
        if ended.returncode != 2 or reason not in said:
            sys.exit(f"error: a download should have ended with {reason!r}, not with {said!r}")
        print(f"refused, as it should be: {said}", flush=True)

    hub.damaged = True
    refused("cannot extract")
    hub.damaged = False
    refused("File too large", preexec_fn=partial(resource.setrlimit, resource.RLIMIT_FSIZE, (BROKEN, BROKEN)))
    hub.broken_after = BROKEN
    if status := call(*prepare).returncode:
        sys.exit(status)
    hub.broken_after = None
    if not hub.ranges or not hub.ranges[0][0]:
        sys.exit("error: the download that was cut should have gone on, not begun anew")
    sys.exit(call("run_profile.py", "rehearsal", *options).returncode)


if __name__ == "__main__":
    run(main)
