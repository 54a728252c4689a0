"""A Griffe extension that shows fields and parameters as a list where a docstring describes them as "name: what"."""

import re

import griffe


class Fields(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **_) -> None:
        """Make a list of what a class says of its fields, and a function of its parameters."""
        if obj.docstring and (obj.is_class or obj.is_function):
            names = [*obj.members, *(parameter.name for parameter in getattr(obj, "parameters", ()))]
            obj.docstring.value = listed(obj.docstring.value, names)


def listed(text: str, names: list[str]) -> str:
    """Return a docstring with an item per "name: " or "name, name: " that begins a line or a sentence."""
    name = "|".join(map(re.escape, sorted(names, key=len, reverse=True))) or r"(?!)"
    return re.sub(rf"(?:^|(?<=[.;])[ \n]+)((?:{name})(?:, (?:{name}))*): ", r"\n\n- `\1`: ", text, flags=re.MULTILINE)
