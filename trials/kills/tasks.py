"""The task of a worker, and what all kinds of operation share."""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from holdfast import SnapshotArchive, SnapshotLocation, StateStore, StateStoreError
from holdfast.snapshots.catalog.catalog import Catalog
from trials.kills.stores import Stores
from trials.tokens import Ledger, Tokens, read_ledgers

T = TypeVar("T")

AGENT = "agent"
WORK = "work"
"""The name under which the ledger records operations instead of a session's commits."""


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker needs to know."""

    kind: str
    number: int
    ledger: str
    store: str
    """The name of the store to work on."""
    url: str
    session: str = ""
    target: str = ""
    """The URL of the target store, or the path of the document."""


class Kind(ABC):
    """A kind of operation: what a worker does, and what must hold after it was killed."""

    name: str
    operations = 3
    """The kill hits one of this many operations."""
    spreads: tuple[float, ...] = (0.0, 0.002, 0.01, 0.03)
    """Upper bounds in seconds for the delay between the start of an operation and the kill."""

    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.ledgers = stores.folder / f"ledgers-{self.name}"
        self.ledgers.mkdir()

    @abstractmethod
    def task(self, number: int) -> Task:
        """Prepare and return the task of the next worker."""

    @staticmethod
    @abstractmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Repeat the operation until killed. Runs in the worker."""

    @abstractmethod
    async def check(self, task: Task) -> list[str]:
        """Return what is wrong after the kill, and with repeating the interrupted operation."""

    def ledger(self, number: int) -> str:
        """Return the path of a worker's ledger."""
        return str(self.ledgers / f"{number:05}")

    def tokens(self) -> dict[str, Tokens]:
        """Return the tokens of all workers of this kind, by session."""
        return read_ledgers(sorted(self.ledgers.iterdir()))

    def operations_of(self, task: Task) -> Tokens:
        """Return the operations of one worker: started and acknowledged."""
        return read_ledgers([Path(task.ledger)]).get(WORK, Tokens())


async def retry_call(call: Callable[[], Awaitable[T]]) -> T:
    """Repeat a call until it succeeds, if its error says that this may help."""
    while True:
        try:
            return await call()
        except StateStoreError as error:
            if not (error.transient or error.unknown):
                raise
            await asyncio.sleep(0.05)


def make_bytes(dice: random.Random) -> bytes:
    """Return random bytes of varying size."""
    return dice.randbytes(dice.choice([20, 500, 3000, 20_000]))


async def list_locations(state_store: StateStore) -> list[SnapshotLocation]:
    """Return every location in a store."""
    catalog = Catalog(state_store)
    ids = await catalog.session_ids()
    return [location for each in ids for location in await catalog.locations(each)]


async def damage(state_store: StateStore) -> list[str]:
    """Verify every session of a store; return what is damaged."""
    archive = SnapshotArchive(state_store)
    problems = []
    for location in await list_locations(state_store):
        found = await archive.verify(location=location)
        problems += [f"{each.key}: {each.problem}" for each in found.damage]
    return problems
