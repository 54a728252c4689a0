"""Rehearse the paper's experiment with stand-ins, without data, network or GPU.

`bash run_all.sh rehearsal` calls it:

    python experiments/rehearsal.py

VTAB-1k and GLUE are random pixels and words, a ViT and DeBERTa-V3 small and random. All of it is
made from files, as without network; then run_profile.py does the profiles `rehearsal` and
`rehearsal_text`, which have the methods of `paper` and `paper_text`. It starts again each time,
in data/rehearsal and results/rehearsal*. Options go to run_profile.py.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

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
from pvera.study.profiles import Profile

FOLDER = ROOT / "data/rehearsal"
TEST_IMAGES = 32
VOCABULARY = (
    "a the one two old young red green cat dog bird tree house sees likes finds near under here "
    "there"
)
#: DeBERTa-V3's settings, in small.
DEBERTA: dict[str, Any] = {
    "vocab_size": 256,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 96,
    "max_position_embeddings": 128,
    "type_vocab_size": 0,
    "position_biased_input": False,
    "relative_attention": True,
    "position_buckets": 16,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": ["p2c", "c2p"],
    "pad_token_id": 0,
}
#: Settings of its tokenizer.
PIECES: dict[str, Any] = {
    "vocab_size": 80,
    "hard_vocab_limit": False,
    "pad_id": 0,
    "bos_id": 1,
    "eos_id": 2,
    "unk_id": 3,
    "pad_piece": "[PAD]",
    "bos_piece": "[CLS]",
    "eos_piece": "[SEP]",
    "unk_piece": "[UNK]",
    "minloglevel": 2,
}


def write_vtab(
    root: Path,
    names: Iterable[str] = vtab.NAMES,
    test_images: int = TEST_IMAGES,
    suffix: str = "png",
    side: int = 8,
) -> None:
    """Write data sets of VTAB-1k's layout and training splits.

    Files are links to eight images per split; no training image equals a test image.

    Args:
        root: Their folder.
        names: Of the data sets.
        test_images: Number of them.
        suffix: Of the images' files.
        side: Pixels of an image's side.
    """
    counts = {"train800": 800, "val200": 200, "test": test_images}
    for name in names:
        for part, (split, count) in enumerate(counts.items()):
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
    words = VOCABULARY.split()
    texts = [[" ".join(source.choice(words, 5)) for _ in task.texts] for _ in range(count)]
    return pd.DataFrame(texts, columns=task.texts).assign(label=source.integers(2, size=count))


def write_deberta(folder: Path) -> None:
    """Write a small random DeBERTa-V3, and its tokenizer of the random texts."""
    import sentencepiece
    from transformers import DebertaV2Config, DebertaV2Model

    with text_encoders.quiet():
        DebertaV2Model(DebertaV2Config(**DEBERTA)).save_pretrained(folder)
    sentences = random_texts(glue.GLUE["rte"], 1000).drop(columns="label").to_numpy().ravel()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_prefix=str(folder / "spm"), **PIECES
    )
    settings = {"do_lower_case": False, "vocab_type": "spm"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def main() -> None:
    """Write the stand-ins and do both profiles."""
    _, options = Parser(__doc__).parse_known_args()
    profile, text_profile = read_profile("rehearsal"), read_profile("rehearsal_text")
    for folder in (FOLDER, ROOT / "results/rehearsal", ROOT / "results/rehearsal_text"):
        shutil.rmtree(folder, ignore_errors=True)
    archive = write_images(profile.datasets)
    write_texts(ROOT / text_profile.data)
    write_weights(profile, text_profile)

    # Accepted, as it has few images.
    if not prepare_vtab.prepare(ROOT / profile.data, profile.datasets, archive, accept=True):
        sys.exit(1)
    environment = os.environ | {store.CACHE: str(FOLDER / "cache"), "HF_HUB_OFFLINE": "1"}
    for name in (profile.name, text_profile.name):
        command = [sys.executable, "experiments/run_profile.py", name, *options]
        if code := subprocess.run(command, cwd=ROOT, env=environment).returncode:
            sys.exit(code)


def write_images(datasets: list[str]) -> Path:
    """Write an archive of VTAB-1k."""
    write_vtab(FOLDER / "made", datasets)
    return Path(shutil.make_archive(str(FOLDER / "vtab-1k"), "zip", FOLDER / "made"))


def write_texts(root: Path) -> None:
    """Write GLUE's files below `root`."""
    for task in glue.GLUE.values():
        for split, count in {"train": 1000, "dev": 40}.items():
            content = glue.encode(random_texts(task, count), task)
            write_atomically(root / task.title / f"{split}.tsv", content)


def write_weights(profile: Profile, text_profile: Profile) -> None:
    """Write random weights of the profiles' backbones."""
    (backbone,) = profile.backbones
    weights = backbones.load(backbone, pretrained=False).model.state_dict()
    safetensors.torch.save_file(weights, ROOT / profile.weights[backbone])
    write_deberta(ROOT.joinpath(*text_profile.weights.values()))


if __name__ == "__main__":
    run_script(main)
