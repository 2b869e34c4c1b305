"""What workers record besides their tokens, one JSON object per line.

refused    a token whose commit raised ``ConflictError``: it must not be stored
state      the digest of the state after an event
snapshot   the digest of a saved snapshot
copy       the digest of what a session was forked or imported from
once       the result of a side effect
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from holdfast import SnapshotLocation

Kind = Literal["refused", "state", "snapshot", "copy", "once"]

COPIES = "copies"
"""The agent of all forks and imports."""
PRUNED = "pruned"
WHOLE = "whole"
FULL = 400
"""Events after which a session is replaced by a new one, which bounds memory."""


@dataclass(frozen=True, slots=True)
class Note:
    """One record of a worker: a session, a name, a value."""

    kind: Kind
    session_id: str
    name: str
    value: str = ""


class Notes:
    """A file of notes."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, kind: Kind, session_id: str, name: str, value: str = "") -> None:
        """Append a note."""
        line = json.dumps(asdict(Note(kind, session_id, name, value)))
        os.write(self._file, f"{line}\n".encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_notes(paths: Iterable[Path]) -> Iterator[Note]:
    """Return all notes."""
    for path in paths:
        with path.open() as lines:
            yield from (Note(**json.loads(line)) for line in lines)


def session_id_of(slot: int, generation: int) -> str:
    """Return a session's id; every third one is pruned and never restored, others vice versa."""
    return f"{PRUNED if slot % 3 == 2 else WHOLE}-{slot}-{generation}"


def is_pruned(session_id: str) -> bool:
    """Return whether a session may have been pruned."""
    return session_id.startswith(PRUNED)


def location_of(session_id: str) -> SnapshotLocation:
    """Return the location of a session; three agents share them."""
    kind, slot, _ = session_id.split("-", 2)
    owner = f"agent-{int(slot) % 4 % 3}" if kind in (PRUNED, WHOLE) else COPIES
    return SnapshotLocation(session_id, scope_id=owner)
