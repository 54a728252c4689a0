"""Tables in Markdown, for every page and every printed table."""

from collections.abc import Iterable, Sequence

RULES = {"l": ":--", "c": ":-:", "r": "--:"}


def table(header: Sequence[str], rows: Iterable[Sequence[str]], align: str = "") -> str:
    """Return a table of texts, without a line break at its end.

    align: "l", "c" or "r" per column; all columns are left-aligned where it is empty. Cells are Markdown: `escape`
    plain text first.
    """
    lines = [header, [RULES[letter] for letter in align or "l" * len(header)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def escape(text: str) -> str:
    """Return plain text with Markdown's special characters escaped."""
    for character in "*|_^":
        text = text.replace(character, f"\\{character}")
    return text
