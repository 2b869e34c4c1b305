"""Compute the changes that turn the state of a session into the next checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langgraph.checkpoint.base import ChannelVersions, Checkpoint

from holdfast.adapters.langgraph.checkpoint_entry import get_checkpoint_entry
from holdfast.adapters.langgraph.codec import Codec
from holdfast.adapters.langgraph.deltas import (
    SEEDS,
    Entries,
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
from holdfast.state.store import Store, get_encoded
from holdfast.values.binary_encoding import encode

MIN_LIST_ITEMS = 16
"""Lists of this length are stored with one entry per item."""


class CheckpointChanges:
    """Collects the changes of one checkpoint."""

    def __init__(
        self, codec: Codec, ns: str, store: Store, copies: Mapping[str, ItemCopies]
    ) -> None:
        self._codec = codec
        self._ns = ns
        self._store = store
        self._old_copies = copies
        self.copies: dict[str, ItemCopies] = {}
        self._set: dict[tuple[str, str], Any] = {}
        self._delete: set[tuple[str, str]] = set()

    def set_entry(self, space: str, key: str, value: Any) -> None:
        """Set an entry."""
        self._set[space, key] = value
        self._delete.discard((space, key))

    def add_write(self, write: Write) -> None:
        """Add a write of a task that was stored before its checkpoint."""
        space = writes_space(self._ns)
        if write.index < 0 or (space, write.key) not in self._set:
            self.set_entry(space, write.key, write.to_dict())
        if write.channel in STATUSES and not self._ns:
            self.set_entry(SESSION, STATUS, STATUSES[write.channel])

    def delete(self, space: str, key: str) -> None:
        """Delete an entry, if it exists."""
        if self._store.contains(space, key):
            self._delete.add((space, key))

    def changes(self) -> Changes:
        """Return the collected changes."""
        return {
            "set": [(space, key, value) for (space, key), value in self._set.items()],
            "delete": sorted(self._delete),
        }

    def put_checkpoint(
        self,
        checkpoint: Checkpoint,
        parent: str | None,
        metadata: Mapping[str, Any],
        versions: ChannelVersions,
        parent_state: ParentState | None = None,
    ) -> None:
        """Add the changes from the current checkpoint to this one.

        ``parent_state`` is the state of its parent, if that is not the current checkpoint.
        """
        before = get_checkpoint_entry(self._store, self._ns)
        values = checkpoint["channel_values"]
        lists = [name for name, value in values.items() if is_stored_by_item(name, value)]
        known = before["versions"] if before else {}
        for name, value in values.items():
            if self._is_same(name, checkpoint, known, versions, before):
                continue
            if name in lists:
                self._set_items(name, value)
            else:
                self._set_value(name, value)
        self._drop(before, set(values), set(lists))
        deltas = self._carry(before, parent, parent_state, open_channels(metadata, values), values)
        for key in self._store.keys(writes_space(self._ns)):
            self.delete(writes_space(self._ns), key)
        if not self._ns:
            status = status_after(checkpoint)
            if self._store.get(SESSION, STATUS) != status:
                self.set_entry(SESSION, STATUS, status)
        rest = {name: value for name, value in checkpoint.items() if name not in STORED_SEPARATELY}
        self.set_entry(
            CHECKPOINTS,
            checkpoint_key(self._ns),
            {
                "id": checkpoint["id"],
                "parent": parent,
                "values": sorted(values.keys() - set(lists)),
                "lists": sorted(lists),
                "versions": dict(checkpoint["channel_versions"]),
                "metadata": self._codec.encode(dict(metadata), "metadata"),
                "checkpoint": self._codec.encode(rest, "checkpoint"),
                **deltas,
            },
        )

    def _carry(
        self,
        before: Mapping[str, Any] | None,
        parent: str | None,
        parent_state: ParentState | None,
        channels: Sequence[str],
        values: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Carry over the writes of delta channels; return the field of the entry about them."""
        if not channels and (before is None or SEEDS not in before):
            return {}
        here = self._store.snapshot()
        if before is not None and before["id"] == parent:
            parent_state = current_parent_state(here, self._ns)
        old = list_carried_entries(here, self._ns)
        new: Entries = {}
        seeds: list[str] = []
        if parent_state is not None:
            new, seeds = carry_over(parent_state, self._ns, channels)
        for (space, key), value in new.items():
            self._delete.discard((space, key))
            self._set_if_changed(space, key, value)
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
        """Return whether the version of a channel shows that the state has its value already."""
        version = checkpoint["channel_versions"].get(name)
        if before is None or name in versions or not isinstance(version, str):
            return False
        return known.get(name) == version and name in (*before["values"], *before["lists"])

    def _set_value(self, name: str, value: Any) -> None:
        space = values_space(self._ns, name)
        self._set_if_changed(space, name, self._codec.encode(value, f"channel {name!r}"))

    def _set_if_changed(self, space: str, key: str, data: Any) -> None:
        # Compare the bytes, because 1 == True.
        if get_encoded(self._store, space, key) != encode(data):
            self.set_entry(space, key, data)

    def _set_items(self, name: str, items: list[Any]) -> None:
        space = items_space(self._ns, name)
        before = self._old_copies.get(space) or ItemCopies()
        changed = before.find_changed(items)
        self.copies[space] = before.update(items, changed)
        for number in changed:
            data = self._codec.encode(items[number], f"channel {name!r}, item {number},")
            self._set_if_changed(space, message_key(number), data)
        number = len(items)
        while self._store.contains(space, message_key(number)):
            self.delete(space, message_key(number))
            number += 1

    def _drop(self, before: Mapping[str, Any] | None, values: set[str], lists: set[str]) -> None:
        """Delete the channels that have no value in the checkpoint."""
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
                self.copies[space] = ItemCopies()


STORED_SEPARATELY = frozenset(("id", "channel_values", "channel_versions"))


def is_stored_by_item(name: str, value: Any) -> bool:
    """Return whether a value gets one entry per item: messages and long lists."""
    if type(value) is not list:
        return False
    return name == "messages" or len(value) >= MIN_LIST_ITEMS


def list_checkpoint_entries(state: Snapshot, ns: str) -> list[tuple[str, str, Any]]:
    """Return all entries of the current checkpoint of a graph or subgraph."""
    entry = get_checkpoint_entry(state, ns)
    if entry is None:
        return []
    found = [(CHECKPOINTS, checkpoint_key(ns), entry)]
    for name in entry["values"]:
        space = values_space(ns, name)
        found.append((space, name, state.get(space, name)))
    for name in entry["lists"]:
        found += state.items(items_space(ns, name))
    found += state.items(writes_space(ns))
    found += [(*names, value) for names, value in list_carried_entries(state, ns).items()]
    return found
