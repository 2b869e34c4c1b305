"""A store that is watched or interrupted, and small sessions to keep in it."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from holdfast import HoldfastError, Store
from holdfast.ids import new_id
from holdfast.snapshots import RetentionPolicy, SessionSnapshot, SnapshotArchive, SnapshotLocation
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.base import WrappedStateStore

NOW = dt.datetime(2026, 11, 15, 12, 0, tzinfo=dt.UTC)
HERE = SnapshotLocation("ses_abc123", scope_id="research-bot")


class Watched(MemoryStateStore):
    """Counts what is asked of it."""

    def __init__(self):
        super().__init__()
        self.forget()

    def forget(self):
        """Count from nothing."""
        self.listings = 0
        self.listed = 0
        self.read = []
        self.written = []

    @property
    def bytes(self):
        """How much is stored."""
        return sum(len(entry.value) for entry in self._entries.values())

    @property
    def content(self):
        """All that is stored."""
        return {key: entry.value for key, entry in self._entries.items()}

    def keys_with(self, part=""):
        """The keys that have a part."""
        return [key for key in self._keys if part in key]

    def list(self, prefix="", **bounds):
        self.listings += 1
        return super().list(prefix, **bounds)

    async def _page(self, span, count):
        page = await super()._page(span, count)
        self.listed += len(page)
        return page

    async def _get(self, key):
        self.read.append(key)
        return await super()._get(key)

    async def _get_many(self, keys):
        self.read += keys
        return await super()._get_many(keys)

    async def _put_many(self, puts, conditions=()):
        self.written += [put.key for put in puts]
        return await super()._put_many(puts, conditions)

    async def _delete(self, key, if_match):
        self.written.append(key)
        return await super()._delete(key, if_match)

    async def damage(self, key, change):
        """Make other bytes of what a key holds; None to remove it."""
        data = change(self._entries[key].value)
        if data is None:
            await self.delete(key)
        else:
            await self.put(key, data)


class Interrupted(WrappedStateStore):
    """Lets somebody else do something, once, before a call of a certain number."""

    def __init__(self, inner, at, meanwhile):
        super().__init__(inner)
        self.calls = 0
        self.at = at
        self.meanwhile = meanwhile

    async def _call(self):
        self.calls += 1
        if self.calls == self.at:
            await self.meanwhile()

    async def get(self, key):
        await self._call()
        return await super().get(key)

    async def get_many(self, keys):
        await self._call()
        return await super().get_many(keys)

    async def put(self, key, value, **conditions):
        await self._call()
        return await super().put(key, value, **conditions)

    async def put_many(self, puts, **conditions):
        await self._call()
        return await super().put_many(puts, **conditions)

    async def delete(self, key, **conditions):
        await self._call()
        return await super().delete(key, **conditions)

    async def list(self, prefix="", **bounds):
        await self._call()
        async for key in super().list(prefix, **bounds):
            yield key


def state(messages=0, **values):
    """A frozen state with so many messages and these values."""
    store = Store()
    for number in range(messages):
        content = f"what was said as number {number}"
        store.set("messages", f"{number:012}", {"role": "user", "content": content})
    for key, value in values.items():
        store.set("state", key, value)
    return store.snapshot()


def session_snapshot(snapshot=None, location=HERE, **fields):
    """A snapshot of a state, made without a log."""
    made = SessionSnapshot.from_snapshot(
        state() if snapshot is None else snapshot,
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
    )
    return replace(made, snapshot_id=new_id(), **fields)


async def save(archive, snapshot, location=HERE, *, snapshot_id=None, is_latest=False):
    """Keep a snapshot; gives its id."""
    snapshot_id = snapshot_id or snapshot.snapshot_id
    await archive.save_snapshot(
        location=location, snapshot_id=snapshot_id, is_latest=is_latest, snapshot=snapshot
    )
    return snapshot_id


async def saved(state_store, count, location=HERE, *, since=None, tags=None, every=None):
    """So many snapshots of a conversation that grows, an hour apart; gives them by id."""
    archive = SnapshotArchive(state_store)
    every = every or dt.timedelta(hours=1)
    since = since or dt.datetime.now(dt.UTC) - every * count
    found = {}
    for number in range(count):
        made = session_snapshot(
            state(number + 1, turn=number),
            location,
            created_at=since + every * number,
            tags=(tags or {}).get(number, {}),
        )
        await save(archive, made, location)
        found[made.snapshot_id] = made
    return found


async def load(store, snapshot_id=None, location=HERE):
    """A snapshot as somebody else finds it."""
    return await SnapshotArchive(store).load_snapshot(location=location, snapshot_id=snapshot_id)


async def ids_of(store):
    """The ids in the history."""
    return await SnapshotArchive(store).list_snapshot_ids(location=HERE)


async def check_loads(state_store, snapshots, location=HERE):
    """All of these load, each as it was saved."""
    archive = SnapshotArchive(state_store)
    for snapshot_id, snapshot in snapshots.items():
        loaded = await archive.load_snapshot(location=location, snapshot_id=snapshot_id)
        assert loaded is not None, snapshot_id
        assert loaded.digest == snapshot.digest
        assert loaded.tags == snapshot.tags
        assert loaded.created_at == snapshot.created_at


async def prune(store, policy=None, moment=NOW, **options):
    """Keep the last ten, or what a policy says."""
    policy = policy or RetentionPolicy(last=10)
    archive = SnapshotArchive(store)
    return await archive.prune(location=HERE, policy=policy, now=moment, **options)


async def check_whole(store, snapshots):
    """Exactly these snapshots are there, each as it was saved, and nothing is wrong."""
    assert await ids_of(store) == list(snapshots)
    await check_loads(store, snapshots)
    verification = await SnapshotArchive(store).verify(location=HERE)
    assert verification.damage == []
    assert verification.snapshots >= len(snapshots)


async def world(count=12):
    """A session with keyframes at 5, 9 and 13, one a change to the one before, and a latest."""
    store = Watched()
    snapshots = await saved(store, count)
    same = session_snapshot(state(count, turn=count - 1))
    await save(SnapshotArchive(store), same, is_latest=True)
    return store, snapshots


async def verify(store):
    """All that is wrong with the session."""
    return await SnapshotArchive(store).verify(location=HERE)


async def damage_of(store):
    """The keys that something is wrong with."""
    found = (await verify(store)).damage
    assert all(each.problem for each in found)
    return {each.key for each in found}


def log(seq):
    """The key of a segment."""
    return f"{HERE.prefix}log/00000000/{seq:012}.json"


def frame(seq):
    """The key of a keyframe."""
    return f"{HERE.prefix}keyframes/00000000/{seq:012}.json.gz"


def record(snapshots, at):
    """Return the key of the record of one snapshot."""
    return HERE.snapshot_key(list(snapshots)[at])


def last_of(snapshots, count):
    """Return the last snapshots by id."""
    return dict(list(snapshots.items())[-count:])


async def gathered(items):
    """All that an async iterator gives."""
    return [item async for item in items]


def tried(function, *arguments):
    """What a function gives and None, or None and what its refusal says."""
    try:
        return function(*arguments), None
    except HoldfastError as error:
        return None, str(error)


def flipped(data, bit):
    """Bytes with one bit changed."""
    at, place = divmod(bit, 8)
    return data[:at] + bytes([data[at] ^ 1 << place]) + data[at + 1 :]
