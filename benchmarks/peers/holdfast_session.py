"""Holdfast: a session that is saved every turn, on any state store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import holdfast
from benchmarks.peers.workload import Contestant, Turn

AGENT, SESSION = "research-bot", "ses_1"
LOCATION = holdfast.SnapshotLocation(SESSION, scope_id=AGENT)


class HoldfastSession(Contestant):
    """One save per turn. ``measure`` returns the bytes stored, if they are not in the folder."""

    def __init__(
        self, folder: Path, url: str, measure: Callable[[str], Awaitable[int]] | None = None
    ) -> None:
        super().__init__(folder)
        self.url = url
        self.measure = measure
        self.samples = 1 if measure else self.samples
        self.marked = ""

    async def open(self) -> None:
        self.state_store = holdfast.open_state_store(self.url)
        self.archive = holdfast.SnapshotArchive(self.state_store)
        self.session = await holdfast.Session.open(
            self.state_store, agent_id=AGENT, session_id=SESSION
        )

    async def turn(self, turn: Turn) -> None:
        for message in turn.messages:
            self.session.add_message(**message)
        self.session.set("plan", turn.plan)
        self.saved = await self.session.save()

    async def mark(self) -> str:
        self.marked = self.saved.snapshot_id
        return self.marked

    async def load(self, snapshot_id: str | None) -> Sequence[Any]:
        return (await self.snapshot(snapshot_id)).state.messages

    async def snapshot(self, snapshot_id: str | None) -> holdfast.SessionSnapshot:
        """Return a snapshot, or the latest."""
        found = await self.archive.load_snapshot(location=LOCATION, snapshot_id=snapshot_id)
        if found is None:
            raise LookupError(snapshot_id)
        return found

    async def document(self) -> dict[str, Any]:
        """Return the session as a document with its events."""
        return (await self.session.export()).to_dict()

    async def ids(self) -> Sequence[str]:
        return await self.archive.list_snapshot_ids(location=LOCATION)

    async def size(self) -> int:
        return await self.measure(self.url) if self.measure else await super().size()

    async def close(self) -> None:
        await self.state_store.close()


async def measure_entries(url: str) -> int:
    """Return the bytes of all keys and values."""
    async with holdfast.open_state_store(url) as state_store:
        keys = [key async for key in state_store.list("")]
        total = sum(len(key.encode()) for key in keys)
        for start in range(0, len(keys), 100):
            found = await state_store.get_many(keys[start : start + 100])
            total += sum(len(entry.value) for entry in found.values())
    return total
