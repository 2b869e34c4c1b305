"""Compare the writes that were acknowledged with what is stored.

Every commit carries a unique token as the text of a message. The writer records the token in its
ledger before the commit and again after it returned, with one ``write`` to a file each, which
survives a ``kill -9``. Afterwards each token is one of three:

    acknowledged   recorded twice: it must be stored exactly once
    unknown        recorded once: it is stored once, or not at all
    any other      must not be stored
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
class Tokens:
    """The tokens of one session, in the order they were recorded."""

    begun: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)


class Ledger:
    """A file with one line per record: ``begun`` or ``done``, a session, a token."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def begin(self, session_id: str, token: str) -> None:
        """Record that a commit of this token starts."""
        os.write(self._file, f"begun {session_id} {token}\n".encode())

    def done(self, session_id: str, token: str) -> None:
        """Record that the commit has returned."""
        os.write(self._file, f"done {session_id} {token}\n".encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_ledgers(paths: Iterable[Path]) -> dict[str, Tokens]:
    """Return the tokens of all writers, by session."""
    sessions: dict[str, Tokens] = {}
    for path in paths:
        for line in path.read_text().splitlines():
            word, session_id, token = line.split(" ")
            tokens = sessions.setdefault(session_id, Tokens())
            (tokens.begun if word == "begun" else tokens.acknowledged).append(token)
    return sessions


async def find_problems(
    state_store: StateStore, location: SnapshotLocation, tokens: Tokens
) -> list[str]:
    """Return everything wrong with a session, given the tokens of its writers.

    Verifies the log, then looks for the tokens in the events and, where those were pruned, in the
    messages of the state.
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
    # A message in the events is also in the state, so take the larger count.
    there = recorded | Counter(str(message["content"]) for message in session.messages)
    lost = [token for token in tokens.acknowledged if not there[token]]
    problems += [f"{name}: {token} was acknowledged but is lost" for token in lost]
    problems += [f"{name}: {token} is stored {n} times" for token, n in there.items() if n > 1]
    begun = set(tokens.begun)
    problems += [f"{name}: {token} was never committed" for token in there if token not in begun]
    return problems
