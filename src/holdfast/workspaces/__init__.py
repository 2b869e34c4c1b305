"""Files of a folder: scan, ignore rules, plans, safe file operations and diffs.

Nothing here knows sessions: `holdfast.sessions.workspace` captures a folder into a session and
restores it from there.
"""

from holdfast.workspaces.compare import FileChange, WorkspaceDiff
from holdfast.workspaces.entries import FileEntry
from holdfast.workspaces.errors import WorkspaceChangedError, WorkspaceError
from holdfast.workspaces.reports import CaptureReport, RestoreReport
from holdfast.workspaces.scan import SkippedFile

__all__ = [
    "CaptureReport",
    "FileChange",
    "FileEntry",
    "RestoreReport",
    "SkippedFile",
    "WorkspaceChangedError",
    "WorkspaceDiff",
    "WorkspaceError",
]
