"""The order in which snapshots were saved, kept in the keys of the history.

    immutable_history/snapshot_<snapshot_id>.json           an id that tells when it was saved
    immutable_history/snapshot_<stamp>_<snapshot_id>.json   any other id
    ids/<snapshot_id>.json                                  {"stamp": …}: finds those by their ids

An id tells when its snapshot was saved if it is a UUIDv7 that comes after all that were saved
before and is not ahead of the clock: `Session.save` gives such ids, so its records need no second
entry. Any other id stands behind a *stamp*, a UUIDv7 that was made when it was saved. Either way
the keys of the history are in the order of saving, whatever the ids.
"""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass

from holdfast.ids import new_id
from holdfast.snapshots.envelope import damaged_record_error, decode_envelope, encode_envelope
from holdfast.snapshots.keys import SnapshotLocation, is_snapshot_id, validate_snapshot_id

UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
UUID_LENGTH = 36
NAME = re.compile(r"[A-Za-z0-9_-]{1,165}")
SUFFIX = ".json"
WHAT = "id entry"
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@dataclass(frozen=True, slots=True)
class HistoryKey:
    """The key of a snapshot in the history, taken apart."""

    location: SnapshotLocation
    snapshot_id: str
    stamp: str | None = None
    """The UUIDv7 that stands before the id in the key, where the id itself tells no order."""

    @property
    def order(self) -> str:
        """Return what snapshots are ordered by, the first saved first."""
        return self.stamp or self.snapshot_id

    @property
    def name(self) -> str:
        """Return the part of the key that differs from snapshot to snapshot."""
        return f"{self.stamp}_{self.snapshot_id}" if self.stamp else self.snapshot_id

    @property
    def key(self) -> str:
        """Return the whole key."""
        return f"{self.location.history_prefix}{self.name}{SUFFIX}"


def parse_history_key(location: SnapshotLocation, key: str) -> HistoryKey | None:
    """Take a key below the history apart; None for a key that Holdfast did not write."""
    if not key.endswith(SUFFIX):
        return None
    name = key[len(location.history_prefix) : -len(SUFFIX)]
    stamp, rest = name[:UUID_LENGTH], name[UUID_LENGTH:]
    if is_uuid7(stamp) and rest[:1] == "_" and is_snapshot_id(rest[1:]):
        return HistoryKey(location, rest[1:], stamp)
    return HistoryKey(location, name) if is_snapshot_id(name) else None


def parse_page_token(location: SnapshotLocation, token: object) -> str:
    """Return the key that a page's token stands for.

    Raises:
        ValueError: The token was not given by a page.

    """
    if not isinstance(token, str) or NAME.fullmatch(token) is None:
        raise ValueError(
            f"invalid next_token {token!r:.200}; pass the next_token of the previous page"
        )
    return f"{location.history_prefix}{token}{SUFFIX}"


def is_uuid7(text: str) -> bool:
    """Tell whether a text is a UUIDv7, in the form that `new_id` gives."""
    return UUID7.fullmatch(text) is not None


def choose_stamp(snapshot_id: str, after: str | None) -> str | None:
    """Return the stamp that a snapshot needs if it is saved now; None if its id tells its order.

    ``after`` is the order of what was saved last.
    """
    fresh = new_id(after=after)
    if is_uuid7(snapshot_id) and (after or "") < snapshot_id < fresh:
        return None
    return fresh


def order_of_time(moment: dt.datetime) -> str:
    """Return the order of a snapshot of which only the time is known."""
    microseconds = max(0, (moment - EPOCH) // dt.timedelta(microseconds=1))
    millisecond, rest = divmod(microseconds, 1000)
    text = f"{millisecond:012x}"
    return f"{text[:8]}-{text[8:]}-7{rest * 4096 // 1000:03x}-"


# ----------------------------------------------------------------------------------- id entries


def id_entries_prefix(location: SnapshotLocation) -> str:
    """Return what the keys of all id entries begin with."""
    return f"{location.prefix}snapshots/ids/"


def id_entry_key(location: SnapshotLocation, snapshot_id: str) -> str:
    """Return the key of the entry that finds a stamped snapshot by its id."""
    return f"{id_entries_prefix(location)}{validate_snapshot_id(snapshot_id)}{SUFFIX}"


def encode_id_entry(stamp: str) -> bytes:
    """Return the bytes of the entry that finds a stamped snapshot by its id."""
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
