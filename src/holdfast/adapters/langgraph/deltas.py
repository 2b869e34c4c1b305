"""What delta channels are made of, carried along in the state of the session.

A delta channel has no value in most checkpoints: it is what its ancestors wrote since the last one
that has. These are in the log; but a fork and a pruned log begin with a state. So the state has
them too: the last whole value stays where it was, and the writes since then are in a namespace of
their own, until the next whole value replaces all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langgraph.checkpoint.base import writes_sort_key

from holdfast.adapters.langgraph.checkpoint_entry import get_checkpoint_entry
from holdfast.adapters.langgraph.keys import (
    deltas_space,
    items_space,
    quote_name,
    values_space,
    writes_space,
)
from holdfast.adapters.langgraph.writes import Write, write_from_dict
from holdfast.state.snapshot import Snapshot

DELTA_COUNTERS = "counters_since_delta_snapshot"
SEEDS = "seeds"
"""In what is kept of a checkpoint: its delta channels whose last whole value is in the state."""

Entries = dict[tuple[str, str], Any]


@dataclass(frozen=True, slots=True)
class ParentState:
    """A checkpoint that others follow: a state in which it is the current one, and its writes."""

    state: Snapshot
    writes: Sequence[Write]


def current_parent_state(state: Snapshot, ns: str) -> ParentState:
    """The current checkpoint of a state."""
    return ParentState(
        state, sort_writes([write_from_dict(data) for data in state.values(writes_space(ns))])
    )


def sort_writes(writes: Sequence[Write]) -> list[Write]:
    """Writes in the order in which LangGraph applies them."""
    return sorted(
        writes, key=lambda each: writes_sort_key(each.task_path, each.task_id, each.index)
    )


def open_channels(metadata: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """The channels of a checkpoint that are made of what its ancestors wrote."""
    return sorted(set(metadata.get(DELTA_COUNTERS) or {}) - values.keys())


def channels_with_value(meta: Mapping[str, Any]) -> set[str]:
    """The channels that a checkpoint has values of."""
    return {*meta["values"], *meta["lists"]}


def carry_over(base: ParentState, ns: str, channels: Sequence[str]) -> tuple[Entries, list[str]]:
    """What the next checkpoint after another carries, and which of its channels have a value."""
    meta = get_checkpoint_entry(base.state, ns) or {"values": [], "lists": []}
    entries: Entries = {}
    seeds = []
    for name in channels:
        known: list[Any] = []
        if name in channels_with_value(meta) or name in meta.get(SEEDS, ()):
            entries.update(list_value_entries(base.state, ns, name))
            seeds.append(name)
        if name not in channels_with_value(meta):
            known = list_carried_writes(base.state, ns, name)
        known += [each.data() for each in base.writes if each.channel == name]
        space = deltas_space(ns)
        entries.update({(space, delta_key(name, at)): data for at, data in enumerate(known)})
    return entries, seeds


def list_carried_entries(state: Snapshot, ns: str) -> Entries:
    """All that a state carries along for delta channels of its current checkpoint."""
    meta = get_checkpoint_entry(state, ns) or {}
    found = {(space, key): value for space, key, value in state.items(deltas_space(ns))}
    for name in meta.get(SEEDS, ()):
        found.update(list_value_entries(state, ns, name))
    return found


def list_value_entries(state: Snapshot, ns: str, name: str) -> Entries:
    """The entries of the last whole value of a channel."""
    space = values_space(ns, name)
    if state.contains(space, name):
        return {(space, name): state.get(space, name)}
    return {(space, key): value for space, key, value in state.items(items_space(ns, name))}


def list_carried_writes(state: Snapshot, ns: str, name: str) -> list[Any]:
    """The writes to a channel that a state carries along, in order."""
    begin = delta_key(name, 0)[:-8]
    entries = state.items(deltas_space(ns))
    return [value for _, key, value in entries if key[:-8] == begin]


def delta_key(name: str, number: int) -> str:
    """The key of a write to a channel."""
    return f"{quote_name(name)}|{number:08}"
