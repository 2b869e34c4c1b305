"""What writers were told, and whether that is what is there.

A writer gives every commit a token of its own, as the text of a message. It notes the token in its
ledger before the commit and once more when the commit has returned, by one ``write`` to a file,
which a ``kill -9`` of the writer does not undo. So afterwards each token is one of three:

    acknowledged   noted twice: it must be there, once
    unknown        noted once: it is there once, or not at all
    any other      must not be there
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from holdfast import Session, SnapshotLocation, StateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore


@dataclass(slots=True)
class Told:
    """The tokens of one session, in the order in which they were noted."""

    begun: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)


class Ledger:
    """A file of notes, one a line: ``begun`` or ``done``, a session, a token."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def begin(self, session_id: str, token: str) -> None:
        """A commit of this token comes next."""
        os.write(self._file, f"begun {session_id} {token}\n".encode())

    def done(self, session_id: str, token: str) -> None:
        """The commit has returned."""
        os.write(self._file, f"done {session_id} {token}\n".encode())

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)


def read_ledgers(paths: Iterable[Path]) -> dict[str, Told]:
    """What all writers noted, by session."""
    sessions: dict[str, Told] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            word, session_id, token = line.split(" ")
            told = sessions.setdefault(session_id, Told())
            (told.begun if word == "begun" else told.acknowledged).append(token)
    return sessions


async def problems_of(state_store: StateStore, location: SnapshotLocation, told: Told) -> list[str]:
    """All that is wrong with a session, given what its writers were told: nothing, it is hoped.

    The log is verified, which folds it anew; the tokens are looked for in the events, or, where
    those were pruned, in the messages of the state.
    """
    name = f"{location.scope_id}/{location.session_id}"
    session = await Session.open(
        ReadOnlyStateStore(state_store),
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
    )
    verification = await session.verify()
    problems = [f"{name}: {each.key}: {each.problem}" for each in verification.damage]
    recorded: Counter[str] = Counter()
    async for event in session.events:
        if event.type == "message.appended":
            recorded.update(str(value["content"]) for _, _, value in event.changes["set"])
    # What is in the events and in the state is the same message, so the larger number counts.
    there = recorded | Counter(str(message["content"]) for message in session.messages)
    lost = [token for token in told.acknowledged if not there[token]]
    problems += [f"{name}: {token} was acknowledged and is lost" for token in lost]
    problems += [f"{name}: {token} is there {n} times" for token, n in there.items() if n > 1]
    begun = set(told.begun)
    problems += [f"{name}: {token} was never committed" for token in there if token not in begun]
    return problems
