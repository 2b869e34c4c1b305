"""Sample values, difficult ids and common steps of the snapshot storage suites."""

from __future__ import annotations

import datetime as dt
import math
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from decimal import Decimal
from typing import Any, TypeAlias

from holdfast.snapshots.keys import SnapshotLocation
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.snapshots.session_state import MESSAGES, SESSION, STATE, STATUS, message_key
from holdfast.snapshots.storage import SnapshotStorage
from holdfast.state.store import Store

NewStorage: TypeAlias = Callable[
    [], SnapshotStorage | AbstractAsyncContextManager[SnapshotStorage, bool | None]
]

LOCATION = SnapshotLocation("ses_abc123", scope_id="research-bot")
ZONE = dt.timezone(dt.timedelta(hours=-9, minutes=-30))

EVERY_VALUE: dict[str, Any] = {
    "nothing": None,
    "bools": [True, False],
    "ints": [0, -1, 2**53 + 1, 2**64, -(2**200)],
    "floats": [0.1, 1.0, -0.0, 5e-324, math.inf, -math.inf, math.nan],
    "text": ["", "Grüße, 世界 \U0001f419", "\x00\x1f\x7f\u2028", "\ufeff", "$tuple"],
    "bytes": [b"", bytes(range(256))],
    "list": [1, [2, [3, []]], {}],
    "tuple": (1, (2, ()), [3, (4,)]),
    "dict": {"b": 1, "a": {"c": [None]}},
    "dict that looks like a tag": {"$tuple": [1]},
    "dict that looks like an escaped tag": {"$$tuple": [1]},
    "dict with keys that look alike": {1: "int", "1": "str", None: "none", "None": "str"},
    "dict with keys of every kind": {"s": 1, 7: 2, 2.5: 3, False: 4, None: 5, b"b": 6, (1, "x"): 7},
    "set": {1, "a", (2, 3), frozenset({4})},
    "empty set": set(),
    "frozenset": frozenset({b"x", None, 1.5}),
    "naive datetime": dt.datetime(2026, 11, 15, 2, 3, 4, 567),  # noqa: DTZ001 - naive on purpose
    "datetimes": [
        dt.datetime(2026, 11, 15, tzinfo=dt.UTC),
        dt.datetime(1, 2, 3, 4, 5, 6, 7, tzinfo=ZONE),
    ],
    "dates": [dt.date(2026, 11, 15), dt.date.min, dt.date.max],
    "times": [dt.time(23, 59, 59, 999_999), dt.time(1, 2, tzinfo=dt.UTC)],
    "timedeltas": [dt.timedelta(days=-3, microseconds=7), dt.timedelta.max],
    "uuid": uuid.UUID("019a8888-7777-7abc-8def-0123456789ab"),
    "decimals": [Decimal("-1.2300E-50"), Decimal("-Infinity"), Decimal("NaN")],
}
"""Values of every supported type, including those that are easily confused."""

HOSTILE_IDS = (
    "a",
    "A",
    "a ",
    "a/b",
    "a%2Fb",
    "/",
    ".",
    "..",
    "../a",
    "a/../../b",
    "a\\..\\b",
    "%00",
    "\x00",
    "a\x00b",
    "line\nline\r\t",
    "*?[a-z]",
    "a:b|c<d>\"e'",
    "'; DROP TABLE entries; --",
    "manifest.json",
    "é",  # one character
    "e\u0301",  # looks the same, two characters
    "\u202e\ufeff\uffff",
    "\U0001f419" * 256,
    "x" * 256,
)
"""Ids that escape their prefix or collide if they are not encoded."""


@asynccontextmanager
async def open_storage(new_storage: NewStorage) -> AsyncIterator[SnapshotStorage]:
    """Open a storage, and close it if it is a context manager."""
    given = new_storage()
    if isinstance(given, AbstractAsyncContextManager):
        async with given as storage:
            yield storage
    else:
        yield given


def make_snapshot(
    values: Mapping[str, Any],
    location: SnapshotLocation = LOCATION,
    *,
    messages: int = 0,
    status: str | None = None,
    parent_id: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> SessionSnapshot:
    """Return a new snapshot with these values."""
    store = Store()
    store.set_many([(STATE, key, value) for key, value in values.items()])
    for number in range(messages):
        store.set(MESSAGES, message_key(number), {"role": "user", "content": f"message {number}"})
    if status is not None:
        store.set(SESSION, STATUS, status)
    return SessionSnapshot.from_snapshot(
        store.snapshot(),
        agent_id=location.scope_id,
        session_id=location.session_id,
        scope=location.scope,
        parent_id=parent_id,
        tags=tags,
    )


async def save(
    storage: SnapshotStorage,
    snapshot: SessionSnapshot,
    location: SnapshotLocation = LOCATION,
    *,
    is_latest: bool = False,
) -> str:
    """Save a snapshot under its own id and return the id."""
    await storage.save_snapshot(
        location=location,
        snapshot_id=snapshot.snapshot_id,
        is_latest=is_latest,
        snapshot=snapshot,
    )
    return snapshot.snapshot_id


async def load(
    storage: SnapshotStorage,
    snapshot_id: str | None = None,
    location: SnapshotLocation = LOCATION,
) -> SessionSnapshot:
    """Load a snapshot that must exist; without an id the latest."""
    found = await storage.load_snapshot(location=location, snapshot_id=snapshot_id)
    assert found is not None, f"{snapshot_id or 'the latest'} of {location} was not found"
    return found


async def load_values(
    storage: SnapshotStorage,
    snapshot_id: str | None = None,
    location: SnapshotLocation = LOCATION,
) -> dict[str, Any]:
    """Load the values of a snapshot that must exist."""
    return (await load(storage, snapshot_id, location)).state.values


def is_identical(one: Any, other: Any) -> bool:
    """Return whether two values are equal with equal types at every level; NaN equals NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(is_identical, one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(
            any(is_identical(key, same) for same in other if same == key)
            and is_identical(value, other[key])
            for key, value in one.items()
        )
    if isinstance(one, set | frozenset):
        return one == other and sorted(map(repr, one)) == sorted(map(repr, other))
    # Distinguishes 0.0 from -0.0 and 1.20 from 1.2, and treats NaN as equal.
    return repr(one) == repr(other)
