"""Writes of tasks after a checkpoint: LangGraph's pending writes, and those of delta channels.

A delta channel has no value in most checkpoints: LangGraph rebuilds it from its last full value and
the writes of the checkpoints since then. Those are in the log, but the log of a fork or a pruned
thread starts with a state. So the state carries them too: the full value stays in its place, and
the writes are in a namespace of their own, until the next full value replaces both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import writes_sort_key

from holdfast.adapters.langgraph.layout import (
    deltas_space,
    get_checkpoint_entry,
    items_space,
    quote_name,
    values_space,
    writes_space,
)
from holdfast.state.snapshot import Snapshot

DELTA_COUNTERS = "counters_since_delta_snapshot"
SEEDS = "seeds"
"""The field of a checkpoint's entry that lists delta channels with a full value in the state."""

Entries = dict[tuple[str, str], Any]


@dataclass(slots=True)
class Write:
    """A value that a task wrote to a channel."""

    task_id: str
    task_path: str
    index: int
    channel: str
    value: Any

    @property
    def key(self) -> str:
        """The key of the write in the state."""
        return f"{self.task_id}|{self.index}"

    @property
    def fields(self) -> dict[str, Any]:
        """What a session stores of the write besides the value."""
        return {
            "task_id": self.task_id,
            "path": self.task_path,
            "index": self.index,
            "channel": self.channel,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the write, whose value is a stored one, as a session stores it."""
        return {**self.fields, "value": self.value}


def write_from_dict(data: Mapping[str, Any]) -> Write:
    """Return a stored write."""
    return Write(data["task_id"], data["path"], data["index"], data["channel"], data["value"])


def sort_writes(writes: Iterable[Write]) -> list[Write]:
    """Return writes in the order in which LangGraph applies them."""
    return sorted(
        writes, key=lambda each: writes_sort_key(each.task_path, each.task_id, each.index)
    )


# --------------------------------------------------------------------------- delta channels


@dataclass(frozen=True, slots=True)
class ParentState:
    """A state in which a parent checkpoint is current, and the writes after it."""

    state: Snapshot
    writes: Sequence[Write]


def current_parent(state: Snapshot, ns: str) -> ParentState:
    """Return the current checkpoint of a state as a parent."""
    return ParentState(
        state, sort_writes(write_from_dict(data) for data in state.values(writes_space(ns)))
    )


def open_channels(metadata: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """Return the delta channels that have no full value in a checkpoint."""
    counters = metadata.get(DELTA_COUNTERS)
    return sorted(set(counters) - values.keys()) if counters else []


def channels_with_value(entry: Mapping[str, Any]) -> set[str]:
    """Return the channels that have a value in a checkpoint."""
    return {*entry["values"], *entry["lists"]}


def carry_over(parent: ParentState, ns: str, channels: Sequence[str]) -> tuple[Entries, list[str]]:
    """Return the entries that a child checkpoint carries, and its channels with a full value."""
    entry = get_checkpoint_entry(parent.state, ns) or {"values": [], "lists": []}
    entries: Entries = {}
    seeds = []
    for name in channels:
        known: list[Any] = []
        if name in channels_with_value(entry) or name in entry.get(SEEDS, ()):
            entries.update(list_value_entries(parent.state, ns, name))
            seeds.append(name)
        if name not in channels_with_value(entry):
            known = list_carried_writes(parent.state, ns, name)
        known += [each.to_dict() for each in parent.writes if each.channel == name]
        space = deltas_space(ns)
        entries.update({(space, delta_key(name, at)): data for at, data in enumerate(known)})
    return entries, seeds


def list_carried_entries(state: Snapshot, ns: str) -> Entries:
    """Return the entries that a state carries for delta channels of its current checkpoint."""
    entry = get_checkpoint_entry(state, ns) or {}
    found = {(space, key): value for space, key, value in state.items(deltas_space(ns))}
    for name in entry.get(SEEDS, ()):
        found.update(list_value_entries(state, ns, name))
    return found


def list_value_entries(state: Snapshot, ns: str, name: str) -> Entries:
    """Return the entries of the last full value of a channel."""
    space = values_space(ns, name)
    if state.contains(space, name):
        return {(space, name): state.get(space, name)}
    return {(space, key): value for space, key, value in state.items(items_space(ns, name))}


def list_carried_writes(state: Snapshot, ns: str, name: str) -> list[Any]:
    """Return the carried writes to a channel, in order."""
    begin = delta_key(name, 0)[:-8]
    entries = state.items(deltas_space(ns))
    return [value for _, key, value in entries if key[:-8] == begin]


def delta_key(name: str, number: int) -> str:
    """Return the key of a carried write."""
    return f"{quote_name(name)}|{number:08}"
