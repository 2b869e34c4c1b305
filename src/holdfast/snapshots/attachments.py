"""Find the attachments in a state and in events, without reading their contents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, cast

from holdfast.log.event import Event
from holdfast.state.snapshot import Snapshot, encoded_changes
from holdfast.state.store import Store
from holdfast.values import to_json
from holdfast.values.extensions import ATTACHMENT, TAGS
from holdfast.values.json_encoding import stored_to_json
from holdfast.values.references import Attachment, build_reference, has_references

TAG = TAGS[ATTACHMENT]


def find_attachments(state: Snapshot, events: Iterable[Event] = ()) -> list[Attachment]:
    """Return the attachments in a state, and then those only in the data of events, each once."""
    found: dict[Attachment, None] = {}
    for _, _, data in encoded_changes(state, Store(max_history=0).snapshot()):
        if data is not None and has_references(data):
            found.update(dict.fromkeys(iterate_attachments(stored_to_json(data))))
    for event in events:
        if event.data is not None:
            found.update(dict.fromkeys(iterate_attachments(to_json(event.data))))
    return list(found)


def iterate_attachments(tree: Any) -> Iterator[Attachment]:
    """Yield the attachments in the JSON encoding of a value."""
    if isinstance(tree, list):
        for item in tree:
            yield from iterate_attachments(item)
    elif isinstance(tree, dict):
        if len(tree) == 1 and TAG in tree:
            yield cast("Attachment", build_reference(ATTACHMENT, tree[TAG]))
            return
        for item in tree.values():
            yield from iterate_attachments(item)
