"""Download the three text tasks of GLUE: RTE, MRPC and CoLA.

    python experiments/make_texts.py

Takes seconds, and writes data/text/{RTE,MRPC,CoLA}/{train,dev}.tsv. Without the hub, put GLUE's own
files there.
"""

from pathlib import Path

import pandas as pd
from huggingface_hub import hf_hub_download
from options import ROOT, Parser

from pvera.data import glue
from pvera.errors import as_input_error, import_extra, run_script
from pvera.files import write_atomically

#: The repository of the hub, and its names of the splits.
REPO = "nyu-mll/glue"
SPLITS = {"train": "train", "dev": "validation"}


def main() -> None:
    """Download the tasks."""
    Parser(__doc__).parse_args()
    install(ROOT / "data/text")


def install(root: Path) -> None:
    """Write GLUE's files below `root`, once all of them are downloaded."""
    files = {}
    for task in glue.GLUE.values():
        for split in SPLITS:
            content = glue.to_tsv(download(task, split), task)
            files[root / task.title / f"{split}.tsv"] = content
    for file, content in files.items():
        write_atomically(file, content)
    print(f"text tasks are in {root}")


def download(task: glue.TextTask, split: str) -> pd.DataFrame:
    """Download a split, "train" or "dev".

    Raises:
        InputError: That fails.
    """
    import_extra("pyarrow", "language")
    file = f"{task.name}/{SPLITS[split]}-00000-of-00001.parquet"
    with as_input_error(f"cannot download {file} of {REPO}", "put GLUE's own files into data/text"):
        table = pd.read_parquet(hf_hub_download(REPO, file, repo_type="dataset"))
    columns = ["sentence"] if len(task.text_columns) == 1 else ["sentence1", "sentence2"]
    # Some sentences of the hub's CoLA end in a line break, which the original files do not have.
    texts = table[columns].map(lambda text: " ".join(text.split()))
    return texts.set_axis(list(task.text_columns), axis=1).assign(label=table["label"])


if __name__ == "__main__":
    run_script(main)
