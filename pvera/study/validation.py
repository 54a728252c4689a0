"""Settings with checked types, from a YAML file, a command line or a caller; pydantic's first error as one line:

my.yaml: schedule.epochs: Input should be a valid integer, not 'ten'
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from ruamel.yaml import YAML

from pvera.errors import InputError, explained

T = TypeVar("T")
STRICT = ConfigDict(strict=True, allow_inf_nan=False)
WORDS = {"extra_forbidden": "unknown key", "missing": "is missing"}


def _distinct(values: list) -> list:
    if twice := [value for index, value in enumerate(values) if value in values[:index]]:
        raise ValueError(f"{twice[0]!r} stands twice")
    return values


Count = Annotated[int, Field(ge=1)]
Natural = Annotated[int, Field(ge=0)]
Rate = Annotated[float, Field(gt=0)]
Weight = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, lt=1)]
Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f]+$")]
Name = Annotated[str, Field(pattern=r"^\w[\w.-]*$")]
Several = Annotated[list[T], Field(min_length=1), AfterValidator(_distinct)]


class Settings(BaseModel):
    """Frozen settings whose values have exactly their fields' types."""

    model_config = STRICT | ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    @classmethod
    def build(cls, content: Any, place: str | Path = "") -> Self:
        """Build from a mapping. InputError names `place` and the keys that are wrong."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise InputError(": ".join(filter(None, [str(place), one_line(error)]))) from None

    def with_(self, **changes) -> Self:
        """Return a copy with other values; None changes nothing. InputError for values that do not fit."""
        return self.build(dict(self) | {key: value for key, value in changes.items() if value is not None})


def one_line(error: ValidationError) -> str:
    """Return the first error, with its keys, on one line."""
    first = error.errors()[0]
    message = WORDS.get(first["type"], first["msg"]).removeprefix("Value error, ")
    if first["type"] not in (*WORDS, "value_error"):
        message += f", not {repr(first['input'])[:60]}"
    keys = ".".join(str(key) if str(key).isprintable() else repr(key) for key in first["loc"])
    return ": ".join(filter(None, [keys, message]))


def check(type_: Any, value: Any, place: str) -> None:
    """Raise ValueError, which names `place`, for a value that is not of the type."""
    try:
        TypeAdapter(type_, config=STRICT).validate_python(value)
    except ValidationError as error:
        raise ValueError(f"{place}: {one_line(error)}") from None


def choose(what: str, name: str, among: Iterable[str]) -> None:
    """Raise InputError unless `name` is one of `among`."""
    if name not in among:
        raise InputError(f"unknown {what} {name!r}; choose from {', '.join(among)}")


def load_yaml(path: str | Path) -> Any:
    """Read a file in YAML 1.2, in which 1e-3 is a number and a key stands once. InputError names the wrong line."""
    with explained(f"{path} cannot be read"):
        return YAML(typ="safe", pure=True).load(Path(path).read_text(encoding="utf-8"))
