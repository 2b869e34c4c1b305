"""All cases: an operation, a store, a fault and the call where it happens."""

from __future__ import annotations

import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast import StateStore
from holdfast.stores.files.store import FileStateStore
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.sqlite import SqliteStateStore
from holdfast.testing import Fault
from holdfast.testing.faulty_store import KINDS
from trials.faults.case import READS, WRITES, Case, Opener, Undisturbed
from trials.faults.operations import prepare_operations
from trials.report import ProgressBar, Report

STORES = {"memory": True, "memory, one by one": False, "sqlite": None, "files": None}
"""Kinds of store, and whether put_many is atomic; None leaves that to the store."""


def list_faults(whole: Undisturbed) -> Iterator[Fault]:
    """Yield every fault at every call."""
    for kinds, calls in ((READS, whole.reads), (WRITES, whole.writes)):
        for at in range(1, calls + 1):
            yield from (replace(fault, at=at) for fault in kinds)


def make_opener(store: str, folder: Path) -> Opener:
    """Return a context manager that opens an empty store of a kind."""

    @asynccontextmanager
    async def home() -> AsyncIterator[StateStore]:
        if store.startswith("memory"):
            yield MemoryStateStore()
            return
        with tempfile.TemporaryDirectory(dir=folder) as place:
            kind = SqliteStateStore if store == "sqlite" else FileStateStore
            async with kind(Path(place) / "state") as disk:
                yield disk

    return home


class Trial:
    """Cases on some stores, or a part of them, in random order, until the time is up."""

    def __init__(
        self,
        report: Report,
        *,
        stores: Sequence[str] = tuple(STORES),
        kinds: Sequence[str] = KINDS,
        only: str = "",
        seconds: float = 240.0,
        part: float = 1.0,
        seed: int = 1,
        bar: ProgressBar | None = None,
    ) -> None:
        self.report = report
        self.stores = stores
        self.kinds = kinds
        self.only = only
        self.seconds = seconds
        self.part = part
        self.chance = random.Random(seed)
        self.bar = bar
        self.begun = time.monotonic()

    async def run(self) -> None:
        """Run the cases; every store gets the same share of the time."""
        with tempfile.TemporaryDirectory() as folder:
            async with prepare_operations(self.only) as found:
                self.report.count("operations", len(found))
                if not found:
                    self.report.problem(f"no operation has {self.only!r} in its name")
                    return
                for number, store in enumerate(self.stores, start=1):
                    until = self.begun + self.seconds * number / len(self.stores)
                    await self.on(store, Path(folder), found, until)

    async def on(self, store: str, folder: Path, found: list[Any], until: float) -> None:
        """Run the cases on one store until the time is up."""
        cases = []
        for work in found:
            case = Case(work, make_opener(store, folder), atomic=STORES[store], report=self.report)
            whole = await case.undisturbed()
            faults = (each for each in list_faults(whole) if each.kind in self.kinds)
            cases += [(case, fault, whole) for fault in faults]
        self.chance.shuffle(cases)
        cases = cases[: round(len(cases) * self.part)]
        tried = 0
        for case, fault, whole in cases:
            if time.monotonic() > until:
                break
            await case.check(fault, whole)
            tried += 1
            if self.bar is not None:
                self.bar.to(time.monotonic() - self.begun)
        self.report.count(f"cases on {store}", tried)
        if not tried:
            self.report.problem(f"none of {len(cases)} cases was tried on {store}")
        self.report.count(f"left out on {store}, as time was up", len(cases) - tried)
