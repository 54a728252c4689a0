"""Errors of other libraries become one line that a reader can use."""

import io
import sys

import pytest

from pvera import InputError
from pvera.errors import explained, run_script


@pytest.mark.parametrize(
    "message, said",
    [
        ("no  such\nfile", "no such file"),
        ("", "ValueError"),
        ("word " * 60, "word " * 39 + "…"),
        ("missing: " + "/folder" * 60, ("missing: " + "/folder" * 60)[:198] + " …"),
    ],
)
def test_long_messages_are_cut_but_not_dropped(message, said):
    with pytest.raises(InputError) as caught, explained("pets", "try again"):
        raise ValueError(message)
    assert str(caught.value) == f"pets: {said}; try again"


@pytest.mark.parametrize(
    "encoding, printed", [("ascii", r"\u03b2 caf\xe9 \udcff"), ("latin-1", "\\u03b2 café \\udcff")]
)
def test_scripts_print_on_any_terminal(encoding, printed, monkeypatch):
    """Output and an error's line, also with a file name that is no UTF-8."""
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding) for name in ("stdout", "stderr")}

    def main():
        print("β café \udcff")
        raise InputError("β café \udcff")

    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    with pytest.raises(SystemExit) as ended:
        run_script(main)
    assert ended.value.code == 2
    for name, prefix in (("stdout", ""), ("stderr", "error: ")):
        streams[name].flush()
        assert streams[name].buffer.getvalue().decode(encoding) == f"{prefix}{printed}\n"
