"""The scripts of experiments/ in this process, which spares importing torch anew."""

import runpy
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).resolve().parents[1] / "experiments"


def execute(name: str, *arguments) -> None:
    """experiments/`name`.py with these arguments; SystemExit where it ends with a status."""
    script = str(EXPERIMENTS / f"{name}.py")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [script, *map(str, arguments)])
        patch.syspath_prepend(str(EXPERIMENTS))  # as Python does: some scripts import train.py
        runpy.run_path(script, run_name="__main__")


def outcome(name: str, capsys, *arguments) -> tuple[int, str, str]:
    """The script's exit status, and what it alone printed: its output and its errors."""
    capsys.readouterr()
    status = 0
    try:
        execute(name, *arguments)
    except SystemExit as end:
        status = end.code
    return status, *capsys.readouterr()


def refusal(name: str, capsys, *arguments) -> str:
    """The one line of errors with which the script ends, with exit status 2."""
    status, _, errors = outcome(name, capsys, *arguments)
    assert status == 2 and errors.startswith("error: ") and errors.count("\n") == 1, (status, errors)
    return errors.rstrip()
