"""A store that counts its calls, one that is interrupted, and small sessions to save in them."""

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


class ObservedStore(MemoryStateStore):
    """Counts the calls, and the keys and bytes that they read and write."""

    def __init__(self):
        super().__init__()
        self.forget()

    def forget(self):
        """Reset the counts."""
        self.calls = []
        self.listed = 0
        self.read = []
        self.written = []
        self.bytes_written = 0

    @property
    def listings(self):
        """The number of calls of ``list``."""
        return self.calls.count("list")

    @property
    def bytes(self):
        """The size of all values."""
        return sum(len(entry.value) for entry in self._entries.values())

    @property
    def content(self):
        """All values by key."""
        return {key: entry.value for key, entry in self._entries.items()}

    def keys_with(self, part=""):
        """Return the keys that contain a text."""
        return [key for key in self._keys if part in key]

    def list(self, prefix="", **bounds):
        self.calls.append("list")
        return super().list(prefix, **bounds)

    async def get(self, key):
        self.calls.append("get")
        return await super().get(key)

    async def get_many(self, keys):
        self.calls.append("get_many")
        return await super().get_many(keys)

    async def put(self, key, value, **conditions):
        self.calls.append("put")
        return await super().put(key, value, **conditions)

    async def put_many(self, puts, **conditions):
        self.calls.append("put_many")
        return await super().put_many(puts, **conditions)

    async def delete(self, key, **conditions):
        self.calls.append("delete")
        return await super().delete(key, **conditions)

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
        self.bytes_written += sum(len(put.value) for put in puts)
        return await super()._put_many(puts, conditions)

    async def _delete(self, key, if_match):
        self.written.append(key)
        return await super()._delete(key, if_match)

    async def damage(self, key, change):
        """Change the bytes of an entry by a function, or delete it if the function returns None."""
        data = change(self._entries[key].value)
        if data is None:
            await self.delete(key)
        else:
            await self.put(key, data)


class InterruptedStore(WrappedStateStore):
    """Runs a function once, before the call with a given number."""

    def __init__(self, inner, at, action):
        super().__init__(inner)
        self.calls = 0
        self.at = at
        self.action = action

    async def _call(self):
        self.calls += 1
        if self.calls == self.at:
            await self.action()

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


def make_state(messages=0, **values):
    """Return a frozen state with a number of messages and these values."""
    store = Store()
    for number in range(messages):
        content = f"the content of message {number}"
        store.set("messages", f"{number:012}", {"role": "user", "content": content})
    for key, value in values.items():
        store.set("state", key, value)
    return store.snapshot()


def make_snapshot(snapshot=None, location=HERE, **fields):
    """Return a snapshot of a state, without a log."""
    made = SessionSnapshot.from_snapshot(
        make_state() if snapshot is None else snapshot,
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
    )
    return replace(made, snapshot_id=new_id(), **fields)


async def save(archive, snapshot, location=HERE, *, snapshot_id=None, is_latest=False):
    """Save a snapshot and return its id."""
    snapshot_id = snapshot_id or snapshot.snapshot_id
    await archive.save_snapshot(
        location=location, snapshot_id=snapshot_id, is_latest=is_latest, snapshot=snapshot
    )
    return snapshot_id


async def save_many(state_store, count, location=HERE, *, since=None, tags=None, every=None):
    """Save snapshots of a growing conversation, an hour apart, and return them by id."""
    archive = SnapshotArchive(state_store)
    every = every or dt.timedelta(hours=1)
    since = since or dt.datetime.now(dt.UTC) - every * count
    found = {}
    for number in range(count):
        made = make_snapshot(
            make_state(number + 1, turn=number),
            location,
            created_at=since + every * number,
            tags=(tags or {}).get(number, {}),
        )
        await save(archive, made, location)
        found[made.snapshot_id] = made
    return found


async def load(store, snapshot_id=None, location=HERE):
    """Load a snapshot through a new archive."""
    return await SnapshotArchive(store).load_snapshot(location=location, snapshot_id=snapshot_id)


async def list_ids(store):
    """Return the ids in the history."""
    return await SnapshotArchive(store).list_snapshot_ids(location=HERE)


async def check_loads(state_store, snapshots, location=HERE):
    """Check that these snapshots load as they were saved."""
    archive = SnapshotArchive(state_store)
    for snapshot_id, snapshot in snapshots.items():
        loaded = await archive.load_snapshot(location=location, snapshot_id=snapshot_id)
        assert loaded is not None, snapshot_id
        assert loaded.digest == snapshot.digest
        assert loaded.tags == snapshot.tags
        assert loaded.created_at == snapshot.created_at


async def prune(store, policy=None, moment=NOW, **options):
    """Prune by a policy, by default to the last ten snapshots."""
    policy = policy or RetentionPolicy(last=10)
    archive = SnapshotArchive(store)
    return await archive.prune(location=HERE, policy=policy, now=moment, **options)


async def check_whole(store, snapshots):
    """Check that the history has exactly these snapshots, and that nothing is damaged."""
    assert await list_ids(store) == list(snapshots)
    await check_loads(store, snapshots)
    verification = await SnapshotArchive(store).verify(location=HERE)
    assert verification.damage == []
    assert verification.snapshots >= len(snapshots)


async def make_session_store(count=12):
    """Return a session with keyframes at 5, 9 and 13, each based on the last, and a latest."""
    store = ObservedStore()
    snapshots = await save_many(store, count)
    same = make_snapshot(make_state(count, turn=count - 1))
    await save(SnapshotArchive(store), same, is_latest=True)
    return store, snapshots


async def verify(store):
    """Verify the session."""
    return await SnapshotArchive(store).verify(location=HERE)


async def list_damage(store):
    """Return the keys of damaged entries."""
    found = (await verify(store)).damage
    assert all(each.problem for each in found)
    return {each.key for each in found}


def segment_key(seq):
    """Return the key of a segment."""
    return f"{HERE.prefix}log/00000000/{seq:012}.json"


def keyframe_key(seq):
    """Return the key of a keyframe."""
    return f"{HERE.prefix}keyframes/00000000/{seq:012}.json.gz"


def record_key(snapshots, at):
    """Return the key of the record of one snapshot."""
    return HERE.snapshot_key(list(snapshots)[at])


def take_last(snapshots, count):
    """Return the last snapshots by id."""
    return dict(list(snapshots.items())[-count:])


async def collect(items):
    """Return the items of an async iterator."""
    return [item async for item in items]


def try_call(function, *arguments):
    """Return the result of a function and None, or None and its error message."""
    try:
        return function(*arguments), None
    except HoldfastError as error:
        return None, str(error)


def flip_bit(data, bit):
    """Return bytes with one bit flipped."""
    at, place = divmod(bit, 8)
    return data[:at] + bytes([data[at] ^ 1 << place]) + data[at + 1 :]
