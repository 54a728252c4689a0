"""Put the tables that notebooks wrote anew into the pages of docs/.

    python experiments/front_page.py    # after the notebooks

A table stands between `<!-- program: FILE.md -->` and `<!-- end -->`; FILE is seen from the root.
"""

import re
from pathlib import Path

from options import ROOT, Parser

from pvera.errors import run_script
from pvera.files import read_text, write_atomically

TABLE = re.compile(r"(<!-- program: (\S+) -->).*?(<!-- end -->)", re.DOTALL)


def main(words: list[str] | None = None) -> None:
    parser = Parser(__doc__)
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of docs/ (%(default)s)")
    options = parser.parse_args(words)
    write(options.root)


def write(root: Path) -> None:
    """Write the pages whose tables are out of date."""
    for page, text in outdated(root).items():
        write_atomically(page, text)
        print(f"{page.relative_to(root)}: written")


def outdated(root: Path) -> dict[Path, str]:
    """Return the pages whose tables are not those of the files that they name, with the text that they should have."""
    pages = {}
    for page in sorted((root / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        filled = TABLE.sub(lambda match: f"{match[1]}\n\n{read_text(root / match[2]).strip()}\n\n{match[3]}", text)
        if filled != text:
            pages[page] = filled
    return pages


if __name__ == "__main__":
    run_script(main)
