"""What workers were told beside their tokens, one JSON object a line, for the check afterwards.

refused    a token that a ``ConflictError`` said was not written: it must not be there
state      the digest of the state after an event
snapshot   the digest of what was saved under an id
copy       the digest of what a session was forked or imported from
once       what a side effect was said to have given
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
"""The agent that has all forks and imports."""
PRUNED = "pruned"
WHOLE = "whole"
FULL = 400
"""Events after which a session is left and the next one begun, so that what is held is bounded."""


@dataclass(frozen=True, slots=True)
class Note:
    """One thing that a worker was told: of a session, by name, a value."""

    kind: Kind
    session_id: str
    name: str
    value: str = ""


class Notes:
    """A file of notes."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, kind: Kind, session_id: str, name: str, value: str = "") -> None:
        """Keep one."""
        line = json.dumps(asdict(Note(kind, session_id, name, value)))
        os.write(self._file, f"{line}\n".encode())

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)


def read_notes(paths: Iterable[Path]) -> Iterator[Note]:
    """All that was noted."""
    for path in paths:
        with path.open() as lines:
            yield from (Note(**json.loads(line)) for line in lines)


def session_id_of(slot: int, generation: int) -> str:
    """Every third session is pruned now and then, and never restored; the others the other way."""
    return f"{PRUNED if slot % 3 == 2 else WHOLE}-{slot}-{generation}"


def is_pruned(session_id: str) -> bool:
    """Whether a session may have lost its first events on purpose."""
    return session_id.startswith(PRUNED)


def location_of(session_id: str) -> SnapshotLocation:
    """Where a session is: three agents share them."""
    kind, slot, _ = session_id.split("-", 2)
    owner = f"agent-{int(slot) % 4 % 3}" if kind in (PRUNED, WHOLE) else COPIES
    return SnapshotLocation(session_id, scope_id=owner)
