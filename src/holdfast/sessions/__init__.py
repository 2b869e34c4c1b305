"""Sessions: record what an agent does, commit, save, restore, fork and replay it."""

from __future__ import annotations

from holdfast.sessions.blocking import BlockingSession
from holdfast.sessions.blocking_workspace import BlockingWorkspace
from holdfast.sessions.replay import Step, replay
from holdfast.sessions.session import Session
from holdfast.sessions.workspace import Workspace
from holdfast.snapshots.tool_calls import UnfinishedCall

__all__ = [
    "BlockingSession",
    "BlockingWorkspace",
    "Session",
    "Step",
    "UnfinishedCall",
    "Workspace",
    "replay",
]
