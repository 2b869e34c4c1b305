"""Restore, fork, save, delete, import and export. What changes a session is previewed first."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from holdfast import BlockingSession, SnapshotManager
from viewer.sample_sessions import AGENT as REPORT_AGENT
from viewer.sample_sessions import SESSION
from viewer.viewer_page import expect

AGENT = "writer"


@pytest.fixture
def session(state_store, request):
    """A session for one test, with a snapshot between two changes of a value."""
    name = request.node.name.removeprefix("test_")[:40]
    with BlockingSession.open(state_store, agent_id=AGENT, session_id=name) as created:
        created.add_message("user", "first")
        created.set("step", {"number": 1})
        created.save(tags={"kept": "yes"})
        created.set("step", {"number": 2})
        created.add_message("assistant", "second")
        created.commit()
        yield created


def dialog(page, title: str):
    return page.get_by_role("dialog", name=title)


def slider(page):
    return page.locator("#slider")


def test_restore_shows_a_preview_and_can_be_undone(viewer, session):
    page = viewer.open(AGENT, session.session_id, at=3).page
    page.get_by_role("button", name="Restore…").click()
    opened = dialog(page, "Restore to event 3?")
    expect(opened).to_contain_text("\u2212 1 removed")
    expect(opened).to_contain_text("~ 1 changed")
    expect(opened.locator(".field-row")).to_contain_text("number2→1")
    expect(slider(page)).to_have_js_property("max", "5")  # nothing is written yet
    opened.get_by_role("button", name="Restore", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Restored to event 3")).to_be_visible()
    expect(slider(page)).to_have_js_property("value", "6")
    expect(page.locator("#event .type")).to_have_text("state.restored")
    page.get_by_role("button", name="Undo…").click()
    opened = dialog(page, "Restore to event 5?")
    opened.get_by_role("button", name="Restore", exact=True).click()
    expect(slider(page)).to_have_js_property("value", "7")
    session.reload()
    assert session.get("step") == {"number": 2}
    assert session.message_count == 2


def test_cancelled_dialog_changes_nothing(viewer, session):
    page = viewer.open(AGENT, session.session_id, at=3).page
    for name in ("Restore…", "Fork…", "Save snapshot…", "Delete…"):
        page.get_by_role("button", name=name).click()
        expect(page.locator("dialog .main")).to_be_enabled()
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_have_count(0)
    session.reload()
    assert session.log.head.seq == 5


def test_restore_shows_a_new_preview_when_the_session_has_changed(viewer, session):
    page = viewer.open(AGENT, session.session_id, at=3).page
    page.get_by_role("button", name="Restore…").click()
    opened = dialog(page, "Restore to event 3?")
    expect(opened).to_contain_text("~ 1 changed")
    session.set("added", "by another writer")
    session.commit()
    viewer.allow("412")
    opened.get_by_role("button", name="Restore", exact=True).click()
    expect(opened.get_by_role("alert")).to_contain_text("The session has changed.")
    expect(opened).to_contain_text("state/added")
    opened.get_by_role("button", name="Restore", exact=True).click()
    expect(opened).to_have_count(0)
    session.reload()
    assert session.state == {"step": {"number": 1}}


def test_fork_creates_a_session_at_this_event_and_opens_it(viewer, session):
    page = viewer.open(AGENT, session.session_id, at=2).page
    page.get_by_role("button", name="Fork…").click()
    opened = dialog(page, "Fork from event 2?")
    expect(opened).to_contain_text("with a generated id")
    name = f"{session.session_id} / branch"
    opened.get_by_role("textbox", name="New session").fill(name)
    expect(opened).to_contain_text(f"A session {name} of {AGENT} with 1 message")
    opened.get_by_role("button", name="Fork", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    expect(page.locator("#event .type")).to_have_text("session.forked")
    expect(page.locator(".session[aria-current=page]")).to_contain_text(name)


def test_fork_to_an_existing_id_shows_the_error(viewer, session):
    page = viewer.open(AGENT, session.session_id).page
    page.get_by_role("button", name="Fork…").click()
    opened = dialog(page, "Fork from event 5?")
    viewer.allow("409")
    opened.get_by_role("textbox", name="New session").fill(session.session_id)
    expect(opened.get_by_role("alert")).to_contain_text("already")
    expect(opened.get_by_role("alert")).to_contain_text("fork under another id")
    expect(opened.get_by_role("button", name="Fork", exact=True)).to_be_disabled()
    page.keyboard.press("Escape")


def test_saved_snapshot_is_marked_on_the_timeline_with_its_tags(viewer, session):
    page = viewer.open(AGENT, session.session_id).page
    page.get_by_role("button", name="Save snapshot…").click()
    opened = dialog(page, "Save a snapshot?")
    expect(opened).to_contain_text("A snapshot at event 5: 2 messages")
    opened.get_by_role("textbox", name="Tag", exact=True).fill("reason")
    opened.get_by_role("textbox", name="Tag value").fill("before the upgrade")
    opened.get_by_role("button", name="Add tag").click()
    opened.get_by_role("textbox", name="Tag", exact=True).nth(1).fill("env")
    opened.get_by_role("textbox", name="Tag value").nth(1).fill("test")
    opened.get_by_role("button", name="Save", exact=True).click()
    mark = page.get_by_role(
        "button", name=re.compile("snapshot at event 5, .*reason=before the upg")
    )
    expect(mark).to_be_visible()
    expect(mark).to_have_attribute("title", re.compile("env=test"))


def test_deleted_snapshot_leaves_its_event(viewer, session):
    page = viewer.open(AGENT, session.session_id, view="snapshots").page
    page.get_by_role("button", name="delete the snapshot at event 3").click()
    opened = dialog(page, "Delete the snapshot at event 3?")
    expect(opened).to_contain_text("kept=yes")
    opened.get_by_role("button", name="Delete snapshot").click()
    expect(page.get_by_text("No snapshots yet.")).to_be_visible()
    expect(slider(page)).to_have_js_property("max", "5")


def test_delete_shows_what_is_deleted(viewer, session):
    page = viewer.open(AGENT, session.session_id).page
    page.get_by_role("button", name="Delete…").click()
    opened = dialog(page, "Delete this session?")
    expect(opened).to_contain_text(f"The session {session.session_id} with 5 events and 1 snapshot")
    opened.get_by_role("button", name="Delete session").click()
    expect(page.get_by_role("status").filter(has_text="deleted.")).to_be_visible()
    expect(page.get_by_role("heading", name="What did the agent know?")).to_be_visible()


@pytest.fixture
def document(session, tmp_path):
    """A file with a session that has changed since its export."""
    exported = session.export()
    path = tmp_path / "session.json"
    SnapshotManager(state_store=session.state_store).to_file(exported, path)
    session.set("step", {"number": 3})
    session.commit()
    return path


def test_import_shows_a_preview_and_can_be_undone(viewer, session, document):
    page = viewer.open(AGENT, session.session_id).page
    page.get_by_role("button", name="Import…").click()
    opened = dialog(page, "Import a session")
    expect(opened.get_by_role("button", name="Import", exact=True)).to_be_disabled()
    opened.locator("input[type=file]").set_input_files(document)
    expect(opened).to_contain_text("Replaces the state of the existing session")
    expect(opened).to_contain_text("~ changed state/step")
    opened.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Imported 2 messages")).to_be_visible()
    session.reload()
    assert session.get("step") == {"number": 2}
    page.get_by_role("button", name="Undo…").click()
    dialog(page, "Restore to the snapshot?").get_by_role("button", name="Restore").click()
    expect(page.locator("dialog")).to_have_count(0)
    session.reload()
    assert session.get("step") == {"number": 3}


def test_compressed_file_is_imported_under_another_id(viewer, session, document):
    compressed = document.with_suffix(".json.gz")
    compressed.write_bytes(gzip.compress(document.read_bytes()))
    page = viewer.open(AGENT, session.session_id).page
    page.get_by_role("button", name="Import…").click()
    opened = dialog(page, "Import a session")
    opened.locator("input[type=file]").set_input_files(compressed)
    opened.get_by_role("textbox", name="Session").fill(f"copy of {session.session_id}")
    expect(opened).to_contain_text("Creates the session")
    opened.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"copy of {session.session_id}")


def test_import_of_an_invalid_document_shows_the_error(viewer, session, tmp_path):
    page = viewer.open(AGENT, session.session_id).page
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({"schema_version": 1, "agent_id": "a"}))
    page.get_by_role("button", name="Import…").click()
    opened = dialog(page, "Import a session")
    viewer.allow("422")
    opened.locator("input[type=file]").set_input_files(wrong)
    expect(opened.get_by_role("alert")).to_contain_text(re.compile("\\w+"))
    expect(opened.get_by_role("button", name="Import", exact=True)).to_be_disabled()
    page.keyboard.press("Escape")


# ------------------------------------------------------------------- snapshot table and export


def test_snapshot_table_goes_to_the_event_of_a_snapshot(viewer):
    page = viewer.open(REPORT_AGENT, SESSION, view="snapshots").page
    rows = page.get_by_role("region", name="Snapshots").get_by_role("row")
    expect(rows).to_have_count(4)
    expect(rows.nth(2)).to_contain_text("env=production")
    expect(rows.nth(1)).to_contain_text("unfinished tool call")
    page.get_by_role("button", name="go to the snapshot at event 11").click()
    expect(page.locator("#slider")).to_have_js_property("value", "11")


def test_shown_snapshot_and_head_are_exported(viewer):
    page = viewer.open(REPORT_AGENT, SESSION, at=19).page
    page.get_by_role("button", name="Export…").click()
    export_dialog = page.get_by_role("dialog", name="Export this session")
    expect(export_dialog.get_by_role("combobox", name="Position")).to_contain_text("step=read")
    with page.expect_download() as download:
        export_dialog.get_by_role("link", name="Download").click()
    found = json.loads(download.value.path().read_bytes())
    assert found["session_id"] == SESSION
    assert found["tags"]["step"] == "read"
    expect(export_dialog).to_have_count(0)
    page.get_by_role("button", name="Export…").click()
    export_dialog.get_by_role("combobox", name="Position").select_option("head")
    with page.expect_download() as download:
        export_dialog.get_by_role("link", name="Download").click()
    assert json.loads(download.value.path().read_bytes())["event_log_count"] == 23


def test_export_can_be_redacted(viewer):
    page = viewer.open(REPORT_AGENT, SESSION).page
    page.get_by_role("button", name="Export…").click()
    export_dialog = page.get_by_role("dialog", name="Export this session")
    export_dialog.get_by_role("combobox", name="Position").select_option("head")
    export_dialog.get_by_role("checkbox", name="Redact secrets and personal data").check()
    with page.expect_download() as download:
        export_dialog.get_by_role("link", name="Download").click()
    text = download.value.path().read_text()
    assert "battery prices" in text
    assert "team@example.org" not in text
