"""Put the tables that notebooks wrote anew into README.md and the pages of docs/.

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
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of README.md and docs/ (%(default)s)")
    options = parser.parse_args(words)
    for page, text in outdated(options.root).items():
        write_atomically(page, text.encode())
        print(f"{page.relative_to(options.root)}: written")


def outdated(root: Path) -> dict[Path, str]:
    """Return the pages whose tables are not those of the files that they name, with the text that they should have."""
    pages = {}
    for page in [root / "README.md", *sorted((root / "docs").glob("*.md"))]:
        text = page.read_text(encoding="utf-8")
        written = TABLE.sub(lambda found: f"{found[1]}\n\n{read_text(root / found[2]).strip()}\n\n{found[3]}", text)
        if written != text:
            pages[page] = written
    return pages


if __name__ == "__main__":
    run_script(main)
