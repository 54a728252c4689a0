"""Rewrite the numbers and verdicts of README.md and docs/ from the tables of `mini`, the audit and the ledger.

    python experiments/front_page.py            # after the notebooks; takes seconds
    python experiments/front_page.py --check    # change nothing; exit code 1 where a page is out of date

pvera/report/front_page.py lists the passages.
"""

import sys
from pathlib import Path

from options import ROOT, Parser

from pvera.files import write_atomically
from pvera.report import front_page
from pvera.study.script import run


def main() -> None:
    parser = Parser(__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing")
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of README.md and docs/ (%(default)s)")
    options = parser.parse_args()
    old = False
    for path, up in front_page.pages(options.root).items():
        text = path.read_text(encoding="utf-8")
        written = front_page.rewrite(text, options.root, up)
        if written != text:
            old = True
            print(f"{path.relative_to(options.root)}: {'out of date' if options.check else 'written'}")
            if not options.check:
                write_atomically(path, written.encode())
    if options.check and old:
        sys.exit(1)


if __name__ == "__main__":
    run(main)
