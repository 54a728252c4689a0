"""A Griffe extension that turns the docstrings, which are plain text, into Markdown."""

import re

import griffe


class Docstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_) -> None:
        """Escape tags; make a list of what a class says of its fields, and a function of its parameters."""
        if obj.docstring is None:
            return
        obj.docstring.value = escaped(obj.docstring.value)
        if obj.is_class or obj.is_function:
            names = [
                *obj.members,
                *(parameter.name for parameter in getattr(obj, "parameters", ())),
            ]
            obj.docstring.value = listed(obj.docstring.value, names)


def escaped(text: str) -> str:
    """Return a docstring whose "<name>" Markdown does not take for a tag; code stays as it is."""
    return re.sub(
        r"(^ {4}.*$|`[^`]*`)|<(?=[a-z/])",
        lambda found: found[1] or "&lt;",
        text,
        flags=re.MULTILINE,
    )


def listed(text: str, names: list[str]) -> str:
    """Return a docstring with an item per "name: " or "name, name: " that begins a line or follows a sentence."""
    name = "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)"
    return re.sub(
        rf"(?:^|(?<=[.;])[ \n]+)((?:{name})(?:, (?:{name}))*): ",
        r"\n\n- `\1`: ",
        text,
        flags=re.MULTILINE,
    )
