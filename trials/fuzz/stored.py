"""Damaged entries of a session: what is loaded is what was written, or an error.

Bytes of an entry are changed, or its content is forged under a correct digest. After the first,
``verify`` must not succeed unless everything still loads as it was. The second cannot be detected,
as anyone who can write to a store can write another session; but only HoldfastErrors may be raised.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from holdfast import (
    HoldfastError,
    IntegrityError,
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotLocation,
    SnapshotManager,
    StateStore,
)
from holdfast.log import timeline
from holdfast.stores.memory import MemoryStateStore
from holdfast.transfer.copy import copy_sessions
from trials.fuzz.strategies import dump_json, mutated_bytes, mutated_texts, mutated_trees, trees
from trials.fuzz.target import Target
from trials.fuzz.values import VALUES

HERE = SnapshotLocation("ses_1", scope_id="research-bot")
BYTES, FORGED, KEY = "bytes", "forged", "key"
CONTENT = ("events", "changes", "content")
"""The field of an entry that its digest covers."""
Content = dict[str, bytes]
Input = tuple[int, str, str, bytes]
"""The number of a session, and the kind, key and value of the entry that is replaced."""


async def read_content(store: StateStore) -> Content:
    """Return every entry of a store."""
    keys = [key async for key in store.list("")]
    return {key: entry.value for key, entry in (await store.get_many(keys)).items()}


async def write_content(store: StateStore, content: Content) -> None:
    """Make these the only entries of a store."""
    existing = await read_content(store)
    for key in existing.keys() - content.keys():
        await store.delete(key)
    for key, value in content.items():
        if existing.get(key) != value:
            await store.put(key, value)


async def write_session(*, pruned: bool) -> Content:
    """Return the entries of a session with several segments, keyframes and snapshots."""
    store = MemoryStateStore()
    limits = timeline.KEYFRAME_SLACK, timeline.MAX_SEGMENTS
    timeline.KEYFRAME_SLACK, timeline.MAX_SEGMENTS = 0, 2
    try:
        async with Session.open(store, agent_id="research-bot", session_id="ses_1") as session:
            for number in range(5):
                session.add_message("user", f"message {number}")
                session.set("turn", VALUES[number])
                await session.save(tags={"turn": str(number)})
                await session.commit()
        if pruned:
            await SnapshotArchive(store).prune(location=HERE, policy=RetentionPolicy(last=2))
    finally:
        timeline.KEYFRAME_SLACK, timeline.MAX_SEGMENTS = limits
    return await read_content(store)


@st.composite
def damaged_entries(draw: st.DrawFn, sessions: list[Content]) -> Input:
    """Generate a session and one entry of it that is damaged, forged or under another key."""
    number = draw(st.integers(0, len(sessions) - 1))
    session = sessions[number]
    key = draw(st.sampled_from(sorted(session)))
    value = session[key]
    match draw(st.sampled_from((BYTES, BYTES, BYTES, FORGED, FORGED, FORGED, KEY))):
        case "key":
            folder, _, name = key.rpartition("/")
            return number, KEY, f"{folder}/{draw(mutated_texts([name]))[:200]}", value
        case "forged":
            entry = json.loads(gzip.decompress(value) if key.endswith(".gz") else value)
            field = next((name for name in CONTENT if name in entry), None)
            if field is None or draw(st.integers(0, 3)) == 0:
                return number, FORGED, key, encode_entry(draw(mutated_trees([entry])), key)
            names = ("seq", "hash", "set", "delete", "snapshot_id", "floor", "id", "type", "at")
            content = draw(mutated_trees([entry[field]]) | trees(*names))
            return number, FORGED, key, encode_entry({**entry, field: content}, key)
        case _:
            return number, BYTES, key, draw(mutated_bytes([value], list(session.values())))


def encode_entry(entry: Any, key: str) -> bytes:
    """Return the bytes of an entry with a correct digest."""
    text = dump_json(entry)
    field = next((name for name in CONTENT if isinstance(entry, dict) and name in entry), None)
    if field is not None:
        content = dump_json(entry[field])
        digest = hashlib.sha256(content).hexdigest()
        rest = {name: entry[name] for name in entry if name not in (field, "digest")}
        start = dump_json({**rest, "digest": digest})[:-1]
        text = b'%b, "%b": %b}' % (start, field.encode(), content)
    return gzip.compress(text, 1, mtime=0) if key.endswith(".gz") else text


class Stored(Target):
    """Segments, keyframes, records, manifests and the index of a session."""

    refusals = (HoldfastError,)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._sessions = [asyncio.run(write_session(pruned=pruned)) for pruned in (False, True)]
        self._expected = [asyncio.run(self._load(session)) for session in self._sessions]
        self.valid = [
            (number, BYTES, key, value)
            for number, session in enumerate(self._sessions)
            for key, value in session.items()
        ]
        self.inputs = damaged_entries(self._sessions)

    def check(self, data: Input) -> None:
        """Verify, load, list, export and copy the session."""
        number, kind, key, value = data
        results = asyncio.run(self._load({**self._sessions[number], key: value}))
        if kind == BYTES and results["verified"]:
            expected = self._expected[number]
            wrong = [name for name in results if results[name] != expected[name]]
            assert not wrong, f"verify succeeds with {key} damaged, and {wrong} differ"
        for result in results.values():
            if isinstance(result, HoldfastError):
                raise result

    async def _load(self, content: Content) -> dict[str, Any]:
        """Return what each way to read the session returns, or the error it raises."""
        store = MemoryStateStore()
        try:
            await write_content(store, content)
        except (TypeError, ValueError) as error:
            raise IntegrityError("invalid key") from error
        archive = SnapshotArchive(store)
        results: dict[str, Any] = {"verified": (await archive.verify(location=HERE)).ok}
        for read in list_readers(store, archive):
            try:
                results[read.__name__] = await read()
            except HoldfastError as error:
                assert len(str(error)) < self.longest_message, f"long message: {error!s:.200}"
                results[read.__name__] = error
        assert await read_content(store) == content, "a reader wrote something"
        return results


def list_readers(
    store: StateStore, archive: SnapshotArchive
) -> tuple[Callable[[], Awaitable[Any]], ...]:
    """Return the ways to read a session."""

    async def state() -> str:
        opened = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
        return str(opened.snapshot().digest)

    async def events() -> list[str]:
        opened = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
        return [event.hash async for event in opened.events]

    async def snapshots() -> list[str]:
        ids = await archive.list_snapshot_ids(location=HERE)
        loaded = [await archive.load_snapshot(location=HERE, snapshot_id=each) for each in ids]
        return [f"{each.snapshot_id} {each.digest} {each.tags}" for each in loaded if each]

    async def infos() -> str:
        return repr((await archive.list_snapshots(location=HERE)).snapshots)

    async def latest() -> str:
        loaded = await archive.load_snapshot(location=HERE)
        return "" if loaded is None else f"{loaded.digest} {loaded.tags} {loaded.created_at}"

    async def manifest() -> str:
        return repr(await archive.load_manifest(location=HERE))

    async def export() -> str:
        manager = SnapshotManager(state_store=store)
        return (await manager.export_session(agent_id=HERE.scope_id)).digest

    async def copy() -> list[str]:
        target = MemoryStateStore()
        result = await copy_sessions(store, target)
        for problem in result.failed.values():
            raise IntegrityError(problem)
        return sorted(await read_content(target))

    return state, events, snapshots, infos, latest, manifest, export, copy
