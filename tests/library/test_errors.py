"""Errors of other libraries become one line that a reader can use."""

import pytest

from pvera import InputError
from pvera.errors import explained


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
