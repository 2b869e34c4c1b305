"""Sessions: what an agent does, recorded, committed, saved, and gone back to.

    recorder.py    messages, values and events: what an agent does with a session
    recording.py   the state in memory and the events that wait
    session.py     Session: commit, save, restore, fork
    writing.py     the commit, and what to do where another writer was first
    rebasing.py    one's own events on top of another's
    parts.py       one agent's part in a session of several
    turns.py       tool calls that have no result
    once.py        side effects that are done once
    event_view.py  the events as a sequence
    exporting.py   a session with its events as one document
    importing.py   a document becomes a session
    manager.py     SnapshotManager: both, and files
    redaction.py   what must not leave is taken out of a document: cleaning.py does it to values,
                   known_texts.py to equal texts elsewhere; detection.py, secret_names.py find it
    copying.py     sessions from one store to another
    replaying.py   step by step through what happened
    blocking.py    the twin for code that is not async
    portal.py      the loop that works for it

Nothing here knows of a backend, a command or a server.
"""

from __future__ import annotations

from holdfast.sessions.blocking import BlockingSession
from holdfast.sessions.importing import ImportResult
from holdfast.sessions.manager import SnapshotManager
from holdfast.sessions.redaction import Redactor
from holdfast.sessions.replaying import Step, replay
from holdfast.sessions.session import Session
from holdfast.snapshots.tool_calls import UnfinishedCall

__all__ = [
    "BlockingSession",
    "ImportResult",
    "Redactor",
    "Session",
    "SnapshotManager",
    "Step",
    "UnfinishedCall",
    "replay",
]
