"""Tables of the documentation."""

from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def section(page: str, heading: str) -> str:
    """Return what stands below a heading of docs/`page`.md."""
    return (DOCS / f"{page}.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]


def table(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the table below a heading of docs/`page`.md, row by row; the first
    row has the titles."""
    lines = [line for line in section(page, heading).splitlines() if line.startswith("|")]
    titles, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [titles, *rows]


def refusals(titles: list[str]) -> dict[str, list[str]]:
    """Return tool -> the methods, of these titles, that docs/training-loops.md says are refused."""
    refused = {}
    for line in section("training-loops", "Tools and methods").splitlines():
        if line.startswith("- "):
            methods, tools = line.removeprefix("- ").rstrip(".").split(": ", 1)
            names = methods.removeprefix("all but ").split(", ")
            assert names == ["all"] or set(names) <= set(titles), line
            others = names == ["all"] or methods.startswith("all but ")
            for tool in tools.split("; "):
                refused[tool] = [title for title in titles if (title in names) != others]
    return refused
