"""Install the text tasks: three generated ones, and three of GLUE.

python experiments/make_texts.py                            the generated ones
python experiments/make_texts.py --glue                     RTE, MRPC and CoLA as well, from the hub
python experiments/make_texts.py --glue --source FOLDER     or from FOLDER/{RTE,MRPC,CoLA}/{train,dev}.tsv
"""

from pathlib import Path

from options import ROOT, Parser

from pvera.data import glue, grammar
from pvera.files import write_atomically
from pvera.study import script


def main(words: list[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--root", type=Path, default=ROOT / "data/text", help="where to write (%(default)s)")
    parser.add_argument("--glue", action="store_true", help="GLUE's tasks too")
    parser.add_argument("--source", type=Path, metavar="FOLDER", help="folder of GLUE's files, instead of the hub")
    options = parser.parse_args(words)
    for name in grammar.RECIPES:
        files = grammar.files(name)
        put(files, options.root)
        if grammar.digest(files) != grammar.DIGESTS[name]:
            print(f"{name} differs from the published one: are the pinned versions installed?")
    for task in glue.TASKS.values() if options.glue else ():
        if task.suite == "glue":
            put(glue_files(task, options.source), options.root)
    print(f"text tasks are in {options.root}")


def glue_files(task: glue.TextTask, source: Path | None) -> dict[str, bytes]:
    """Return a task's files by path below the root; print a line for each file whose size differs from GLUE's."""
    files = {}
    for split, count in (("train", task.train), ("dev", task.dev)):
        path = f"{task.folder}/{split}.tsv"
        texts = glue.read(source / path, task.layout) if source else glue.from_hub(task, split)
        if len(texts) != count:
            print(f"{task.title}, {split}: {len(texts)} texts where GLUE has {count}")
        files[path] = glue.encode(texts, task.layout)
    return files


def put(files: dict[str, bytes], root: Path) -> None:
    """Write files below `root`."""
    for path, content in files.items():
        write_atomically(root / path, content)


if __name__ == "__main__":
    script.run(main)
