"""Measure exporting a whole session to a file, and importing it again.

A session of 10,000 messages, committed turn by turn to SQLite; its document has about 30 MB, as it
holds each message in the state and in its event. An export reads the log, checks it and writes the
document; an import reads it, checks digest and chain, and writes a new store. The peer is the
minimum of work: `orjson.dumps` of an existing tree with the same durable write, or a read with
`orjson.loads`. Rounds alternate, and the best counts. Memory is the peak of a new process beyond
its start, on Linux. `--smoke` runs a small session. Run: make bench-documents
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

import holdfast
from benchmarks.harness import Row, format_table, keep, progress, run_in_new_process, shuffle
from benchmarks.peers.holdfast_session import AGENT, SESSION
from benchmarks.peers.workload import make_conversation
from holdfast.stores.local import sync_descriptor, sync_folder

PEER, OURS = "orjson", "holdfast"
MILLI, MEGA = 1e3, 1e6
LONGEST, MOST_MEMORY = {"export": 1 / 5, "import": 1 / 3}, 3
"""Targets: orjson's time over ours, and peak memory in multiples of the document."""

# The peak from getrusage is at least that of the parent process.
MEMORY = """
import asyncio, re, sys
sys.path.insert(0, sys.argv[1])
from benchmarks import documents
def memory(what):
    with open("/proc/self/status") as file:
        return int(re.search(what + r":\\s*(\\d+) kB", file.read())[1]) * 1024
work = documents.Work(documents.Path(sys.argv[2]))
if sys.argv[3] == "orjson_export":
    work.read_tree()
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")  # The peak is what it is now.
before = memory("VmRSS")
asyncio.run(getattr(work, sys.argv[3])())
print(memory("VmHWM") - before)
"""


@dataclass(slots=True)
class Work:
    """The four operations, in a folder with the session and its document."""

    folder: Path
    number: int = 0
    tree: Any = None
    parts: dict[str, float] = field(default_factory=dict)
    """Seconds of the parts of the last operation."""

    @property
    def document(self) -> Path:
        """Return the path of the document."""
        return self.folder / "session.json"

    def store(self, name: str) -> holdfast.StateStore:
        """Return the URL of a database in the folder."""
        return holdfast.open_state_store(f"sqlite:///{self.folder}/{name}.db")

    def read_tree(self) -> None:
        """Load the document for the peer to write."""
        self.tree = orjson.loads(self.document.read_bytes())

    async def build(self, messages: int) -> None:
        """Write a session of this many messages, and its document."""
        async with (
            self.store("source") as state_store,
            holdfast.Session.open(state_store, agent_id=AGENT, session_id=SESSION) as session,
        ):
            added = 0
            for turn in make_conversation(-(-messages // 3)):
                for message in turn.messages[: messages - added]:
                    session.add_message(**message)
                    added += 1
                session.set("plan", turn.plan)
                await session.commit()
                progress(f"building: message {added:,} of {messages:,}")
        await self.export(self.document)

    async def holdfast_export(self) -> None:
        """Export from the store to a file."""
        await self.export(self.fresh("json"))

    async def export(self, path: Path) -> None:
        """Write the document of the session."""
        async with self.store("source") as state_store:
            manager = holdfast.SnapshotManager(state_store)
            start = time.perf_counter()
            exported = await manager.export_session(AGENT, SESSION)
            middle = time.perf_counter()
            manager.to_file(exported, path)
            end = time.perf_counter()
        self.parts = {"export_session": middle - start, "to_file": end - middle}

    async def orjson_export(self) -> None:
        """Write a tree to a file durably with orjson."""
        path = self.fresh("json")
        start = time.perf_counter()
        with path.open("wb") as file:
            file.write(orjson.dumps(self.tree))
            file.flush()
            sync_descriptor(file.fileno())
        sync_folder(path.parent)
        self.parts = {"": time.perf_counter() - start}

    async def holdfast_import(self) -> None:
        """Import a file as a session of a new store."""
        path = self.fresh("db")
        async with self.store(path.stem) as state_store:
            await state_store.get("nothing")  # The database exists, and its thread runs.
            manager = holdfast.SnapshotManager(state_store)
            start = time.perf_counter()
            found = manager.from_file(self.document)
            middle = time.perf_counter()
            await manager.import_session(found)
            end = time.perf_counter()
        self.parts = {"from_file": middle - start, "import_session": end - middle}

    async def orjson_import(self) -> None:
        """Parse a file with orjson."""
        start = time.perf_counter()
        tree = orjson.loads(self.document.read_bytes())
        self.parts = {"": time.perf_counter() - start}
        del tree

    def fresh(self, suffix: str) -> Path:
        """Return an unused path; delete what was written before."""
        for path in self.folder.glob("out-*"):
            path.unlink()
        self.number += 1
        return self.folder / f"out-{self.number}.{suffix}"


async def race(work: Work, rounds: int) -> list[Row]:
    """Alternate both sides."""
    rng = random.Random("documents")
    work.read_tree()
    rows = {}
    for what in ("export", "import"):
        total = Row(f"{what}: all of it", "ms", target=LONGEST[what])
        rows[what] = total
        for number in range(rounds):
            progress(f"{what}: round {number + 1} of {rounds}")
            for who in shuffle([PEER, OURS], rng):
                call: Callable[[], Awaitable[None]] = getattr(work, f"{who}_{what}")
                gc.collect()
                os.sync()  # Flush what others wrote, so that it does not count here.
                await call()
                total.offer(who, sum(work.parts.values()) * MILLI)
                for part, seconds in work.parts.items():
                    if part:
                        row = rows.setdefault(part, Row(f"{what}: {part} alone", "ms"))
                        row.offer(OURS, seconds * MILLI)
    return list(rows.values())


def measure_memory(work: Work, size: int) -> list[Row]:
    """Compare the peak memory of each side with three times the document."""
    rows = []
    for what in ("export", "import"):
        row = Row(f"{what}: memory at its peak", "MB", target=1)
        row.times[name_limit()] = MOST_MEMORY * size / MEGA
        for who in (OURS, PEER):
            progress(f"{row.question}: {who}")
            folder = str(Path(__file__).parent.parent)
            used = run_in_new_process(MEMORY, folder, str(work.folder), f"{who}_{what}")
            row.offer(who, used / MEGA)
        rows.append(row)
    return rows


def name_limit() -> str:
    """Return the name of the memory limit."""
    return f"{MOST_MEMORY} documents"


async def main() -> None:
    """Build, compare, measure memory, print, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a small run that writes no results")
    parser.add_argument("--messages", type=int, help="instead of 10,000; writes no results")
    options = parser.parse_args()
    messages = options.messages or (30 if options.smoke else 10_000)
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        work = Work(Path(folder))
        await work.build(messages)
        size = work.document.stat().st_size
        rows = await race(work, 1 if options.smoke else 7)
        work.tree = None
        memory = measure_memory(work, size)
    print("holdfast is", "compiled" if holdfast.compiled else "interpreted")
    print(f"{messages:,} messages, a document of {size / MEGA:.1f} MB\n")
    print(format_table("a session as a file", rows, PEER, [OURS]), end="\n\n")
    print(format_table("beyond what the process had before", memory, name_limit(), [OURS, PEER]))
    print(f"load of the machine: {os.getloadavg()[1]:.1f}", file=sys.stdout)
    if not options.smoke and not options.messages:
        figures = {"document_bytes": size, "load": os.getloadavg()}
        print(f"written to {keep('documents', [*rows, *memory], **figures)}")


if __name__ == "__main__":
    asyncio.run(main())
