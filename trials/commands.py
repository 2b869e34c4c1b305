"""Run commands of the CLI within a trial."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper

import typer

from holdfast.cli.main import app

COMMAND = typer.main.get_command(app)


def run_command(*words: str) -> tuple[int, str, str]:
    """Run a command in this process; return its exit code, stdout and stderr."""
    out, err = (TextIOWrapper(BytesIO(), "utf-8", "backslashreplace") for _ in range(2))
    code: object = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            COMMAND.main(list(words), prog_name="holdfast")
        except SystemExit as end:
            code = end.code or 0
    out.seek(0)
    err.seek(0)
    return code if isinstance(code, int) else 1, out.read(), err.read()


def command(*words: str) -> tuple[int, str]:
    """Run a command in this process; return its exit code and everything it prints."""
    code, out, err = run_command(*words)
    return code, out + err
