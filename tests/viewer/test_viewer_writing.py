"""Restore, fork, save, import, delete: each shows what it would do before it does it."""

from __future__ import annotations

import gzip
import json
import re

import pytest

from holdfast import BlockingSession
from viewer.looking import expect

AGENT = "writer"


@pytest.fixture
def session(state_store, request):
    """A session of its own for a test: a value that was changed and a snapshot in between."""
    name = request.node.name.removeprefix("test_")[:40]
    with BlockingSession.open(state_store, agent_id=AGENT, session_id=name) as begun:
        begun.add_message("user", "first")
        begun.set("step", {"number": 1})
        begun.save(tags={"kept": "yes"})
        begun.set("step", {"number": 2})
        begun.add_message("assistant", "second")
        begun.commit()
        yield begun


def dialog(page, title: str):
    return page.get_by_role("dialog", name=title)


def slider(page):
    return page.locator("#slider")


def test_restoring_shows_what_would_change_and_can_be_undone(look, session):
    page = look.at(AGENT, session.session_id, at=3).page
    page.get_by_role("button", name="Restore…").click()
    asked = dialog(page, "Restore to event 3?")
    expect(asked).to_contain_text("\u2212 1 removed")
    expect(asked).to_contain_text("~ 1 changed")
    expect(asked.locator(".field-row")).to_contain_text("number2→1")
    expect(slider(page)).to_have_js_property("max", "5")  # nothing has happened yet
    asked.get_by_role("button", name="Restore", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Restored to event 3")).to_be_visible()
    expect(slider(page)).to_have_js_property("value", "6")
    expect(page.locator("#event .type")).to_have_text("state.restored")
    page.get_by_role("button", name="Undo…").click()
    asked = dialog(page, "Restore to event 5?")
    asked.get_by_role("button", name="Restore", exact=True).click()
    expect(slider(page)).to_have_js_property("value", "7")
    session.reload()
    assert session.get("step") == {"number": 2}
    assert session.message_count == 2


def test_a_dialog_that_is_cancelled_does_nothing(look, session):
    page = look.at(AGENT, session.session_id, at=3).page
    for name in ("Restore…", "Fork…", "Save a snapshot…", "Delete…"):
        page.get_by_role("button", name=name).click()
        expect(page.locator("dialog .main")).to_be_enabled()
        page.keyboard.press("Escape")
        expect(page.locator("dialog")).to_have_count(0)
    session.reload()
    assert session.log.head.seq == 5


def test_a_session_that_has_gone_on_is_not_restored_but_shown_anew(look, session):
    page = look.at(AGENT, session.session_id, at=3).page
    page.get_by_role("button", name="Restore…").click()
    asked = dialog(page, "Restore to event 3?")
    expect(asked).to_contain_text("~ 1 changed")
    session.set("meanwhile", "somebody else")
    session.commit()
    look.expected.append("412")
    asked.get_by_role("button", name="Restore", exact=True).click()
    expect(asked.get_by_role("alert")).to_contain_text("The session has gone on in the meantime.")
    expect(asked).to_contain_text("state/meanwhile")
    asked.get_by_role("button", name="Restore", exact=True).click()
    expect(asked).to_have_count(0)
    session.reload()
    assert session.state == {"step": {"number": 1}}


def test_forking_makes_a_session_from_this_step_and_opens_it(look, session):
    page = look.at(AGENT, session.session_id, at=2).page
    page.get_by_role("button", name="Fork…").click()
    asked = dialog(page, "Fork from event 2?")
    expect(asked).to_contain_text("with a new id")
    name = f"{session.session_id} / branch"
    asked.get_by_role("textbox", name="New session").fill(name)
    expect(asked).to_contain_text(f"A session {name} of {AGENT} with 1 message")
    asked.get_by_role("button", name="Fork", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(name)
    expect(page.locator("#event .type")).to_have_text("session.forked")
    expect(page.locator(".session[aria-current=page]")).to_contain_text(name)


def test_forking_under_an_id_that_is_taken_is_refused_in_words(look, session):
    page = look.at(AGENT, session.session_id).page
    page.get_by_role("button", name="Fork…").click()
    asked = dialog(page, "Fork from event 5?")
    look.expected.append("409")
    asked.get_by_role("textbox", name="New session").fill(session.session_id)
    expect(asked.get_by_role("alert")).to_contain_text("already")
    expect(asked.get_by_role("alert")).to_contain_text("fork under another id")
    expect(asked.get_by_role("button", name="Fork", exact=True)).to_be_disabled()
    page.keyboard.press("Escape")


def test_a_snapshot_is_saved_with_tags_and_marked_on_the_line(look, session):
    page = look.at(AGENT, session.session_id).page
    page.get_by_role("button", name="Save a snapshot…").click()
    asked = dialog(page, "Save a snapshot?")
    expect(asked).to_contain_text("A snapshot at event 5: 2 messages")
    asked.get_by_role("textbox", name="Tag", exact=True).fill("reason")
    asked.get_by_role("textbox", name="Value of the tag").fill("before the upgrade")
    asked.get_by_role("button", name="Another tag").click()
    asked.get_by_role("textbox", name="Tag", exact=True).nth(1).fill("env")
    asked.get_by_role("textbox", name="Value of the tag").nth(1).fill("test")
    asked.get_by_role("button", name="Save", exact=True).click()
    mark = page.get_by_role(
        "button", name=re.compile("snapshot at event 5, .*reason=before the upg")
    )
    expect(mark).to_be_visible()
    expect(mark).to_have_attribute("title", re.compile("env=test"))


def test_a_snapshot_is_deleted_and_its_step_stays(look, session):
    page = look.at(AGENT, session.session_id, view="snapshots").page
    page.get_by_role("button", name="delete the snapshot at event 3").click()
    asked = dialog(page, "Delete the snapshot at event 3?")
    expect(asked).to_contain_text("kept=yes")
    asked.get_by_role("button", name="Delete the snapshot").click()
    expect(page.get_by_text("None is saved yet.")).to_be_visible()
    expect(slider(page)).to_have_js_property("max", "5")


def test_a_session_is_deleted_only_after_it_was_said_what_goes(look, session):
    page = look.at(AGENT, session.session_id).page
    page.get_by_role("button", name="Delete…").click()
    asked = dialog(page, "Delete this session?")
    expect(asked).to_contain_text(f"The session {session.session_id} with 5 events and 1 snapshot")
    asked.get_by_role("button", name="Delete the session").click()
    expect(page.get_by_role("status").filter(has_text="is deleted")).to_be_visible()
    expect(page.get_by_role("heading", name="What did the agent know?")).to_be_visible()


@pytest.fixture
def document(session, tmp_path):
    """A file with a session, which has gone on since it was exported."""
    from holdfast import SnapshotManager

    exported = session.export()
    path = tmp_path / "session.json"
    SnapshotManager(state_store=session.state_store).to_file(exported, path)
    session.set("step", {"number": 3})
    session.commit()
    return path


def test_importing_shows_what_would_change_and_can_be_undone(look, session, document):
    page = look.at(AGENT, session.session_id).page
    page.get_by_role("button", name="Import…").click()
    asked = dialog(page, "Import a session")
    expect(asked.get_by_role("button", name="Import", exact=True)).to_be_disabled()
    asked.locator("input[type=file]").set_input_files(document)
    expect(asked).to_contain_text("is there already and would become what the file holds")
    expect(asked).to_contain_text("~ changed state/step")
    asked.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="Imported 2 messages")).to_be_visible()
    session.reload()
    assert session.get("step") == {"number": 2}
    page.get_by_role("button", name="Undo…").click()
    dialog(page, "Restore to the snapshot?").get_by_role("button", name="Restore").click()
    expect(page.locator("dialog")).to_have_count(0)
    session.reload()
    assert session.get("step") == {"number": 3}


def test_a_packed_file_under_another_name_makes_a_new_session(look, session, document):
    packed = document.with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(document.read_bytes()))
    page = look.at(AGENT, session.session_id).page
    page.get_by_role("button", name="Import…").click()
    asked = dialog(page, "Import a session")
    asked.locator("input[type=file]").set_input_files(packed)
    asked.get_by_role("textbox", name="Session").fill(f"copy of {session.session_id}")
    expect(asked).to_contain_text("A new session")
    asked.get_by_role("button", name="Import", exact=True).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"copy of {session.session_id}")


def test_a_file_that_is_no_document_is_refused_in_words(look, session, tmp_path):
    page = look.at(AGENT, session.session_id).page
    wrong = tmp_path / "wrong.json"
    wrong.write_text(json.dumps({"schema_version": 1, "agent_id": "a"}))
    page.get_by_role("button", name="Import…").click()
    asked = dialog(page, "Import a session")
    look.expected.append("42")  # 422
    asked.locator("input[type=file]").set_input_files(wrong)
    expect(asked.get_by_role("alert")).to_contain_text(re.compile("\\w+"))
    expect(asked.get_by_role("button", name="Import", exact=True)).to_be_disabled()
    page.keyboard.press("Escape")
