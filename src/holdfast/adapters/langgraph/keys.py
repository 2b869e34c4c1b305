"""Where a thread's checkpoints are in the state of its session, and how they are called.

messages                     the channel of that name in the graph itself, an entry a message
state                        its other channels, by name
langgraph                    checkpoint/<ns>: what LangGraph keeps beside the values
langgraph/values/<ns>        channels of a subgraph, and those that LangGraph made for itself
langgraph/items/<ns>/<name>  another channel that is a list, an entry an item
langgraph/writes/<ns>        what tasks wrote after the current checkpoint
langgraph/deltas/<ns>        what was written to delta channels since their last whole values
langgraph/late               numbers of events with writes to a checkpoint that is not current
langgraph/deleted            checkpoints that were deleted and are still in the log
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
# What a thread is doing, by what a task of the graph itself wrote last.
STATUSES = {"__interrupt__": "waiting", "__error__": "failed"}
WRITES_PREFIX = "langgraph/writes/"
# 100 ns from the beginning of the Gregorian calendar to that of Unix time.
GREGORIAN_OFFSET = 0x01B21DD213814000
PLAIN_ID = re.compile(r"[A-Za-z0-9_-]{1,100}")


def checkpoint_key(ns: str) -> str:
    """The key of the current checkpoint of a graph or subgraph."""
    return f"{CHECKPOINT_PREFIX}{ns}"


def values_space(ns: str, channel: str) -> str:
    """The namespace of a channel's value."""
    is_internal = channel.startswith(("__", "branch:"))
    return STATE if not ns and not is_internal else f"langgraph/values/{quote_name(ns)}"


def items_space(ns: str, channel: str) -> str:
    """The namespace of the items of a channel that is a list."""
    if not ns and channel == MESSAGES:
        return MESSAGES
    return f"langgraph/items/{quote_name(ns)}/{quote_name(channel)}"


def writes_space(ns: str) -> str:
    """The namespace of what tasks wrote after the current checkpoint."""
    return f"{WRITES_PREFIX}{quote_name(ns)}"


def deltas_space(ns: str) -> str:
    """The namespace of what was written to delta channels since their last whole values."""
    return f"langgraph/deltas/{quote_name(ns)}"


def quote_name(text: str) -> str:
    """A name as a part of a namespace."""
    return quote(text, safe=":|")


def checkpoint_tags(metadata: Mapping[str, Any], ns: str) -> dict[str, str]:
    """Return the tags of the snapshot of a checkpoint."""
    tags = {name: str(metadata[name]) for name in ("source", "step") if name in metadata}
    return {**tags, "subgraph": ns} if ns else tags


def snapshot_id_for(checkpoint_id: str) -> str:
    """The id of the snapshot of a checkpoint: the same moment as the UUID that snapshots have."""
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
    # The parts of a millisecond are 12 bits, and all that makes it unique stays as it is.
    head = milliseconds << 16 | 0x7000 | rest * 4096 // 10_000
    return str(UUID(int=(head & 0xFFFF_FFFF_FFFF_FFFF) << 64 | found.int & 0xFFFF_FFFF_FFFF_FFFF))
