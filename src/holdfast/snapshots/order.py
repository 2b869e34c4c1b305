"""The order in which snapshots were saved, which the keys of the history encode.

    immutable_history/snapshot_<snapshot_id>.json           a snapshot whose id gives its order
    immutable_history/snapshot_<stamp>_<snapshot_id>.json   any other snapshot
    ids/<snapshot_id>.json                                  {"stamp": …}: its id entry

An id gives the order of its snapshot if it is a UUIDv7 later than that of every snapshot saved
before, and not ahead of the clock. `Session.save` makes such ids, so its records need no id entry.
Any other id gets a *stamp*, a UUIDv7 made when the snapshot is saved, and an id entry to find it.
Either way a listing of the keys is in the order of saving.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from holdfast.ids import new_id
from holdfast.snapshots.envelope import damaged_record_error, decode_envelope, encode_envelope
from holdfast.snapshots.keys import EPOCH, SnapshotLocation, is_snapshot_id, validate_snapshot_id

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
UUID_LENGTH = 36
NAME = re.compile(r"[A-Za-z0-9_-]{1,165}")
SUFFIX = ".json"
WHAT = "id entry"


@dataclass(frozen=True, slots=True)
class HistoryKey:
    """The key of a snapshot in the history, parsed."""

    location: SnapshotLocation
    snapshot_id: str
    stamp: str | None = None
    """The UUIDv7 before the id in the key, if the id does not give the order."""

    @property
    def order(self) -> str:
        """What snapshots are sorted by, in the order of saving."""
        return self.stamp or self.snapshot_id

    @property
    def name(self) -> str:
        """The part of the key after the history's prefix, without the suffix."""
        return f"{self.stamp}_{self.snapshot_id}" if self.stamp else self.snapshot_id

    @property
    def key(self) -> str:
        """The whole key."""
        return f"{self.location.history_prefix}{self.name}{SUFFIX}"


def parse_history_key(location: SnapshotLocation, key: str) -> HistoryKey | None:
    """Parse a key of the history; None for a key that Holdfast did not write."""
    if not key.endswith(SUFFIX):
        return None
    name = key[len(location.history_prefix) : -len(SUFFIX)]
    stamp, rest = name[:UUID_LENGTH], name[UUID_LENGTH:]
    if is_uuid7(stamp) and rest[:1] == "_" and is_snapshot_id(rest[1:]):
        return HistoryKey(location, rest[1:], stamp)
    return HistoryKey(location, name) if is_snapshot_id(name) else None


def parse_page_token(location: SnapshotLocation, token: object) -> str:
    """Return the key after which a page token continues.

    Raises:
        ValueError: The token is not from a page.

    """
    if not isinstance(token, str) or NAME.fullmatch(token) is None:
        raise ValueError(
            f"invalid next_token {token!r:.200}; pass the next_token of the previous page"
        )
    return f"{location.history_prefix}{token}{SUFFIX}"


def is_uuid7(text: str) -> bool:
    """Tell whether a text is a UUIDv7 as `new_id` formats it."""
    return UUID7.fullmatch(text) is not None


def choose_stamp(snapshot_id: str, after: str | None) -> str | None:
    """Return the stamp for a snapshot that is saved now; None if its id gives its order.

    ``after`` is the order of the snapshot that was saved last.
    """
    fresh = new_id(after=after)
    if is_uuid7(snapshot_id) and (after or "") < snapshot_id < fresh:
        return None
    return fresh


def order_of_time(time: dt.datetime) -> str:
    """Return the order of a snapshot of which only the time is known."""
    microseconds = max(0, (time - EPOCH) // dt.timedelta(microseconds=1))
    millisecond, rest = divmod(microseconds, 1000)
    text = f"{millisecond:012x}"
    return f"{text[:8]}-{text[8:]}-7{rest * 4096 // 1000:03x}-"


# ----------------------------------------------------------------------------------- id entries


def id_entries_prefix(location: SnapshotLocation) -> str:
    """Return the prefix of all id entries."""
    return f"{location.prefix}snapshots/ids/"


def id_entry_key(location: SnapshotLocation, snapshot_id: str) -> str:
    """Return the key of a stamped snapshot's id entry."""
    return f"{id_entries_prefix(location)}{validate_snapshot_id(snapshot_id)}{SUFFIX}"


def encode_id_entry(stamp: str) -> bytes:
    """Return the bytes of an id entry."""
    return encode_envelope({"stamp": stamp})


def decode_id_entry(key: str, data: bytes) -> str:
    """Return the stamp in an id entry.

    Raises:
        IntegrityError: The entry is damaged.

    """
    stamp = decode_envelope(key, data, WHAT).get("stamp")
    if not isinstance(stamp, str) or not is_uuid7(stamp):
        raise damaged_record_error(key, WHAT, f"invalid stamp {stamp!r:.100}")
    return stamp
