"""Typed settings from a YAML file, a command line or a caller, checked by pydantic.

`Count`, `Rate` and the like are types of fields, and `validated` makes a class of such fields. A value that does
not fit ends in one line that names the file, the key and the values that the key takes:

    my.yaml: schedule.epochs: must be a whole number from 1, not 'ten'
"""

import json
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import wraps
from pathlib import Path
from reprlib import Repr
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError, WrapValidator
from pydantic.dataclasses import dataclass
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from pvera.errors import InputError

T = TypeVar("T")
SHOWN = 3  # errors of one file
GIVEN = "given by the reader"  # metadata of fields that are no keys of the file
_short = Repr()
_short.maxstring = _short.maxother = 60


def shown(value: Any) -> str:
    """Return a value on one short line."""
    return _short.repr(value)


# Types of fields


def expected(words: str) -> WrapValidator:
    """Say what a type takes, whichever of its conditions a value fails."""

    def validate(value, conditions):
        try:
            return conditions(value)
        except ValidationError:
            raise ValueError(f"must be {words}, not {shown(value)}") from None

    return WrapValidator(validate)


def _distinct(values: list) -> list:
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"{value!r} stands twice")
    return values


Count = Annotated[int, Field(strict=True, ge=1), expected("a whole number from 1")]
Natural = Annotated[int, Field(strict=True, ge=0), expected("a whole number from 0")]
Rate = Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False), expected("a number above 0")]
Weight = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False), expected("a number from 0")]
Share = Annotated[float, Field(strict=True, ge=0, lt=1), expected("a number from 0 and below 1")]
Switch = Annotated[bool, Field(strict=True), expected("true or false")]
Text = Annotated[str, Field(strict=True, pattern=r"^[^\x00-\x1f]+$"), expected("text on one line")]
Name = Annotated[
    str, Field(strict=True, pattern=r"^\w[\w.-]*$"), expected("a name of letters, digits, '_', '-' and '.'")
]
Distinct = Annotated[list[T], AfterValidator(_distinct)]
Several = Annotated[list[T], Field(min_length=1), AfterValidator(_distinct)]


@contextmanager
def at(key: str) -> Iterator[None]:
    """Name `key` in an InputError raised inside. Classes of `validated` check in it what their types cannot."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{key}: {error}") from None


def choose(what: str, name: str, among: Iterable[str]) -> None:
    """Raise InputError unless `name` is one of `among`."""
    if name not in among:
        raise InputError(f"unknown {what} {name!r}; choose from {', '.join(among)}")


# Classes of such fields


def validated(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass whose values are checked. InputError names the first that do not fit."""
    config = ConfigDict(extra="forbid", validate_by_name=True, validate_by_alias=True)
    cls = dataclass(frozen=True, config=config)(cls)
    construct = cls.__init__

    @wraps(construct)
    def checked(self, *arguments, **keywords):
        try:
            construct(self, *arguments, **keywords)
        except ValidationError as error:
            raise InputError(_describe(cls, error)) from None

    cls.__init__ = checked
    return cls


def build(cls: type[T], content: Any, place: str | Path, section: str = "") -> T:
    """Build a `validated` class from the `content` of the file `place`, or of a section of it."""
    try:
        return TypeAdapter(cls).validate_python(content)
    except ValidationError as error:
        raise InputError(f"{place}: {_describe(cls, error, section)}") from None


def check(type_: Any, value: Any) -> None:
    """Raise InputError for a value that the type does not take."""
    try:
        TypeAdapter(type_).validate_python(value)
    except ValidationError as error:
        raise InputError(_message(None, error.errors()[0])) from None


def parse(type_: Any) -> Callable[[str], Any]:
    """Return a function for argparse that reads the text of an option as that type of number."""

    def read(text: str):
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        try:
            return TypeAdapter(type_).validate_python(value)
        except ValidationError as error:
            raise ArgumentTypeError(_message(None, error.errors()[0])) from None

    return read


def load_yaml(path: str | Path) -> Any:
    """Read a file in YAML 1.2, in which 1e-3 is a number and a key stands once. InputError names the wrong line."""
    try:
        return YAML(typ="safe", pure=True).load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is no text, so no YAML") from None
    except MarkedYAMLError as error:
        line = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"{path}{line}: {' '.join(str(error.problem).split())}") from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path} is no YAML: {str(error).splitlines()[0]}") from None


def _describe(cls: type | None, error: ValidationError, section: str = "") -> str:
    """Return one line on the errors, each with its key, as in `schedule.epochs`."""
    lines = []
    for one in error.errors():
        path = [str(step) for step in (section, *one["loc"]) if step not in ("", "[key]")]
        path = [step if step.isprintable() else repr(step) for step in path]
        keyed = isinstance(one.get("ctx", {}).get("error"), InputError)  # its message starts with a key: see `at`
        lines.append(("." if keyed else ": ").join(filter(None, [".".join(path), _message(cls, one)])))
    more = [f"and {len(lines) - SHOWN} more"] if len(lines) > SHOWN else []
    return "; ".join([*lines[:SHOWN], *more])


def _message(cls: type | None, error: dict) -> str:
    kind = error["type"]
    if kind == "value_error":
        return str(error["ctx"]["error"])
    if kind in ("missing", "missing_argument"):
        return "is missing"
    if kind in ("unexpected_keyword_argument", "invalid_key"):
        known = _keys(cls, error["loc"][:-1])
        near = get_close_matches(str(error["loc"][-1]), known, 1)
        return f"unknown key; did you mean {near[0]!r}?" if near else f"unknown key; choose from {', '.join(known)}"
    if kind == "too_short":
        return "must not be empty"
    words = {"list_type": "a list", "dict_type": "a mapping", "dataclass_type": "a mapping"}
    return f"must be {words.get(kind, error['msg'])}, not {shown(error['input'])}"


def _keys(cls: type, path: Iterable) -> list[str]:
    """Return the keys of `cls`, or of the class at `path` in it."""
    for step in path:
        names = {info.alias or name: name for name, info in cls.__pydantic_fields__.items()}
        hint = get_type_hints(cls)[names.get(step, step)]
        (cls,) = filter(is_dataclass, (hint, *get_args(hint)))
    given = {field.name for field in fields(cls) if field.metadata.get(GIVEN)}
    return [info.alias or name for name, info in cls.__pydantic_fields__.items() if name not in given]
