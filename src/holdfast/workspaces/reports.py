"""What a capture or a restore did."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from holdfast.workspaces.scan import SkippedFile


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """What a capture found, compared with the files that the session had before."""

    added: int
    changed: int
    removed: int
    unchanged: int
    size: int
    """The bytes of all captured files together."""
    paths: list[str]
    """The files that were added, changed or removed, sorted."""
    skipped: list[SkippedFile]
    """Files that were not captured, each with the reason. Ignored files are not listed."""
    seq: int
    """The number of the last committed event; the state there has the files."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore changed in the folder, or would change. All lists are sorted."""

    written: list[str]
    """Files and links that were created or replaced."""
    removed: list[str]
    modes: list[str]
    """Files of which only the mode was changed."""
    kept: list[str]
    """Files that are not in the restored state and stay, because its own rules ignore them."""
    unchanged: int
    dry_run: bool
    changed: list[str] = field(default_factory=list)
    """Of these, the files that changed since the last capture."""
    undo: int | None = None
    """The event at which the session has the files as they were: restore it to undo the restore."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return asdict(self)
