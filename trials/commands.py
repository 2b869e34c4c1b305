"""The command line, run inside a trial: what it says, and the code that it ends with."""

from __future__ import annotations

from contextlib import redirect_stderr, redirect_stdout
from io import StringIO

from holdfast.cli.main import app


def command(*words: str) -> tuple[int, str]:
    """Run a command of Holdfast in this process; its exit code, and what it said."""
    said = StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        try:
            app(list(words), prog_name="holdfast")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
            return code, said.getvalue()
    return 0, said.getvalue()
