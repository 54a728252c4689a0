"""Tables of the documentation."""

from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def table(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading of docs/`page`.md, row by row; the first row has the titles."""
    section = (DOCS / f"{page}.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    titles, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [titles, *rows]
