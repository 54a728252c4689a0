"""Settings whose types are checked, from YAML files and records.

A wrong key is reported on one line:

    my.yaml: schedule.epochs: Input should be a valid integer, not 'ten'
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from ruamel.yaml import YAML

from pvera.errors import InputError, as_input_error

T = TypeVar("T")
STRICT = ConfigDict(strict=True, allow_inf_nan=False)
#: Our words for errors of pydantic, by type.
MESSAGES = {"extra_forbidden": "unknown key", "missing": "is missing"}


def _require_distinct(values: list) -> list:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{value!r} stands twice")
    return values


#: A text without line breaks and other control characters.
OneLine = Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$")]
#: A name that can be a folder's: of letters, digits and "_", behind the first also "." and "-".
Name = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
#: A list that is not empty and in which no value stands twice.
DistinctList = Annotated[list[T], Field(min_length=1), AfterValidator(_require_distinct)]


class StrictModel(BaseModel):
    """Frozen settings whose values have exactly their fields' types."""

    model_config = STRICT | ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def build(cls, content: Any, source: str | Path = "") -> Self:
        """Build from a mapping.

        Args:
            content: Values by key.
            source: The file that they come from.

        Raises:
            InputError: A key or a value is wrong; names `source` and the key.
        """
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise InputError(": ".join(filter(None, [str(source), one_line(error)]))) from None

    def replaced(self, **changes) -> Self:
        """Return a copy with other values; None changes nothing.

        Raises:
            InputError: A value does not fit.
        """
        given = {key: value for key, value in changes.items() if value is not None}
        return self.build(dict(self) | given)


def one_line(error: ValidationError) -> str:
    """Return the first of several errors, with its keys, on one line."""
    first = error.errors()[0]
    message = MESSAGES.get(first["type"], first["msg"]).removeprefix("Value error, ")
    if first["type"] not in (*MESSAGES, "value_error"):
        message += f", not {repr(first['input'])[:60]}"
    keys = ".".join(map(str, first["loc"]))
    return ": ".join(filter(None, [keys, message]))


def require_type(type_: Any, value: Any, key: str) -> None:
    """Raise ValueError, which names `key`, unless the value is of the type."""
    try:
        TypeAdapter(type_, config=STRICT).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"{key}: {one_line(error)}") from None


def require_known(kind: str, name: str, known: Iterable[str]) -> None:
    """Raise InputError, which lists the known names, unless `name` is one of them."""
    if name not in known:
        raise InputError(f"unknown {kind} {name!r}; choose from {', '.join(known)}")


def load_yaml(path: str | Path) -> Any:
    """Read a file in YAML 1.2, in which 1e-3 is a number and no key may stand twice.

    Raises:
        InputError: The file is damaged; names the line.
    """
    with as_input_error(f"{path} cannot be read"):
        return YAML(typ="safe", pure=True).load(Path(path).read_text(encoding="utf-8"))
