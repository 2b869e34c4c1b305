"""A pager for long output, on a terminal only.

``PAGER`` names it, ``less`` without that; ``PAGER=cat`` or an empty one means none. Output that
fits the screen is printed as it is.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated

import typer
from rich.pager import Pager

from holdfast.cli.console import out

LESS = "FRX"
"""Default for $LESS: quit if it fits one screen, keep colours, do not clear the screen."""
NO_PAGER = ("", "cat")

NoPagerOption = Annotated[bool, typer.Option("--no-pager", help="Do not use a pager.")]


@contextmanager
def use_pager(*, no_pager: bool) -> Iterator[None]:
    """Send the output to a pager if stdout is a terminal."""
    command = None if no_pager else pager_command()
    if command is None:
        yield
        return
    with out.pager(ProcessPager(command), styles=not out.no_color):
        yield


def pager_command() -> list[str] | None:
    """Return the pager command, or None if none is used."""
    if sys.stdout is None or not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return None
    wanted = os.environ.get("PAGER", "less").strip()
    if wanted in NO_PAGER:
        return None
    command = shlex.split(wanted)
    return command if shutil.which(command[0]) else None


class ProcessPager(Pager):
    """An external pager."""

    def __init__(self, command: list[str]) -> None:
        self.command = command

    def show(self, content: str) -> None:
        """Show a text, through the program if it is longer than the screen."""
        if content.count("\n") < shutil.get_terminal_size().lines:
            sys.stdout.write(content)
            sys.stdout.flush()
            return
        environment = {"LESS": LESS, "LV": "-c", **os.environ}
        process = subprocess.Popen(  # noqa: S603 - the user's own pager, without a shell
            self.command, stdin=subprocess.PIPE, env=environment
        )
        # Ctrl-C goes to the pager. Leaving it early is not an error.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            with suppress(BrokenPipeError):
                process.communicate(content.encode(errors="backslashreplace"))
            process.wait()
        finally:
            signal.signal(signal.SIGINT, before)
