"""What a victim is told to do, and what every kind of work has in common."""

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
from trials.kills.places import Places
from trials.truth import Ledger, Told, read_ledgers

T = TypeVar("T")

AGENT = "agent"
WORK = "work"
"""Under this name the ledger has operations, rather than the commits of a session."""


@dataclass(frozen=True, slots=True)
class Task:
    """All that a victim needs to know."""

    kind: str
    number: int
    ledger: str
    store: str
    """The name of the store that it works on."""
    url: str
    session: str = ""
    target: str = ""
    """The URL of the store, or the document, that it writes to or reads from."""


class Kind(ABC):
    """One kind of work: what a victim does, and what must be true when it was killed."""

    name: str
    operations = 3
    """The kill comes in one of the first so many operations of a victim."""

    def __init__(self, places: Places) -> None:
        self.places = places
        self.ledgers = places.folder / f"ledgers-{self.name}"
        self.ledgers.mkdir()

    @abstractmethod
    def task(self, number: int) -> Task:
        """What the next victim is to do; whatever that needs is there."""

    @staticmethod
    @abstractmethod
    def work(task: Task, ledger: Ledger) -> None:
        """Do it, again and again, until killed. In the victim."""

    @abstractmethod
    async def check(self, task: Task) -> list[str]:
        """All that is wrong after the kill, also with doing the interrupted operation again."""

    def ledger(self, number: int) -> str:
        """Where a victim keeps its ledger."""
        return str(self.ledgers / f"{number:05}")

    def told(self) -> dict[str, Told]:
        """What all victims of this kind were told, by session."""
        return read_ledgers(sorted(self.ledgers.iterdir()))

    def operations_of(self, task: Task) -> Told:
        """The operations of one victim: what it began, and what it was told is done."""
        return read_ledgers([Path(task.ledger)]).get(WORK, Told())


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """Call until it succeeds, where the error says that this may help."""
    while True:
        try:
            return await call()
        except StateStoreError as error:
            if not (error.transient or error.unknown):
                raise
            await asyncio.sleep(0.05)


def bulk(dice: random.Random) -> bytes:
    """Something to store that does not compress, now and then much of it."""
    return dice.randbytes(dice.choice([20, 500, 3000, 20_000]))


async def all_locations(state_store: StateStore) -> list[SnapshotLocation]:
    """Every part of every session in a store."""
    catalog = Catalog(state_store)
    ids = await catalog.session_ids()
    return [location for each in ids for location in await catalog.locations(each)]


async def damage(state_store: StateStore) -> list[str]:
    """What is damaged in a store: every session of it is verified."""
    archive = SnapshotArchive(state_store)
    problems = []
    for location in await all_locations(state_store):
        found = await archive.verify(location=location)
        problems += [f"{each.key}: {each.problem}" for each in found.damage]
    return problems
