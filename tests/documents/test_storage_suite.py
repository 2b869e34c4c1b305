"""Run the snapshot storage suite on another implementation: a dict of JSON documents.

This shows that the suite does not depend on SnapshotArchive.
"""

from __future__ import annotations

import dataclasses
import json

import pytest

from holdfast import ConflictError, Document, SnapshotManifest, SnapshotPage
from holdfast.testing import SnapshotStorageSuite


class DocumentStorage:
    """Stores each snapshot as a document."""

    def __init__(self, places):
        self.places = places

    def place(self, location):
        return self.places.setdefault(
            location, {"history": {}, "numbers": {}, "latest": None, "manifest": None}
        )

    async def save_snapshot(self, *, location, snapshot_id, is_latest, snapshot):
        snapshot = dataclasses.replace(snapshot, snapshot_id=snapshot_id, scope=location.scope)
        text = Document.from_snapshot(snapshot).to_json()
        if is_latest:
            self.place(location)["latest"] = text
            return
        if snapshot_id not in self.place(location)["history"]:
            # Numbers of deleted snapshots are kept, so that pages can continue after them.
            numbers = self.place(location)["numbers"]
            numbers[snapshot_id] = max(numbers.values(), default=0) + 1
        there = self.place(location)["history"].setdefault(snapshot_id, text)
        if not is_same_snapshot(there, text):
            raise ConflictError(f"there is another {snapshot_id}")

    async def load_snapshot(self, *, location, snapshot_id=None):
        place = self.place(location)
        if snapshot_id is not None:
            text = place["history"].get(snapshot_id)
        else:
            newest = next(reversed(place["history"]), None)
            text = place["latest"] or (newest and place["history"][newest])
        return None if text is None else Document.from_json(text).to_snapshot()

    async def list_snapshot_ids(self, *, location, limit=None, start_after=None):
        numbers = self.place(location)["numbers"]
        ids = sorted(self.place(location)["history"], key=numbers.__getitem__)
        first = -1
        if start_after is not None:
            before = [number for each, number in numbers.items() if each < start_after]
            first = numbers.get(start_after, max(before, default=-1))
        return [each for each in ids if numbers[each] > first][:limit]

    async def list_snapshots(self, *, location, limit=None, next_token=None):
        ids = await self.list_snapshot_ids(location=location, start_after=next_token)
        page = ids if limit is None else ids[:limit]
        found = [await self.load_snapshot(location=location, snapshot_id=each) for each in page]
        token = page[-1] if len(page) < len(ids) else None
        return SnapshotPage([snapshot.info() for snapshot in found], token)

    async def load_manifest(self, *, location):
        return self.place(location)["manifest"] or SnapshotManifest()

    async def save_manifest(self, *, location, manifest):
        self.place(location)["manifest"] = manifest

    async def delete_snapshot(self, *, location, snapshot_id):
        return self.place(location)["history"].pop(snapshot_id, None) is not None

    async def delete_session(self, *, session_id):
        for location in [each for each in self.places if each.session_id == session_id]:
            del self.places[location]


def is_same_snapshot(one, other):
    """Return whether two documents have the same snapshot."""
    names = ("digest", "tags", "parent_id")
    return [json.loads(one)[name] for name in names] == [json.loads(other)[name] for name in names]


class TestDocumentStorage(SnapshotStorageSuite):
    @pytest.fixture
    def new_storage(self):
        places = {}
        return lambda: DocumentStorage(places)
