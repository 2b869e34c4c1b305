"""The namespaces and keys of a thread in the state of its session.

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
from typing import Any
from urllib.parse import quote
from uuid import UUID

from holdfast.snapshots.session_state import MESSAGES, STATE

CHECKPOINTS = "langgraph"
LATE = "langgraph/late"
DELETED = "langgraph/deleted"
CHECKPOINT_PREFIX = "checkpoint/"
# The status of a thread by the channel that a task of the graph wrote last.
STATUSES = {"__interrupt__": "waiting", "__error__": "failed"}
WRITES_PREFIX = "langgraph/writes/"
# 100 ns intervals from the start of the Gregorian calendar to the Unix epoch.
GREGORIAN_OFFSET = 0x01B21DD213814000
PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


def checkpoint_key(ns: str) -> str:
    """Return the key of the current checkpoint of a graph or subgraph."""
    return f"{CHECKPOINT_PREFIX}{ns}"


def values_space(ns: str, channel: str) -> str:
    """Return the namespace of a channel's value."""
    is_internal = channel.startswith(("__", "branch:"))
    return STATE if not ns and not is_internal else f"langgraph/values/{quote_name(ns)}"


def items_space(ns: str, channel: str) -> str:
    """Return the namespace of the items of a list channel."""
    if not ns and channel == MESSAGES:
        return MESSAGES
    return f"langgraph/items/{quote_name(ns)}/{quote_name(channel)}"


def writes_space(ns: str) -> str:
    """Return the namespace of writes after the current checkpoint."""
    return f"{WRITES_PREFIX}{quote_name(ns)}"


def deltas_space(ns: str) -> str:
    """Return the namespace of writes to delta channels since their last full values."""
    return f"langgraph/deltas/{quote_name(ns)}"


def quote_name(text: str) -> str:
    """Return a name quoted for use in a namespace."""
    return quote(text, safe=":|")


def checkpoint_tags(metadata: Mapping[str, Any], ns: str) -> dict[str, str]:
    """Return the tags of the snapshot of a checkpoint."""
    tags = {name: str(metadata[name]) for name in ("source", "step") if name in metadata}
    return {**tags, "subgraph": ns} if ns else tags


def snapshot_id_for(checkpoint_id: str) -> str:
    """Return the id of a checkpoint's snapshot: its UUIDv6 as a UUIDv7 of the same time."""
    if not PLAIN_ID.fullmatch(checkpoint_id):
        return "hex-" + checkpoint_id.encode("utf-8", "surrogatepass").hex()[:120]
    try:
        found = UUID(checkpoint_id)
    except ValueError:
        return checkpoint_id
    if found.version != 6:
        return checkpoint_id
    ticks = (found.int >> 80 << 12) | (found.int >> 64 & 0xFFF)
    milliseconds, rest = divmod(max(0, ticks - GREGORIAN_OFFSET), 10_000)
    # 12 bits for the fraction of a millisecond; the random bits are unchanged.
    head = milliseconds << 16 | 0x7000 | rest * 4096 // 10_000
    return str(UUID(int=(head & 0xFFFF_FFFF_FFFF_FFFF) << 64 | found.int & 0xFFFF_FFFF_FFFF_FFFF))
