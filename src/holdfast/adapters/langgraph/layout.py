"""Where a thread is stored in the state of its session.

messages                     the channel ``messages`` of the graph, one entry per message
state                        its other channels, by name
langgraph                    checkpoint/<ns>: id, parent, versions and metadata of a checkpoint
langgraph/values/<ns>        channels of a subgraph, and LangGraph's internal channels
langgraph/items/<ns>/<name>  another channel that is a list, one entry per item
langgraph/writes/<ns>        writes of tasks after the current checkpoint
langgraph/deltas/<ns>        writes to delta channels since their last full values
langgraph/late               numbers of events with writes to checkpoints that are not current
langgraph/deleted            deleted checkpoints that are still in the log
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from holdfast.errors import IntegrityError, short_repr
from holdfast.snapshots.session_state import MESSAGES, STATE
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

CHECKPOINT_EVENT = "langgraph.checkpoint"
WRITES_EVENT = "langgraph.writes"
DELETED_EVENT = "langgraph.deleted"

CHECKPOINTS = "langgraph"
LATE = "langgraph/late"
DELETED = "langgraph/deleted"
CHECKPOINT_PREFIX = "checkpoint/"
STATUSES = {"__interrupt__": "waiting", "__error__": "failed"}
"""The status of a thread by the channel that a task of the graph wrote last."""
REQUIRED_FIELDS: dict[str, type] = {"id": str, "values": list, "lists": list, "versions": dict}

# 100 ns intervals from the start of the Gregorian calendar to the Unix epoch.
GREGORIAN_OFFSET = 0x01B21DD213814000
PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")
UUID6 = re.compile(r"[0-9a-f]{12}6[0-9a-f]{3}[89ab][0-9a-f]{15}")


# ------------------------------------------------------------------------------- namespaces, keys


def checkpoint_key(ns: str) -> str:
    """Return the key of the current checkpoint of a graph or subgraph."""
    return f"{CHECKPOINT_PREFIX}{ns}"


@lru_cache(4096)
def values_space(ns: str, channel: str) -> str:
    """Return the namespace of a channel's value."""
    is_internal = channel.startswith(("__", "branch:"))
    return STATE if not ns and not is_internal else f"langgraph/values/{quote_name(ns)}"


@lru_cache(4096)
def items_space(ns: str, channel: str) -> str:
    """Return the namespace of the items of a list channel."""
    if not ns and channel == MESSAGES:
        return MESSAGES
    return f"langgraph/items/{quote_name(ns)}/{quote_name(channel)}"


@lru_cache(1024)
def writes_space(ns: str) -> str:
    """Return the namespace of writes after the current checkpoint."""
    return f"langgraph/writes/{quote_name(ns)}"


def deltas_space(ns: str) -> str:
    """Return the namespace of writes to delta channels since their last full values."""
    return f"langgraph/deltas/{quote_name(ns)}"


def quote_name(text: str) -> str:
    """Return a name quoted for use in a namespace."""
    return quote(text, safe=":|")


# ---------------------------------------------------------------------------------- the entry


def get_checkpoint_entry(state: Store | Snapshot, ns: str) -> Mapping[str, Any] | None:
    """Return the entry of the current checkpoint of a graph or subgraph, if there is one.

    It is validated, because the state of a session can be edited, imported or damaged.

    Raises:
        IntegrityError: The entry is damaged.

    """
    entry: object = state.get(CHECKPOINTS, checkpoint_key(ns), None)
    if entry is None:
        return None
    if isinstance(entry, dict) and all(
        isinstance(entry.get(name), kind) for name, kind in REQUIRED_FIELDS.items()
    ):
        return entry
    raise IntegrityError(
        f"entry {checkpoint_key(ns)!r} in namespace {CHECKPOINTS!r} is not a checkpoint: "
        f"{short_repr(entry)}; restore the session to an earlier snapshot, or from a backup"
    )


def get_entry_id(entry: object) -> str:
    """Return the id in a checkpoint's entry; raise TypeError if it is damaged."""
    found = entry.get("id") if isinstance(entry, dict) else None
    if not isinstance(found, str):
        raise TypeError(f"entry has no id: {short_repr(entry)}")
    return found


def list_current_ids(state: Snapshot) -> dict[str, str]:
    """Return the ids of the current checkpoints of a graph and its subgraphs, by namespace."""
    return {
        key.removeprefix(CHECKPOINT_PREFIX): get_entry_id(value)
        for _, key, value in state.items(CHECKPOINTS)
        if key.startswith(CHECKPOINT_PREFIX)
    }


# ---------------------------------------------------------------------------------- snapshots


def checkpoint_tags(metadata: Mapping[str, Any], ns: str) -> dict[str, str]:
    """Return the tags of the snapshot of a checkpoint."""
    tags = {name: str(metadata[name]) for name in ("source", "step") if name in metadata}
    return {**tags, "subgraph": ns} if ns else tags


@lru_cache(1024)
def snapshot_id_for(checkpoint_id: str) -> str:
    """Return the id of a checkpoint's snapshot: its UUIDv6 as a UUIDv7 of the same time."""
    text = checkpoint_id.lower().replace("-", "")
    if UUID6.fullmatch(text):
        ticks = int(text[:12], 16) << 12 | int(text[13:16], 16)
        milliseconds, rest = divmod(max(0, ticks - GREGORIAN_OFFSET), 10_000)
        # 12 bits for the fraction of a millisecond; the random bits are unchanged.
        head = f"{milliseconds & 0xFFFF_FFFF_FFFF:012x}"
        return f"{head[:8]}-{head[8:]}-7{rest * 4096 // 10_000:03x}-{text[16:20]}-{text[20:]}"
    if PLAIN_ID.fullmatch(checkpoint_id):
        return checkpoint_id
    return "hex-" + checkpoint_id.encode("utf-8", "surrogatepass").hex()[:120]
