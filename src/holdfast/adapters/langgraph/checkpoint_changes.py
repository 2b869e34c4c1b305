"""From the state of a session to the next checkpoint: what differs, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from holdfast.adapters.langgraph.checkpoint_entry import get_checkpoint_entry
from holdfast.adapters.langgraph.codec import Codec
from holdfast.adapters.langgraph.deltas import (
    SEEDS,
    ParentState,
    carry_over,
    current_parent_state,
    list_carried_entries,
    open_channels,
)
from holdfast.adapters.langgraph.item_copies import ItemCopies
from holdfast.adapters.langgraph.keys import (
    CHECKPOINTS,
    STATUSES,
    checkpoint_key,
    deltas_space,
    items_space,
    values_space,
    writes_space,
)
from holdfast.adapters.langgraph.run_status import status_after
from holdfast.adapters.langgraph.writes import Write
from holdfast.snapshots.session_state import SESSION, STATUS, message_key
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.values.binary_encoding import encode

MIN_LIST_ITEMS = 16
"""So many items make a list one that is kept item by item."""


class CheckpointChanges:
    """What a checkpoint changes in the state of its session."""

    def __init__(self, codec: Codec, ns: str, store: Store, kept: Mapping[str, ItemCopies]) -> None:
        self._codec = codec
        self._ns = ns
        self._store = store
        self._before = kept
        self.kept: dict[str, ItemCopies] = {}
        self._set: dict[tuple[str, str], Any] = {}
        self._delete: set[tuple[str, str]] = set()

    def put(self, space: str, key: str, value: Any) -> None:
        """Set an entry."""
        self._set[space, key] = value
        self._delete.discard((space, key))

    def write(self, write: Write) -> None:
        """Put what a task wrote beside the checkpoint, as it would be had it come after it."""
        space = writes_space(self._ns)
        if write.index < 0 or (space, write.key) not in self._set:
            self.put(space, write.key, write.data())
        if write.channel in STATUSES and not self._ns:
            self.put(SESSION, STATUS, STATUSES[write.channel])

    def delete(self, space: str, key: str) -> None:
        """Delete an entry that is there."""
        if self._store.contains(space, key):
            self._delete.add((space, key))

    def changes(self) -> Changes:
        """All of it."""
        return {
            "set": [(space, key, value) for (space, key), value in self._set.items()],
            "delete": sorted(self._delete),
        }

    def checkpoint(
        self,
        checkpoint: Checkpoint,
        parent: str | None,
        metadata: Mapping[str, Any],
        versions: ChannelVersions,
        base: ParentState | None = None,
    ) -> None:
        """Lead from the state to a checkpoint.

        ``base`` is its parent, where that is another one than the state has.
        """
        before = get_checkpoint_entry(self._store, self._ns)
        values = checkpoint["channel_values"]
        lists = [name for name, value in values.items() if is_stored_by_item(name, value)]
        known = before["versions"] if before else {}
        for name, value in values.items():
            if self._is_same(name, checkpoint, known, versions, before):
                continue
            if name in lists:
                self._items(name, value)
            else:
                self._value(name, value)
        self._drop(before, set(values), set(lists))
        deltas = self._carry(before, parent, base, open_channels(metadata, values), values)
        for key in self._store.keys(writes_space(self._ns)):
            self.delete(writes_space(self._ns), key)
        if not self._ns:
            status = status_after(checkpoint)
            if self._store.get(SESSION, STATUS) != status:
                self.put(SESSION, STATUS, status)
        kept = {name: value for name, value in checkpoint.items() if name not in STORED_SEPARATELY}
        self.put(
            CHECKPOINTS,
            checkpoint_key(self._ns),
            {
                "id": checkpoint["id"],
                "parent": parent,
                "values": sorted(values.keys() - set(lists)),
                "lists": sorted(lists),
                "versions": dict(checkpoint["channel_versions"]),
                "metadata": self._codec.encoded(dict(metadata), "the metadata"),
                "checkpoint": self._codec.encoded(kept, "the checkpoint"),
                **deltas,
            },
        )

    def _carry(
        self,
        before: Mapping[str, Any] | None,
        parent: str | None,
        base: ParentState | None,
        channels: Sequence[str],
        values: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Carry along what delta channels are made of; what is to be noted of it."""
        if not channels and (before is None or SEEDS not in before):
            return {}
        here = self._store.snapshot()
        if before is not None and before["id"] == parent:
            base = current_parent_state(here, self._ns)
        old = list_carried_entries(here, self._ns)
        new, seeds = ({}, []) if base is None else carry_over(base, self._ns, channels)
        for (space, key), value in new.items():
            self._delete.discard((space, key))
            self._put_new(space, key, value)
        stale = {name for name in (before or {}).get(SEEDS, ()) if name not in values}
        for space, key in old.keys() - new.keys():
            if space == deltas_space(self._ns) or key in stale:
                self.delete(space, key)
        return {SEEDS: seeds} if channels else {}

    def _is_same(
        self,
        name: str,
        checkpoint: Checkpoint,
        known: Mapping[str, Any],
        versions: ChannelVersions,
        before: Mapping[str, Any] | None,
    ) -> bool:
        """Whether a channel has the value that it has in the state, by its version alone."""
        version = checkpoint["channel_versions"].get(name)
        if before is None or name in versions or not isinstance(version, str):
            return False
        return known.get(name) == version and name in (*before["values"], *before["lists"])

    def _value(self, name: str, value: Any) -> None:
        space = values_space(self._ns, name)
        self._put_new(space, name, self._codec.encoded(value, f"the channel {name!r}"))

    def _put_new(self, space: str, key: str, data: Any) -> None:
        """Set an entry, if it is not so already."""
        # By their bytes, as 1 and True are equal.
        if self._store.get_encoded(space, key) != encode(data):
            self.put(space, key, data)

    def _items(self, name: str, items: list[Any]) -> None:
        space = items_space(self._ns, name)
        before = self._before.get(space) or ItemCopies()
        differing = before.differing(items)
        self.kept[space] = before.following(items, differing)
        for number in differing:
            data = self._codec.encoded(items[number], f"the channel {name!r}, item {number},")
            self._put_new(space, message_key(number), data)
        number = len(items)
        while self._store.contains(space, message_key(number)):
            self.delete(space, message_key(number))
            number += 1

    def _drop(self, before: Mapping[str, Any] | None, values: set[str], lists: set[str]) -> None:
        """Take away the channels that the checkpoint has no value of."""
        if before is None:
            return
        for name in before["values"]:
            if name not in values or name in lists:
                self.delete(values_space(self._ns, name), name)
        for name in before["lists"]:
            if name not in lists:
                space = items_space(self._ns, name)
                for key in self._store.keys(space):
                    self.delete(space, key)
                self.kept[space] = ItemCopies()


STORED_SEPARATELY = frozenset(("id", "channel_values", "channel_versions"))


def is_stored_by_item(name: str, value: Any) -> bool:
    """Whether a value is kept item by item: messages, and long lists."""
    if type(value) is not list:
        return False
    return name == "messages" or len(value) >= MIN_LIST_ITEMS


def list_checkpoint_entries(state: Snapshot, ns: str) -> list[tuple[str, str, Any]]:
    """All entries of the state that belong to the current checkpoint of a graph or subgraph."""
    meta = get_checkpoint_entry(state, ns)
    if meta is None:
        return []
    found = [(CHECKPOINTS, checkpoint_key(ns), meta)]
    for name in meta["values"]:
        space = values_space(ns, name)
        found.append((space, name, state.get(space, name)))
    for name in meta["lists"]:
        found += state.items(items_space(ns, name))
    found += state.items(writes_space(ns))
    found += [(*place, value) for place, value in list_carried_entries(state, ns).items()]
    return found
