"""A checkpoint as entries of the session's state: what the next one changes, and how it is read."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    get_checkpoint_metadata,
)

from holdfast.adapters.langgraph.codec import (
    ROLES,
    Codec,
    MessageOutline,
    build_message,
    outline_message,
)
from holdfast.adapters.langgraph.layout import (
    CHECKPOINTS,
    STATUSES,
    checkpoint_key,
    deltas_space,
    get_checkpoint_entry,
    items_space,
    values_space,
    writes_space,
)
from holdfast.adapters.langgraph.writes import (
    SEEDS,
    Entries,
    ParentState,
    Write,
    carry_over,
    current_parent,
    list_carried_entries,
    open_channels,
)
from holdfast.sessions.run_status import (
    COMPLETED,
    LANGGRAPH_JOIN,
    LANGGRAPH_STARTS,
    RUNNING,
    langgraph_has_next_node,
)
from holdfast.snapshots.session_state import SESSION, STATUS, message_key, message_number
from holdfast.state.diff import Changes
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store, get_encoded
from holdfast.values.exact_copy import UNCOPYABLE, copy_plain, find_unequal
from holdfast.values.json_encoding import EncodedValue, encode_value

MIN_LIST_ITEMS = 16
"""Lists of this length are stored with one entry per item."""
STORED_SEPARATELY = frozenset(("id", "channel_values", "channel_versions"))
NODE_CHANNELS = (*LANGGRAPH_STARTS, LANGGRAPH_JOIN)


class CheckpointChanges:
    """Collects the changes that turn the state of a session into the next checkpoint.

    ``copies`` are those of the lists in the current checkpoint; `new_copies` replace them when the
    changes are committed.
    """

    def __init__(
        self, codec: Codec, ns: str, store: Store, copies: Mapping[str, ItemCopies]
    ) -> None:
        self._codec = codec
        self._ns = ns
        self._store = store
        self._copies = copies
        self.new_copies: dict[str, ItemCopies] = {}
        self._set: dict[tuple[str, str], Any] = {}
        self._delete: set[tuple[str, str]] = set()

    def changes(self) -> Changes:
        """Return the collected changes. Their values are not shared with the caller's objects."""
        return {
            "set": [(space, key, value) for (space, key), value in self._set.items()],
            "delete": sorted(self._delete),
        }

    def put_checkpoint(
        self,
        checkpoint: Checkpoint,
        before: Mapping[str, Any] | None,
        parent: str | None,
        metadata: Mapping[str, Any],
        versions: ChannelVersions,
        parent_state: ParentState | None = None,
    ) -> Mapping[str, Any]:
        """Add the changes from the current checkpoint to this one.

        Return its entry without metadata. ``before`` is the entry of the current one.
        ``parent_state`` is the state of the parent, if that is not the current one.
        """
        ns, store = self._ns, self._store
        values = checkpoint["channel_values"]
        all_versions = checkpoint["channel_versions"]
        lists = [name for name, value in values.items() if is_stored_by_item(name, value)]
        known = {} if before is None else before["versions"]
        stored = set() if before is None else {*before["values"], *before["lists"]}
        for name, value in values.items():
            if name in stored and name not in versions:
                version = all_versions.get(name)
                if isinstance(version, str) and known.get(name) == version:
                    continue  # the state has its value already
            if name in lists:
                self._set_items(name, value)
            else:
                space = values_space(ns, name)
                self._set_encoded(space, name, self._codec.encode(value, f"channel {name!r}"))
        if before is not None:
            self._drop(before, values.keys(), lists)
        deltas = self._carry(before, parent, parent_state, open_channels(metadata, values), values)
        for key in store.keys(writes_space(ns)):
            self._delete.add((writes_space(ns), key))
        if not ns:
            status = status_after(checkpoint)
            if store.get(SESSION, STATUS) != status:
                self._set[SESSION, STATUS] = status
        rest = {name: value for name, value in checkpoint.items() if name not in STORED_SEPARATELY}
        entry = {
            "id": checkpoint["id"],
            "parent": parent,
            "values": sorted(values.keys() - lists),
            "lists": sorted(lists),
            "versions": dict(all_versions),
            **deltas,
        }
        self._set[CHECKPOINTS, checkpoint_key(ns)] = self._codec.encode_dict(
            entry, {"metadata": metadata, "checkpoint": rest}, "metadata"
        )
        return entry

    def add_write(self, write: Write) -> None:
        """Add a write of a task that was stored before its checkpoint."""
        at = writes_space(self._ns), write.key
        if write.index < 0 or at not in self._set:
            self._set[at] = write.to_dict()
            self._delete.discard(at)
        if write.channel in STATUSES and not self._ns:
            self._set[SESSION, STATUS] = STATUSES[write.channel]

    def delete(self, space: str, key: str) -> None:
        """Delete an entry, if it exists."""
        if self._store.contains(space, key):
            self._delete.add((space, key))

    def _set_encoded(self, space: str, key: str, value: EncodedValue) -> None:
        # The bytes tell 1 from True.
        if get_encoded(self._store, space, key) != value.data:
            self._set[space, key] = value

    def _set_items(self, name: str, items: list[Any]) -> None:
        space = items_space(self._ns, name)
        before = self._copies.get(space) or ItemCopies()
        changed = before.find_changed(items)
        # Copied before they are encoded, so that a change in between is found later.
        self.new_copies[space] = before.update(items, changed)
        for number in changed:
            item = self._codec.encode(items[number], f"channel {name!r}, item {number},")
            self._set_encoded(space, message_key(number), item)
        number = len(items)
        while self._store.contains(space, message_key(number)):
            self._delete.add((space, message_key(number)))
            number += 1

    def _drop(self, before: Mapping[str, Any], values: Collection[str], lists: list[str]) -> None:
        """Delete the channels that have no value in the checkpoint."""
        for name in before["values"]:
            if name not in values or name in lists:
                self.delete(values_space(self._ns, name), name)
        for name in before["lists"]:
            if name not in lists:
                space = items_space(self._ns, name)
                self._delete.update((space, key) for key in self._store.keys(space))
                self.new_copies[space] = ItemCopies()

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
            parent_state = current_parent(here, self._ns)
        old = list_carried_entries(here, self._ns)
        new: Entries = {}
        seeds: list[str] = []
        if parent_state is not None:
            new, seeds = carry_over(parent_state, self._ns, channels)
        for (space, key), value in new.items():
            self._delete.discard((space, key))
            self._set_encoded(space, key, encode_value(value))
        stale = {name for name in (before or {}).get(SEEDS, ()) if name not in values}
        for space, key in old.keys() - new.keys():
            if space == deltas_space(self._ns) or key in stale:
                self.delete(space, key)
        return {SEEDS: seeds} if channels else {}


def is_stored_by_item(name: str, value: Any) -> bool:
    """Return whether a value gets one entry per item: messages and long lists."""
    return type(value) is list and (name == "messages" or len(value) >= MIN_LIST_ITEMS)


def status_after(checkpoint: Checkpoint) -> str:
    """Return the status of a thread after a checkpoint, before writes of its tasks.

    LangGraph does not report the end of a run. The channels of a ``Pregel`` that was built by hand
    do not show whether it has ended: its status is running.
    """
    if any(name.startswith(NODE_CHANNELS) for name in checkpoint["channel_versions"]):
        return RUNNING if langgraph_has_next_node(checkpoint["channel_values"]) else COMPLETED
    return RUNNING


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


# --------------------------------------------------------------------------------- list items


class ItemCopies:
    """Copies of the items of a list as they were stored.

    They show cheaply which items have changed: a node may change a message in place, and LangGraph
    may put the next checkpoint before the writes of the node, so an item can have changed even if
    it is the same object and was not written. And reads build the items from them.
    """

    __slots__ = ("_copies", "_outlines")

    def __init__(
        self,
        copies: list[object] | None = None,
        outlines: list[MessageOutline | None] | None = None,
    ) -> None:
        self._copies = copies or []
        self._outlines = outlines or []
        """The outlines of those items that are messages."""

    def find_changed(self, items: Sequence[Any]) -> list[int]:
        """Return the indices of items that have changed or are new."""
        known = len(self._copies)
        contents = [
            (each.__dict__, each.__pydantic_extra__) if type(each) in ROLES else each
            for each in items[:known]
        ]
        return [*find_unequal(self._copies, contents), *range(known, len(items))]

    def update(self, items: Sequence[Any], changed: Collection[int]) -> ItemCopies:
        """Return the copies of the items as they are now; only the changed ones are copied."""
        copies, outlines = self._copies[: len(items)], self._outlines[: len(items)]
        added = len(items) - len(copies)
        copies += [UNCOPYABLE] * added
        outlines += [None] * added
        for number in changed:
            copies[number], outlines[number] = copy_item(items[number])
        return ItemCopies(copies, outlines)

    def without(self, numbers: Collection[int]) -> ItemCopies:
        """Return the copies without those of some items, which then count as changed."""
        copies = [UNCOPYABLE if at in numbers else each for at, each in enumerate(self._copies)]
        return ItemCopies(copies, self._outlines)

    def build(self, count: int) -> list[Any] | None:
        """Return new items, or None unless there are copies of all of them."""
        if count != len(self._copies):
            return None
        try:
            contents = cast("list[Any]", copy_plain(self._copies))
        except (TypeError, RuntimeError):
            return None
        return [
            each if outline is None else build_message(outline, each[0])
            for each, outline in zip(contents, self._outlines, strict=True)
        ]


def copy_item(item: Any) -> tuple[object, MessageOutline | None]:
    """Return a copy of an item's content, or a value that is unlike everything."""
    try:
        if type(item) in ROLES:
            outline = outline_message(item)
            if outline is not None:
                return copy_plain((item.__dict__, item.__pydantic_extra__)), outline
        return copy_plain(item), None
    except (TypeError, RuntimeError):  # an unsupported type, too deep, or changed by a thread
        return UNCOPYABLE, None


def invalidate_copies(copies: dict[str, ItemCopies], changes: Iterable[Changes]) -> None:
    """Drop the copies of items that another writer changed."""
    touched: dict[str, set[int]] = {}
    for each in changes:
        for space, key, *_ in (*each["set"], *each["delete"]):
            number = message_number(key) if space in copies else None
            if number is not None:
                touched.setdefault(space, set()).add(number)
    for space, numbers in touched.items():
        copies[space] = copies[space].without(numbers)


# ----------------------------------------------------------------------------------- metadata

# LangGraph's database savers store metadata as JSON: a tuple comes back as a list and a dict key
# as a str, and a filter with a list matches a tuple. Values that JSON cannot represent stay.


def metadata_to_store(config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
    """Return the metadata of a checkpoint, merged with that of its config, to store."""
    return {
        name: to_json_value(value)
        for name, value in get_checkpoint_metadata(config, metadata).items()
    }


def to_json_value(value: Any) -> Any:
    """Return a value as it would come back from JSON."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or kind is float or value is None:
        return value
    if isinstance(value, dict):
        return {to_json_key(key): to_json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(each) for each in value]
    # Enums and other subclasses become what json.dumps writes.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return value


def to_json_key(key: Any) -> Any:
    """Return a dict key as it would come back from JSON."""
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, int):
        return int.__repr__(key)
    if isinstance(key, float):
        return json.dumps(float(key))  # also infinity and NaN
    return key


def matches_filter(metadata: Mapping[str, Any], filter_: Mapping[str, Any] | None) -> bool:
    """Return whether metadata has all values of a filter.

    A name with dots is also a path, as in LangGraph's SqliteSaver: ``user.tier`` is the key
    ``tier`` of the dict ``user``, unless the metadata has the whole name as a key.
    """
    return all(
        find_value(metadata, name) == to_json_value(value)
        for name, value in (filter_ or {}).items()
    )


def find_value(metadata: Mapping[str, Any], name: str) -> Any:
    """Return the value at a name or path, or None."""
    if name in metadata:
        return metadata[name]
    found: Any = metadata
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    return found
