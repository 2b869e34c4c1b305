"""Entry point of the ``holdfast`` command. Reports a missing ``cli`` extra."""

from __future__ import annotations

import sys
from io import TextIOWrapper

from holdfast.extras import MissingExtraError, require_extra

EXIT_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    try:
        run(arguments)
    except KeyboardInterrupt:
        # Commands handle this themselves; this is for Ctrl-C during their import.
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        sys.exit(EXIT_INTERRUPTED)


def run(arguments: list[str] | None) -> None:
    """Import the commands, and run one."""
    try:
        with require_extra("cli"):
            from holdfast.cli.main import app  # noqa: PLC0415 - an extra
    except MissingExtraError as error:
        sys.exit(str(error))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Escape characters that the terminal cannot display instead of failing.
            stream.reconfigure(errors="backslashreplace")
    try:
        app(arguments, prog_name="holdfast")
    except OSError as error:
        # Typer prints help and completion itself.
        sys.exit(f"error: the output cannot be written: {error.strerror or error}")
