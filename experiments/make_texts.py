"""Install the three text tasks of GLUE: RTE, MRPC and CoLA.

    python experiments/make_texts.py                     # from the hub
    python experiments/make_texts.py --source FOLDER     # FOLDER/{RTE,MRPC,CoLA}/{train,dev}.tsv

Takes seconds, and writes data/text. A line names each file with another number of texts than
GLUE's.
"""

from pathlib import Path

from options import ROOT, Parser

from pvera.data import glue
from pvera.errors import run_script
from pvera.files import write_atomically


def main() -> None:
    """Install the tasks from the source of the command line."""
    parser = Parser(__doc__)
    text = "folder of GLUE's files, instead of the hub"
    parser.add_argument("--source", type=Path, metavar="FOLDER", help=text)
    install(ROOT / "data/text", parser.parse_args().source)


def install(root: Path, source: Path | None = None) -> None:
    """Write GLUE's files below `root`, once all of them could be read."""
    files = {}
    for task in glue.GLUE.values():
        for split, count in (("train", task.train), ("dev", task.dev)):
            path = f"{task.title}/{split}.tsv"
            texts = glue.read(source / path, task) if source else glue.from_hub(task, split)
            if len(texts) != count:
                print(f"{task.title}, {split}: {len(texts)} texts where GLUE has {count}")
            files[path] = glue.encode(texts, task)
    for path, content in files.items():
        write_atomically(root / path, content)
    print(f"text tasks are in {root}")


if __name__ == "__main__":
    run_script(main)
