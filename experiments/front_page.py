"""Put the tables that notebooks wrote anew into README.md and the pages of docs/.

    python experiments/front_page.py            # after the notebooks
    python experiments/front_page.py --check    # change nothing; exit code 1 where a page is out of date

A table stands between `<!-- program: FILE.md -->` and `<!-- end -->`; FILE is seen from the root.
"""

import re
import sys
from pathlib import Path

from options import ROOT, Parser

from pvera.files import read_text, write_atomically
from pvera.study.script import run

TABLE = re.compile(r"(<!-- program: (\S+) -->\n\n).*?(\n\n<!-- end -->)", re.DOTALL)


def main(words: list[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of README.md and docs/ (%(default)s)")
    options = parser.parse_args(words)
    old = False
    for page in [options.root / "README.md", *sorted((options.root / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        written = TABLE.sub(lambda found: found[1] + read_text(options.root / found[2]).strip() + found[3], text)
        if written != text:
            old = True
            print(f"{page.relative_to(options.root)}: {'out of date' if options.check else 'written'}")
            if not options.check:
                write_atomically(page, written.encode())
    if options.check and old:
        sys.exit(1)


if __name__ == "__main__":
    run(main)
