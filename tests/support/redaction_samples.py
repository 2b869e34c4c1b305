"""Documents to redact, and checks of redacted documents."""

from __future__ import annotations

import base64
import json
import re

from holdfast import Document, Store
from holdfast.log.changes import fold_changes
from holdfast.redaction.redactor import Redactor
from holdfast.stores.memory import MemoryStateStore
from holdfast.transfer.manager import SnapshotManager
from support.async_tests import run_async
from support.conversations import open_session

REDACTOR = Redactor()
AWS = "AKIA" + "IOSFODNN7EXAMPLE"
GITHUB = "ghp_" + "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dE3fG5"
ADA, BOB = "ada@example.com", "bob@example.org"
PHONE = "+49 30 901820"


def export_work(work, **options):
    """Return the document of a session after some work."""

    async def whole():
        session = await open_session(MemoryStateStore(), **options)
        work(session)
        await session.commit()
        return await session.export()

    return run_async(whole())


def redact_work(work, redactor=REDACTOR, **options):
    """Return the redacted document of a session, after validating it."""
    document = export_work(work, **options)
    new = redactor.redact(document)
    check(new, document)
    assert redactor.redact(new).to_dict() == new.to_dict()
    return new


def check(new, old):
    """Check that a redacted document is valid and can be imported."""
    store = Store()
    if new.base is not None:
        store.restore(new.base)
    fold_changes(store, [event.changes for event in new.events])
    assert store.snapshot().digest == new.digest
    assert len(new.state.messages) == len(old.state.messages)
    assert len(new.snapshot) == len(old.snapshot)
    assert [event.seq for event in new.events] == [event.seq for event in old.events]
    assert [event.id for event in new.events] == [event.id for event in old.events]
    again = Document.from_dict(json.loads(json.dumps(new.to_dict())))
    assert again.digest == new.digest

    async def imported():
        manager = SnapshotManager(MemoryStateStore())
        result = await manager.import_session(again)
        assert result.events_restored == len(new.events)
        location = await manager.locate(result.agent_id, result.session_id)
        report = await manager.archive.verify(location=location)
        assert report.ok
        assert report.events == len(new.events) + 1

    run_async(imported())


def read_all_text(document):
    """Return all text of a document, with base64 decoded."""
    text = json.dumps(document.to_dict(), ensure_ascii=False)
    inside = re.findall(r'\{"\$bytes": "([^"]*)"\}', text)
    return text + "".join(base64.b64decode(part).decode(errors="replace") for part in inside)


def list_removed(document):
    """Return the redactions that a document lists."""
    return {(each["kind"], each["path"]): each["count"] for each in document.extra["redactions"]}
