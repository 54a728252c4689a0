"""Install the text tasks: three generated ones, and three of GLUE.

python experiments/make_texts.py                            the generated ones
python experiments/make_texts.py --glue                     RTE, MRPC and CoLA as well, from the hub
python experiments/make_texts.py --glue --source FOLDER     or from FOLDER/{RTE,MRPC,CoLA}/{train,dev}.tsv
"""

from itertools import product
from pathlib import Path

from options import ROOT, Parser

from pvera.data import glue, grammar
from pvera.errors import run_script
from pvera.files import write_atomically


def main(words: list[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--root", type=Path, default=ROOT / "data/text", help="where to write (%(default)s)")
    parser.add_argument("--glue", action="store_true", help="GLUE's tasks too")
    parser.add_argument("--source", type=Path, metavar="FOLDER", help="folder of GLUE's files, instead of the hub")
    options = parser.parse_args(words)
    files = {}
    for name in grammar.RECIPES:
        made = grammar.files(name)
        files |= made
        if grammar.digest(made) != grammar.DIGESTS[name]:
            print(f"{name} differs from the published one: are the pinned versions installed?")
    of_glue = [task for task in glue.TASKS.values() if task.suite == "glue"] if options.glue else []
    for task, split in product(of_glue, ("train", "dev")):
        path = f"{task.folder}/{split}.tsv"
        texts = glue.read(options.source / path, task.layout) if options.source else glue.from_hub(task, split)
        count = getattr(task, split)
        if len(texts) != count:
            print(f"{task.title}, {split}: {len(texts)} texts where GLUE has {count}")
        files[path] = glue.encode(texts, task.layout)
    for path, content in files.items():
        write_atomically(options.root / path, content)
    print(f"text tasks are in {options.root}")


if __name__ == "__main__":
    run_script(main)
