"""A console that survives a closed pipe.

``holdfast state prune --all | head -1`` must finish its work after its reader is gone. Output that
cannot be written is dropped. A closed pipe is not an error; any other failure, such as a full disk,
is reported at the end.
"""

from __future__ import annotations

import os
from typing import IO, Any

from rich.console import Console


class Output(Console):
    """A console that drops output after a failed write."""

    problem: OSError | None = None
    """Why output was dropped; None if all of it was written."""

    def print(self, *objects: Any, **options: Any) -> None:
        """Print, unless output is being dropped."""
        if self.problem is not None:
            return
        try:
            super().print(*objects, **options)
        except OSError as error:
            self.drop(error)

    def on_broken_pipe(self) -> None:
        """Drop output instead of ending the process, as rich would."""
        self.drop(BrokenPipeError())

    def drop(self, error: OSError) -> None:
        """Drop all further output."""
        self.problem = error
        self.quiet = True
        discard(self.file)


def discard(stream: IO[str]) -> None:
    """Connect a stream to the null device, so that what it still buffers can be flushed."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return  # not a file descriptor, so nothing is buffered
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, descriptor)
    finally:
        os.close(null)
