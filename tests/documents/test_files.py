"""Documents are read and written without a state store."""

from __future__ import annotations

import json

import pytest

import holdfast
from holdfast import InvalidDocumentError, SnapshotManager, StateStoreError, ValueMigrations
from holdfast.documents.signing import SignatureError, SigningKey, sign_document
from support.async_tests import async_test
from support.sample_documents import edit_json, make_full_document, update_digest

FULL = make_full_document()


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.json.zst"])
def test_a_written_document_is_read_back(tmp_path, name):
    assert holdfast.write_document(FULL, tmp_path / name) is None
    assert holdfast.read_document(tmp_path / name).to_dict() == FULL.to_dict()
    assert holdfast.read_document(str(tmp_path / name)).to_dict() == FULL.to_dict()


def test_an_edited_document_is_read_with_allow_modified(tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(edit_json(FULL.to_dict(), "tags", to={})))
    with pytest.raises(InvalidDocumentError, match="digest"):
        holdfast.read_document(path)
    assert holdfast.read_document(path, allow_modified=True).tags == {}


def test_a_signature_by_a_trusted_key_can_be_required(tmp_path):
    key = SigningKey.generate()
    holdfast.write_document(sign_document(FULL, key), tmp_path / "a.json")
    found = holdfast.read_document(tmp_path / "a.json", trusted=[key.public])
    assert found.signed_by == (key.key_id,)
    with pytest.raises(SignatureError):
        holdfast.read_document(tmp_path / "a.json", trusted=[SigningKey.generate().public])


def test_only_a_document_is_written(tmp_path):
    with pytest.raises(TypeError, match="write_document takes a Document, got"):
        holdfast.write_document(FULL.to_dict(), tmp_path / "a.json")
    assert list(tmp_path.iterdir()) == []


def test_a_manager_without_a_state_store_reads_and_writes_documents(tmp_path):
    manager = SnapshotManager()
    manager.to_file(FULL, tmp_path / "a.json.gz")
    assert manager.from_file(tmp_path / "a.json.gz").to_dict() == FULL.to_dict()
    assert manager.from_dict(manager.to_dict(FULL)).to_dict() == FULL.to_dict()


@async_test
async def test_a_manager_without_a_state_store_raises_a_clear_error():
    manager = SnapshotManager()
    needs = r"no state store.*SnapshotManager\(state_store=\.\.\.\)"
    with pytest.raises(StateStoreError, match=needs):
        await manager.export_session("a")
    with pytest.raises(StateStoreError, match=needs):
        await manager.import_session(FULL)
    with pytest.raises(StateStoreError, match=needs):
        await manager.locate("a", "s")
    for name in ("state_store", "archive", "catalog"):
        with pytest.raises(StateStoreError, match=needs):
            getattr(manager, name)


def test_migrated_values_are_recorded_as_an_event(tmp_path):
    migrations = ValueMigrations(2, {1: lambda values: {**values, "plan": "new"}})
    path = tmp_path / "a.json"
    path.write_text(json.dumps(update_digest(FULL.to_dict())))
    found = holdfast.read_document(path, migrations=migrations)
    *events, last = found.events
    assert tuple(events) == FULL.events
    assert (last.type, last.data) == ("state.migrated", {"from": 1, "to": 2})
    assert last.changes["set"] == [("state", "plan", "new")]
    assert found.event_log_count == len(found.events)
    assert holdfast.read_document(path, migrations=migrations).to_dict() == found.to_dict()
    holdfast.write_document(found, tmp_path / "b.json")
    assert holdfast.read_document(tmp_path / "b.json").to_dict() == found.to_dict()
