"""The scripts of experiments/, in this process without a new import of torch, or in one of
their own."""

import runpy
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pvera.data import inputs

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"


def forget() -> None:
    """Look at weights and data anew, as another process would."""
    inputs.describe_backbone.cache_clear()
    for cached in (inputs._load_backbone, inputs._load_data, inputs.data_sha256):
        cached.cache_clear()


def execute(name: str, *arguments) -> None:
    """Run experiments/`name`.py with these arguments; SystemExit if it ends with a status."""
    script = str(EXPERIMENTS / f"{name}.py")
    forget()  # a script is a process of its own
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [script, *map(str, arguments)])
        patch.syspath_prepend(str(EXPERIMENTS))  # as Python does: some scripts import train.py
        runpy.run_path(script, run_name="__main__")


def outcome(name: str, capsys, *arguments) -> tuple[int, str, str]:
    """Run the script; return its exit status, output and errors."""
    capsys.readouterr()
    status = 0
    try:
        execute(name, *arguments)
    except SystemExit as end:
        status = end.code
    return status, *capsys.readouterr()


def refusal(name: str, capsys, *arguments) -> str:
    """Run the script, check that it ends with one line of errors and exit status 2, and return
    the line."""
    status, _, errors = outcome(name, capsys, *arguments)
    assert status == 2 and errors.startswith("error: ") and errors.count("\n") == 1, (
        status,
        errors,
    )
    return errors.rstrip()


def start(name: str, *arguments, **options) -> subprocess.Popen:
    """Start the script in a process of its own. It takes Ctrl-C, which jobs in the background
    ignore."""
    return subprocess.Popen(
        [sys.executable, str(EXPERIMENTS / f"{name}.py"), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        **options,
    )
