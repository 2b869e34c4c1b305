"""Compare what is stored with what all workers recorded, while none of them runs."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from holdfast import (
    Catalog,
    NotFoundError,
    Session,
    SessionEntry,
    SnapshotArchive,
    StateStore,
    open_state_store,
)
from holdfast.snapshots.session_state import ONCE
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from trials.soak.notes import Note, is_pruned, location_of, read_notes
from trials.soak.worker import RoundResult
from trials.tokens import Tokens, find_problems, read_ledgers


def check_store(url: str, folder: Path) -> RoundResult:
    """Return everything wrong in a store, and counts of what was checked."""
    ledgers = read_ledgers(sorted(folder.glob("*.ledger")))
    notes: defaultdict[str, list[Note]] = defaultdict(list)
    for note in read_notes(sorted(folder.glob("*.notes"))):
        notes[note.session_id].append(note)

    async def whole() -> RoundResult:
        async with open_state_store(url) as store:
            check = Check(ReadOnlyStateStore(store))
            for session_id in sorted({*ledgers, *notes}):
                await check.session(session_id, ledgers.get(session_id), notes[session_id])
            await check.listing({*ledgers, *notes}, notes, ledgers)
        return check.result

    return asyncio.run(whole())


class Check:
    """One check of everything."""

    def __init__(self, state_store: StateStore) -> None:
        self.state_store = state_store
        self.archive = SnapshotArchive(state_store)
        self.result = RoundResult()

    async def session(self, session_id: str, tokens: Tokens | None, notes: list[Note]) -> None:
        """Check one session: its tokens, and the notes about it."""
        location = location_of(session_id)
        session = await Session.open(
            self.state_store, agent_id=location.scope_id, session_id=session_id
        )
        if tokens is not None:
            self.result.problems += await find_problems(self.state_store, location, tokens)
            self.result.counts["tokens found"] += len(tokens.acknowledged)
            self.problems(session_id, wrong_tokens(await tokens_in(session), notes))
        else:
            damage = (await session.verify()).damage
            self.problems(session_id, (f"{each.key}: {each.problem}" for each in damage))
        self.result.counts["sessions verified"] += 1
        self.problems(session_id, wrong_effects(session, notes))
        for note in notes:
            await self.note(session, note)

    async def note(self, session: Session, note: Note) -> None:
        """Check that a note still holds."""
        if note.kind == "copy":
            found: str | None = session.snapshot().digest
            self.result.counts["forks and imports compared"] += 1
        elif note.kind == "snapshot":
            snapshot = await self.archive.load_snapshot(
                location=session.location, snapshot_id=note.name
            )
            if snapshot is None and is_pruned(note.session_id):
                return
            found = None if snapshot is None else snapshot.digest
            self.result.counts["snapshots compared"] += 1
        elif note.kind == "state":
            try:
                timeline = await self.archive.timeline(location=session.location)
                found = (await timeline.load(int(note.name))).store.snapshot().digest
            except NotFoundError:
                if is_pruned(note.session_id):
                    return
                raise
            self.result.counts["states compared"] += 1
        else:
            return
        if found != note.value:
            result = f"was {note.value} when it was made and is {found}"
            self.problems(note.session_id, [f"{note.kind} {note.name} {result}"])

    async def listing(
        self, known: set[str], notes: dict[str, list[Note]], ledgers: dict[str, Tokens]
    ) -> None:
        """Check that exactly the sessions that were written to are listed."""
        catalog = Catalog(self.state_store)
        listed = {
            entry.session_id
            for agent in await catalog.agents()
            for entry in await all_sessions(catalog, agent)
        }
        written = {
            session_id
            for session_id in known
            if (session_id in ledgers and ledgers[session_id].acknowledged)
            or any(note.kind == "copy" for note in notes[session_id])
        }
        self.result.counts["sessions listed"] += len(listed)
        self.problems("the catalog", (f"{each} is not listed" for each in written - listed))
        self.problems("the catalog", (f"{each} is nobody's" for each in listed - known))

    def problems(self, name: str, texts: Iterator[str] | list[str]) -> None:
        """Record problems."""
        self.result.problems += [f"{name}: {text}" for text in texts]


async def all_sessions(catalog: Catalog, agent: str) -> list[SessionEntry]:
    """Return all sessions of an agent, page by page."""
    found: list[SessionEntry] = []
    token = None
    while True:
        page = await catalog.sessions(agent, limit=1000, next_token=token)
        found += page.sessions
        token = page.next_token
        if token is None:
            return found


async def tokens_in(session: Session) -> list[str]:
    """Return the tokens of a session, in order."""
    found = [str(message["content"]) for message in session.messages]
    if is_pruned(session.session_id):
        return found
    return [
        str(value["content"])
        async for event in session.events
        if event.type == "message.appended"
        for _, _, value in event.changes["set"]
    ]


def wrong_tokens(tokens: list[str], notes: list[Note]) -> Iterator[str]:
    """Yield tokens that are stored although they were refused, or that are out of order."""
    there = set(tokens)
    for note in notes:
        if note.kind == "refused" and note.name in there:
            yield f"{note.name} was refused but is stored"
    for token, times in Counter(tokens).items():
        if times > 1:
            yield f"{token} is stored {times} times"
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for token in tokens:
        worker, _, number = token.partition("-")
        numbers[worker].append(int(number))
    for worker, found in numbers.items():
        if found != sorted(found):
            yield f"the tokens of worker {worker} are not in the order in which they were written"


def wrong_effects(session: Session, notes: list[Note]) -> Iterator[str]:
    """Yield side effects whose result differs from the recorded one."""
    state = session.snapshot()
    for note in notes:
        if note.kind != "once":
            continue
        kept = state.get(ONCE, note.name)
        if kept is None or kept["result"] != note.value:
            yield f"once {note.name} gave {note.value}, and {kept} is kept"
