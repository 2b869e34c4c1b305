"""Documents are signed on export and verified on import."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast import Redactor, Session, SnapshotManager, ValueMigrations
from holdfast.documents.signing import SignatureError, sign_document, verify_signature
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.observed_store import ObservedStore
from support.signing_keys import KEY, OTHER, TRUSTED, check_rejected


def make_manager(store=None, **options):
    return SnapshotManager(store or MemoryStateStore(), **options)


async def export_document(store, **options):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        session.add_message("user", "I am ada@example.com")
        session.set("plan", {"step": 1})
    return await make_manager(store).export_session("bot", tags={"why": "test"}, **options)


@async_test
async def test_the_signers_of_an_export_are_in_the_import_result(tmp_path):
    document = await export_document(MemoryStateStore(), sign=KEY)
    here = make_manager()
    here.to_file(document, tmp_path / "signed.json.gz")
    read = here.from_file(tmp_path / "signed.json.gz", trusted=TRUSTED)
    assert read.signed_by == (KEY.key_id,)
    assert replace(read, tags={}).signed_by == ()
    result = await here.import_session(read, agent_id="other", session_id="new", trusted=TRUSTED)
    assert result.signed_by == (KEY.key_id,)
    session = await Session.open(here.state_store, agent_id="other", session_id="new")
    assert session.events[-1].data["signed_by"] == [KEY.key_id]
    assert session.events[-1].data["agent_id"] == "bot"
    # A document that was not verified when it was read is verified as it would be written.
    again = await here.import_session(document, trusted=TRUSTED)
    assert again.signed_by == (KEY.key_id,)
    unchecked = await here.import_session(document, session_id="third")
    assert unchecked.signed_by == ()


@async_test
async def test_a_document_without_a_required_signature_is_not_imported():
    store = ObservedStore()
    here = make_manager(store)
    document = await export_document(MemoryStateStore(), sign=KEY)
    read = here.from_dict(document.to_dict(), trusted=TRUSTED)
    for wrong, trusted in (
        (await export_document(MemoryStateStore()), TRUSTED),
        (document, [OTHER.public]),
        (read, [OTHER.public]),
        (replace(read, tags={"why": "not"}), TRUSTED),
    ):
        with pytest.raises(SignatureError):
            await here.import_session(wrong, trusted=trusted)
    assert store.content == {}


@async_test
async def test_redaction_precedes_signing_and_removes_older_signatures():
    store = MemoryStateStore()
    redactor = Redactor(patterns=False, paths=["values.plan"])
    document = await export_document(store, redact=redactor.redact, sign=KEY)
    assert document.extra["redactions"]
    assert verify_signature(document, TRUSTED)
    signed = await export_document(store, sign=KEY)
    redacted = redactor.redact(signed)
    check_rejected(redacted, "is not signed")
    assert verify_signature(sign_document(redacted, KEY), TRUSTED)


@async_test
async def test_values_are_migrated_after_the_signature_is_verified():
    document = await export_document(MemoryStateStore(), sign=KEY)
    steps = {1: lambda values: {"goal": values["plan"]}}
    here = make_manager(migrations=ValueMigrations(version=2, steps=steps))
    read = here.from_dict(document.to_dict(), trusted=TRUSTED)
    assert list(read.state.values) == ["goal"]
    assert "signatures" not in read.extra
    assert (await here.import_session(read, trusted=TRUSTED)).signed_by == (KEY.key_id,)
