"""Changes of a thread that are not committed yet, and their outcome for the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.sessions.commit import Committer
from holdfast.snapshots.records import SnapshotInfo
from holdfast.stores.base import StateStore


@dataclass(frozen=True, slots=True)
class PendingSnapshot:
    """A snapshot of a pending event: which of the pending events it is, and its metadata."""

    index: int
    info: SnapshotInfo


RecordFunction: TypeAlias = Callable[[Committer], Awaitable[PendingSnapshot | None]]


@dataclass(slots=True)
class PendingChange:
    """A pending change, and the future of the caller that waits for it."""

    record: RecordFunction
    done: asyncio.Future[None]
    key: str = ""
    """Of the snapshot that is written with it."""
    is_again: bool = False
    """Whether it may be written already."""

    async def check_again(self, state_store: StateStore) -> None:
        """Find out whether it was written by an attempt that was cancelled."""
        if self.is_again and self.key and await state_store.get(self.key) is not None:
            self.finish(None)

    async def recorded(self, writer: Committer) -> PendingSnapshot | None:
        """Record it; one that cannot be recorded fails, and the others go on."""
        if self.done.done():
            return None
        try:
            return await self.record(writer)
        except Exception as error:  # noqa: BLE001 - it is for the caller that waits
            self.finish(error)
            return None

    def finish(self, error: Exception | None) -> None:
        """Set the outcome; the caller may have been cancelled."""
        if self.done.done():
            return
        if error is None:
            self.done.set_result(None)
        else:
            self.done.set_exception(error)
