"""What a store holds of a session, damaged: what is loaded is what was written, or an error.

An entry is damaged in its bytes, or is forged: changed, and its digest made right again. Of the
first, ``verify`` must not say that all is well unless all that can be read is as it was. Of the
second that cannot be asked, as who can write to a store can write another session there; but even
then nothing fails otherwise than with an error of Holdfast.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
import zlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
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
from trials.fuzz import junk
from trials.fuzz.mutation import changed_bytes, changed_text, changed_tree, written
from trials.fuzz.trying import Target, Wrong
from trials.fuzz.values import REAL

HERE = SnapshotLocation("ses_1", scope_id="research-bot")
BYTES, FORGED, KEY = "bytes", "forged", "key"
Loaded = dict[str, Any]


async def content_of(store: StateStore) -> dict[str, bytes]:
    """All that a store holds, by key."""
    keys = [key async for key in store.list("")]
    return {key: entry.value for key, entry in (await store.get_many(keys)).items()}


async def put_content(store: StateStore, wanted: dict[str, bytes]) -> None:
    """Make a store hold this, and nothing else."""
    there = await content_of(store)
    for key in there.keys() - wanted.keys():
        await store.delete(key)
    for key, value in wanted.items():
        if there.get(key) != value:
            await store.put(key, value)


async def real_session(*, pruned: bool) -> dict[str, bytes]:
    """A session with several segments, keyframes and snapshots; pruned, one without its start."""
    store = MemoryStateStore()
    async with Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id) as session:
        for number in range(5):
            session.add_message("user", f"what was said as number {number}")
            session.set("turn", REAL[number])
            await session.save(tags={"turn": str(number)})
            await session.commit()
    if pruned:
        await SnapshotArchive(store).prune(location=HERE, policy=RetentionPolicy(last=2))
    return await content_of(store)


def with_keyframes(make: Callable[[], Awaitable[dict[str, bytes]]]) -> dict[str, bytes]:
    """What a function makes, with a keyframe every other commit."""
    before = timeline.KEYFRAME_SLACK, timeline.MAX_SEGMENTS
    timeline.KEYFRAME_SLACK, timeline.MAX_SEGMENTS = 0, 2
    try:
        return asyncio.run(make())  # type: ignore[arg-type]
    finally:
        timeline.KEYFRAME_SLACK, timeline.MAX_SEGMENTS = before


def as_input(world: dict[str, bytes], kind: str, key: str, value: bytes) -> bytes:
    """An input: what is done, to which entry, what that becomes, and all that there was."""
    entries = {name: base64.b64encode(data).decode() for name, data in world.items()}
    return json.dumps([kind, key, base64.b64encode(value).decode(), entries]).encode()


class Stored(Target):
    """Segments, keyframes, records, manifests and the index of a session."""

    name = "stored"
    refusals = (HoldfastError,)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._worlds = [
            with_keyframes(lambda: real_session(pruned=False)),
            with_keyframes(lambda: real_session(pruned=True)),
        ]
        self._runner = asyncio.Runner()
        self._whole: dict[str, Loaded] = {}

    @property
    def corpus(self) -> Sequence[bytes]:
        """Every entry as it is."""
        return [
            as_input(world, BYTES, key, value)
            for world in self._worlds
            for key, value in world.items()
        ]

    def mutated(self, rng: Random) -> bytes:
        """One entry damaged, forged, or under another key."""
        world = rng.choice(self._worlds)
        key = rng.choice(sorted(world))
        kind = rng.randrange(8)
        if kind == 0:
            name = key.rpartition("/")[2]
            # Errors name the key, which is to be short where they are to be.
            other = key.removesuffix(name) + changed_text(rng, name)[:200]
            return as_input(world, KEY, other, world[key])
        if kind < 4:
            return as_input(world, FORGED, key, forged(rng, key, world[key]))
        others = list(world.values())
        return as_input(world, BYTES, key, changed_bytes(rng, world[key], others, 2))

    def made_up(self) -> st.SearchStrategy[bytes]:
        """An entry with anything as its content, under a digest that is right."""
        world = self._worlds[0]
        return st.builds(
            lambda key, tree: as_input(world, FORGED, key, resealed(world[key], tree, key)),
            st.sampled_from(sorted(world)),
            junk.trees(
                ("seq", "hash", "set", "delete", "snapshot_id", "floor", "id", "type", "at")
            ),
        )

    def attempt(self, data: bytes) -> None:
        """Do all that can be done with such a session."""
        kind, key, value, world = json.loads(data)
        before = {name: base64.b64decode(text) for name, text in world.items()}
        found = self._runner.run(self._loaded({**before, key: base64.b64decode(value)}))
        if kind == BYTES and found["ok"]:
            self._check_same(key, found, before)
        refused = [text for text in found.values() if isinstance(text, Refused)]
        if refused:
            raise IntegrityError(refused[0])

    def _check_same(self, key: str, found: Loaded, before: dict[str, bytes]) -> None:
        name = hashlib.sha256(repr(before).encode()).hexdigest()
        if name not in self._whole:
            self._whole[name] = self._runner.run(self._loaded(before))
        wrong = [each for each in found if found[each] != self._whole[name].get(each)]
        if wrong:
            raise Wrong(f"verify finds {key} whole, and {wrong} is not what it was")

    async def _loaded(self, entries: dict[str, bytes]) -> Loaded:
        """What can be read of a session; an error in the place of what cannot."""
        store = MemoryStateStore()
        try:
            await put_content(store, entries)
        except (HoldfastError, TypeError, ValueError):
            return {"ok": False, "key": Refused("no store takes such a key")}
        archive = SnapshotArchive(store)
        found: Loaded = {"ok": (await archive.verify(location=HERE)).ok}
        for name, ask in questions(store, archive).items():
            found[name] = await answer(ask)
        if await content_of(store) != entries:
            raise Wrong("who only looked has written something")
        return found

    def close(self) -> None:
        """End its loop."""
        self._runner.close()


class Refused(str):
    """What an error said, in the place of an answer."""

    __slots__ = ()


async def answer(ask: Callable[[], Awaitable[Any]]) -> Any:
    """What a question gives, or why it gives nothing."""
    try:
        return await ask()
    except HoldfastError as error:
        message = str(error)
        if len(message) > 2000:
            raise Wrong(f"a message of {len(message):,} characters: {message[:200]}") from error
        return Refused(message)


def questions(
    store: StateStore, archive: SnapshotArchive
) -> dict[str, Callable[[], Awaitable[Any]]]:
    """All that is asked of a session."""

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

    async def listed() -> str:
        return repr((await archive.list_snapshots(location=HERE)).snapshots)

    async def latest() -> str:
        loaded = await archive.load_snapshot(location=HERE)
        return "" if loaded is None else f"{loaded.digest} {loaded.tags} {loaded.created_at}"

    async def manifest() -> str:
        return repr(await archive.load_manifest(location=HERE))

    async def exported() -> str:
        manager = SnapshotManager(state_store=store)
        return (await manager.export_session(agent_id=HERE.scope_id)).digest

    async def copied() -> list[str]:
        target = MemoryStateStore()
        result = await copy_sessions(store, target)
        for problem in result.failed.values():
            raise IntegrityError(problem)
        return sorted(await content_of(target))

    asked = (state, events, snapshots, listed, latest, manifest, exported, copied)
    return {each.__name__: each for each in asked}


# --------------------------------------------------------------------------------------- forging


def forged(rng: Random, key: str, data: bytes) -> bytes:
    """An entry that says something else, and whose digest is right."""
    form = opened(data)
    if not isinstance(form, dict):
        return changed_bytes(rng, data)
    inner = next((name for name in ("events", "changes", "content") if name in form), None)
    if inner is not None and rng.randrange(4):
        return resealed(data, changed_tree(rng, form[inner]), key)
    return sealed(changed_tree(rng, form), key)


def opened(data: bytes) -> Any:
    """The JSON of an entry, unpacked if it is packed."""
    try:
        return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    except (EOFError, OSError, ValueError, zlib.error):
        return None


def resealed(data: bytes, tree: Any, key: str) -> bytes:
    """An entry with another content, and the digest of that."""
    form = opened(data)
    if not isinstance(form, dict):
        return written(tree)
    inner = next((name for name in ("events", "changes", "content") if name in form), "content")
    return sealed({**form, inner: tree}, key)


def sealed(form: Any, key: str) -> bytes:
    """The bytes of an entry, with the digest of what it has."""
    text = written(form)
    if isinstance(form, dict):
        for inner in ("events", "changes", "content"):
            if inner in form:
                raw = written(form[inner])
                digest = hashlib.sha256(raw).hexdigest()
                rest = {name: form[name] for name in form if name not in (inner, "digest")}
                start = written({**rest, "digest": digest})[:-1]
                text = start + b', "' + inner.encode() + b'": ' + raw + b"}"
    return gzip.compress(text, 1, mtime=0) if key.endswith(".gz") else text
