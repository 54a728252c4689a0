"""Rehearse the paper's experiment with stand-ins, without data, network or GPU; `bash run_all.sh rehearsal` calls it.

    python experiments/rehearsal.py

VTAB-1k and GLUE are random pixels and words, a ViT and DeBERTa-V3 small and random. They are installed
from files, as without network; then run_profile.py does all of the profiles `rehearsal` and `rehearsal_text`, which
have the methods of `paper` and `paper_text`. It starts again each time, in data/rehearsal and results/rehearsal*.
Options go to run_profile.py.
"""

import json
import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import make_texts
import numpy as np
import pandas as pd
import prepare_vtab
import safetensors.torch
from options import ROOT, Parser, read_profile
from PIL import Image

from pvera import backbones, text_encoders
from pvera.data import glue, store, tasks, vtab
from pvera.errors import run_script
from pvera.files import write_atomically

FOLDER = ROOT / "data/rehearsal"
TEST_IMAGES = 32
WORDS = [
    "a", "the", "one", "two", "old", "young", "red", "green", "cat", "dog",
    "bird", "tree", "house", "sees", "likes", "finds", "near", "under", "here", "there",
]  # fmt: skip
#: DeBERTa-V3's settings, in small.
DEBERTA = dict(
    vocab_size=256, hidden_size=48, num_hidden_layers=2, num_attention_heads=2, intermediate_size=96,
    max_position_embeddings=128, type_vocab_size=0, position_biased_input=False, relative_attention=True,
    position_buckets=16, norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"], pad_token_id=0,
)  # fmt: skip


def write_vtab(
    root: Path, names=vtab.NAMES, test_images: int = TEST_IMAGES, suffix: str = "png", side: int = 8
) -> None:
    """Write data sets of VTAB-1k's layout and training splits below `root`, with `test_images` test images.

    Files are links to eight images per split; no training image equals a test image.
    """
    for name in names:
        for part, (split, count) in enumerate(
            {"train800": 800, "val200": 200, "test": test_images}.items()
        ):
            folder = root / name / "images" / split
            folder.mkdir(parents=True)
            source = np.random.default_rng([part, *name.encode()])
            for i in range(min(count, 8)):
                pixels = source.integers(256, size=(side, side, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / f"{i}.{suffix}")
            for i in range(8, count):
                os.link(folder / f"{i % 8}.{suffix}", folder / f"{i}.{suffix}")
            # If there are more classes than images, each split starts at another class.
            labels = (np.arange(count) + 800 * part) % tasks.find_task(name).classes
            lines = [f"images/{split}/{i}.{suffix} {label}\n" for i, label in enumerate(labels)]
            (root / name / f"{split}.txt").write_text("".join(lines))


def random_texts(task: glue.TextTask, count: int) -> pd.DataFrame:
    """Return texts of five random words each, with random labels."""
    source = np.random.default_rng([count, *task.name.encode()])
    texts = [[" ".join(source.choice(WORDS, 5)) for _ in task.texts] for _ in range(count)]
    return pd.DataFrame(texts, columns=task.texts).assign(label=source.integers(2, size=count))


def write_deberta(folder: Path) -> None:
    """Write a small DeBERTa-V3 with random weights, and its tokenizer's pieces of the random texts."""
    import sentencepiece
    from transformers import DebertaV2Config, DebertaV2Model

    with text_encoders.quiet():
        DebertaV2Model(DebertaV2Config(**DEBERTA)).save_pretrained(folder)
    sentences = random_texts(glue.GLUE["rte"], 1000).drop(columns="label").to_numpy().ravel()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_prefix=str(folder / "spm"), vocab_size=80, hard_vocab_limit=False,
        pad_id=0, bos_id=1, eos_id=2, unk_id=3, pad_piece="[PAD]", bos_piece="[CLS]", eos_piece="[SEP]",
        unk_piece="[UNK]", minloglevel=2,
    )  # fmt: skip
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": False, "vocab_type": "spm"})
    )


def main() -> None:
    _, options = Parser(__doc__).parse_known_args()
    profile, of_text = read_profile("rehearsal"), read_profile("rehearsal_text")
    for folder in (FOLDER, ROOT / "results/rehearsal", ROOT / "results/rehearsal_text"):
        shutil.rmtree(folder, ignore_errors=True)
    write_vtab(FOLDER / "made", profile.datasets)
    archive = shutil.make_archive(str(FOLDER / "vtab-1k"), "zip", FOLDER / "made")
    for task, (split, count) in product(glue.GLUE.values(), {"train": 1000, "dev": 40}.items()):
        texts = random_texts(task, count)
        write_atomically(FOLDER / f"glue/{task.title}/{split}.tsv", glue.encode(texts, task))
    (backbone,) = profile.backbones
    weights = backbones.load(backbone, pretrained=False).model.state_dict()
    safetensors.torch.save_file(weights, ROOT / profile.weights[backbone])
    write_deberta(ROOT.joinpath(*of_text.weights.values()))
    if not prepare_vtab.prepare(
        ROOT / profile.data, profile.datasets, Path(archive), accept=True
    ):  # of few images
        sys.exit(1)
    make_texts.install(ROOT / of_text.data, FOLDER / "glue")
    environment = os.environ | {store.CACHE: str(FOLDER / "cache"), "HF_HUB_OFFLINE": "1"}
    for name in (profile.name, of_text.name):
        command = [sys.executable, "experiments/run_profile.py", name, *options]
        if code := subprocess.run(command, cwd=ROOT, env=environment).returncode:
            sys.exit(code)


if __name__ == "__main__":
    run_script(main)
