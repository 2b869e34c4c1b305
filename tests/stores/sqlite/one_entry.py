"""Open a SQLite store to write or read one entry."""

from __future__ import annotations

from holdfast.stores.sqlite import SqliteStateStore, group_commit
from holdfast.stores.sqlite.write_calls import apply_calls


def connections(store):
    """Return the open connections of a store."""
    return store._connections._connections


def during_transaction(monkeypatch, act):
    """Call ``act(database, calls)`` within each transaction, after the calls were applied.

    A call that is alone gets a transaction of several statements too.
    """

    def apply_and_act(database, calls):
        apply_calls(database, calls)
        act(database, calls)

    monkeypatch.setattr(group_commit, "apply_calls", apply_and_act)
    monkeypatch.setattr(group_commit, "write_alone", lambda *_: False)


async def put_one(path, key="a", value=b"1", **options):
    """Write one entry and return its etag."""
    async with SqliteStateStore(path, **options) as store:
        return await store.put(key, value)


async def get_one(path, key="a"):
    """Return one entry."""
    async with SqliteStateStore(path) as store:
        return await store.get(key)
