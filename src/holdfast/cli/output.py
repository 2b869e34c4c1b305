"""Where commands print: a reader that goes away does not stop the work.

A command such as ``holdfast state prune --all | head -1`` has work to do after its reader is gone.
Output that cannot be written is dropped, and the command goes on: its exit code is that of the
work. A closed pipe is not an error. Any other failure, such as a full disk, is reported at the end.
"""

from __future__ import annotations

import os
from typing import IO, Any

from rich.console import Console


class Output(Console):
    """A console that drops its output after a write failed, instead of ending the command."""

    problem: OSError | None = None
    """Why output was dropped; None where all of it was written."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, unless output is being dropped."""
        if self.problem is not None:
            return
        try:
            super().print(*objects, **options)
        except OSError as error:
            self.drop(error)

    def on_broken_pipe(self) -> None:
        """Go on without a reader, where rich would end the process."""
        self.drop(BrokenPipeError())

    def drop(self, error: OSError) -> None:
        """Drop what is printed from now on, because of an error."""
        self.problem = error
        self.quiet = True
        discard(self.file)


def discard(stream: IO[str]) -> None:
    """Connect a stream to the null device, so that what it still buffers can be flushed."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return  # it is not a file of the system, and holds nothing back
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, descriptor)
    finally:
        os.close(null)
