"""Rehearse the paper's experiment with stand-ins, without data, network or GPU; `bash run_all.sh rehearsal` calls it.

    python experiments/rehearsal.py

VTAB-1k and GLUE are random pixels and generated sentences, a ViT and DeBERTa-V3 small and random. This process serves
them like the Hugging Face hub; prepare_vtab.py and run_profile.py do all of the profile `rehearsal`, with `paper`'s
experiments and methods. It starts anew each time, in data/rehearsal and results/rehearsal. Options go to
run_profile.py.
"""

import argparse
import hashlib
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
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
SENTENCES = {"rte": "entailment", "mrpc": "paraphrase", "cola": "acceptability"}  # of GLUE's tasks
#: DeBERTa-V3's settings, in small.
DEBERTA = dict(
    vocab_size=256, hidden_size=48, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96,
    max_position_embeddings=128, type_vocab_size=0, position_biased_input=False, relative_attention=True,
    position_buckets=16, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"], pad_token_id=0,
)  # fmt: skip


class Hub(http.server.ThreadingHTTPServer):
    """A server of repositories like the Hugging Face hub: <folder>/<model>/... and <folder>/datasets/<data set>/..."""

    def __init__(self, folder: Path):
        super().__init__(("127.0.0.1", 0), _Answer)
        self.files = {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
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

    def do_GET(self):
        path = unquote(self.path.partition("?")[0]).removeprefix("/api").removeprefix("/models").strip("/")
        length = 3 if path.startswith("datasets/") else 2
        parts = path.split("/")
        repository, name = "/".join(parts[:length]), "/".join(parts[length + 2 :])
        kind = parts[length] if len(parts) > length else ""
        start = f"{repository}/"
        files = {path.removeprefix(start): file for path, file in self.server.files.items() if path.startswith(start)}
        if kind == "resolve" and name in files:
            etag = f'"{hashlib.sha256(files[name]).hexdigest()}"'
            self.send(200, files[name], ETag=etag, X_Repo_Commit=COMMIT, Accept_Ranges="bytes")
        elif kind == "tree":
            listed = [{"type": "file", "path": name, "size": len(file), "oid": COMMIT} for name, file in files.items()]
            self.send(200, json.dumps(listed).encode(), Content_Type="application/json")
        elif kind in ("", "revision") and files:
            about = {"id": repository.removeprefix("datasets/"), "sha": COMMIT, "private": False, "tags": []}
            about |= {"siblings": [{"rfilename": name} for name in files], "downloads": 0, "likes": 0}
            self.send(200, json.dumps(about).encode(), Content_Type="application/json")
        else:
            self.send(404, b"", X_Error_Code="EntryNotFound")

    def send(self, code: int, content: bytes, **headers):
        self.send_response(code)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


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
    for words in ([*prepare, "--accept"], ["run_profile.py", "rehearsal", *options]):  # test splits are short
        status = subprocess.run([sys.executable, *words], cwd=ROOT / "experiments", env=environment).returncode
        if status:
            sys.exit(status)


if __name__ == "__main__":
    run(main)
