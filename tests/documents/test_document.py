"""A document and a loaded snapshot convert to each other, and are not mistaken for each other."""

from __future__ import annotations

import pytest

import holdfast
from holdfast import Document, Redactor, SessionSnapshot, SnapshotArchive, SnapshotManager
from holdfast.documents.signing import SigningKey, sign_document
from holdfast.log.event_log import Position
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.observed_store import HERE, make_snapshot, make_state
from support.sample_documents import make_document, make_full_document

SHARED_FIELDS = (
    "snapshot",
    "agent_id",
    "session_id",
    "scope",
    "snapshot_id",
    "parent_id",
    "created_at",
    "tags",
    "event_log_count",
    "position",
    "source_environment",
    "digest",
    "location",
)


def read_shared_fields(value):
    return {name: getattr(value, name) for name in SHARED_FIELDS}


def test_a_document_of_a_snapshot_has_its_metadata_and_state():
    snapshot = make_snapshot(
        make_state(2, plan=1),
        parent_id="before",
        tags={"env": "test"},
        event_log_count=7,
        position=Position(7, "hash"),
        source_environment="laptop",
    )
    document = Document.from_snapshot(snapshot)
    assert read_shared_fields(document) == read_shared_fields(snapshot)
    assert (document.events, document.base, document.extra) == ((), None, {})
    assert document.to_snapshot() == snapshot


def test_a_snapshot_of_a_document_has_its_metadata_and_state():
    document = make_full_document()
    snapshot = document.to_snapshot()
    assert isinstance(snapshot, SessionSnapshot)
    assert read_shared_fields(snapshot) == read_shared_fields(document)
    assert snapshot.state.messages == document.state.messages


@async_test
async def test_the_snapshot_of_a_document_can_be_saved():
    archive = SnapshotArchive(MemoryStateStore())
    document = make_document(make_state(3))
    await archive.save_snapshot(
        location=HERE,
        snapshot_id=document.snapshot_id,
        is_latest=False,
        snapshot=document.to_snapshot(),
    )
    loaded = await archive.load_snapshot(location=HERE, snapshot_id=document.snapshot_id)
    assert loaded.digest == document.digest


def test_the_store_of_a_document_is_a_copy_of_its_state():
    document = make_document(make_state(1, plan=[1]))
    store = document.to_store()
    store.set("state", "plan", [2])
    assert document.state.values == {"plan": [1]}


def test_json_text_is_read_as_the_same_document():
    document = make_full_document()
    assert Document.from_json(document.to_json()).to_dict() == document.to_dict()
    assert Document.from_json(document.to_json().encode()).to_dict() == document.to_dict()
    with pytest.raises(holdfast.InvalidDocumentError, match="the JSON text is not JSON"):
        Document.from_json("{")


def test_signatures_are_listed_and_can_be_removed():
    key = SigningKey.generate()
    document = make_full_document()
    signed = sign_document(document, key)
    assert document.signatures == []
    assert [each.key_id for each in signed.signatures] == [key.key_id]
    assert signed.without_signatures() == document


SNAPSHOT = make_snapshot(make_state(1))
TAKES_A_DOCUMENT = {
    "replay": holdfast.replay,
    "sign_document": lambda value: sign_document(value, SigningKey.generate()),
    "write_document": lambda value: holdfast.write_document(value, "never-written.json"),
    "Redactor.redact": Redactor(patterns=False).redact,
    "to_dict": SnapshotManager().to_dict,
}


@pytest.mark.parametrize("name", TAKES_A_DOCUMENT)
def test_a_snapshot_in_place_of_a_document_is_a_type_error_that_says_how_to_convert(name):
    with pytest.raises(
        TypeError, match=f"^{name} takes a.*Document, got SessionSnapshot.*from_snap"
    ):
        TAKES_A_DOCUMENT[name](SNAPSHOT)


@async_test
async def test_a_snapshot_is_not_imported_and_a_document_is_not_saved():
    store = MemoryStateStore()
    with pytest.raises(TypeError, match=r"import_session takes a Document.*from_snapshot"):
        await SnapshotManager(store).import_session(SNAPSHOT)
    document = make_document()
    with pytest.raises(TypeError, match=r"must be a SessionSnapshot.*document\.to_snapshot\(\)"):
        await SnapshotArchive(store).save_snapshot(
            location=HERE, snapshot_id=document.snapshot_id, is_latest=True, snapshot=document
        )
