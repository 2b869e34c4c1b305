"""Errors about the files of a workspace."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.errors import HoldfastError

MAX_NAMES = 3


class WorkspaceError(HoldfastError):
    """A folder cannot be captured or restored. ``path`` is the file that the error is about."""

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class WorkspaceChangedError(WorkspaceError):
    """The folder changed since its last capture; ``paths`` lists the files that differ."""

    def __init__(self, message: str, paths: Sequence[str]) -> None:
        super().__init__(message, paths[0] if paths else None)
        self.paths = list(paths)


def explain_file_error(action: str, path: str, error: OSError) -> WorkspaceError:
    """Return the error for a file operation that the system refused."""
    is_captured = action in {"capture", "read folder", "read link"}
    remedy = "; make it readable, or add it to .holdfastignore" if is_captured else ""
    return WorkspaceError(f"cannot {action} {path!r}: {error.strerror or error}{remedy}", path)


def format_names(paths: Sequence[str]) -> str:
    """Return the first of some paths, and how many more there are."""
    names = ", ".join(repr(path) for path in paths[:MAX_NAMES])
    more = len(paths) - MAX_NAMES
    return f"{names} and {more:,} more" if more > 0 else names
