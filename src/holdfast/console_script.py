"""What the command ``holdfast`` calls: it needs the extra ``cli``, and says so without it."""

from __future__ import annotations

import sys
from io import TextIOWrapper

from holdfast.extras import MissingExtraError, require_extra

INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> None:
    """Run the command line."""
    try:
        run(arguments)
    except KeyboardInterrupt:
        # A command says this itself; to import it takes a while in which there is none as yet.
        if sys.stderr is not None:
            sys.stderr.write("interrupted\n")
        sys.exit(INTERRUPTED)


def run(arguments: list[str] | None) -> None:
    """Import the commands, and run the one that is asked for."""
    try:
        with require_extra("cli"):
            from holdfast.cli.main import app  # noqa: PLC0415 - an extra
    except MissingExtraError as error:
        sys.exit(str(error))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # A character that the terminal does not have is spelled out, rather than an error.
            stream.reconfigure(errors="backslashreplace")
    try:
        app(arguments, prog_name="holdfast")
    except OSError as error:
        # Help and completion are printed by the framework, to wherever the output goes.
        sys.exit(f"error: the output cannot be written: {error.strerror or error}")
