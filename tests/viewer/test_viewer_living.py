"""A viewer beside an agent that is running, a server that goes and comes back, and tokens."""

from __future__ import annotations

import re

import pytest

from holdfast import BlockingSession
from support.http_server import served
from viewer.looking import expect
from viewer.recordings import AGENT, FORK, SESSION, recorded, store_with

RUNNER = "runner"
READ, WRITE, NAMED = "read-token-0123456789", "write-token-0123456789", "named-token-0123456789"


@pytest.fixture
def running(state_store, request):
    """A session that goes on while it is looked at."""
    name = request.node.name.removeprefix("test_")[:40]
    with BlockingSession.open(state_store, agent_id=RUNNER, session_id=name) as session:
        for number in range(4):
            session.add_message("user", f"message {number}")
        session.commit()
        yield session


def slider(page):
    return page.locator("#slider")


def test_who_stands_at_the_end_goes_along_with_the_agent(look, running):
    page = look.at(RUNNER, running.session_id).page
    running.add_message("assistant", "here is something new")
    running.commit()
    expect(slider(page)).to_have_js_property("value", "6")
    expect(page.locator("#conversation")).to_contain_text("here is something new")
    expect(page.locator("#facts")).to_contain_text("6 events")
    running.save(tags={"while": "looking"})
    look.wake()
    expect(page.get_by_role("button", name=re.compile("snapshot at event 6"))).to_be_visible()


def test_who_stands_elsewhere_stays_there_and_hears_of_new_events(look, running):
    page = look.at(RUNNER, running.session_id, at=2).page
    for number in range(3):
        running.set("turn", number)
    running.commit()
    look.wake()
    newer = page.get_by_role("button", name="3 new events")
    expect(newer).to_be_visible()
    assert slider(page).input_value() == "2"
    newer.click()
    expect(slider(page)).to_have_js_property("value", "8")
    expect(newer).to_be_hidden()


def test_nothing_new_is_answered_with_nothing_and_not_asked_for_unseen(look, running):
    page = look.at(RUNNER, running.session_id).page
    with page.expect_response(lambda answer: answer.status == 304) as answer:
        look.wake()
    assert answer.value.url.endswith(running.session_id)
    page.evaluate(
        """() => {
          Object.defineProperty(document, "hidden", { value: true, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    page.wait_for_timeout(100)
    look.requests.clear()
    page.wait_for_timeout(2300)
    assert look.requests == []
    with page.expect_response(lambda answer: answer.status == 304):
        page.evaluate("delete document.hidden")
        look.wake()


def test_a_server_that_is_gone_is_said_to_be_and_found_again(open_look, browser):
    from holdfast.server import create_app

    state_store = store_with(recorded)
    with served(lambda: create_app(state_store)) as server:
        look = open_look(server).at(AGENT, SESSION)
        look.expected.append("ERR_CONNECTION_REFUSED")
        page = look.page
        server.stop()
        look.wake()
        gone = page.get_by_role("status").filter(has_text="The server does not answer")
        expect(gone).to_be_visible()
        page.get_by_role("button", name="Previous event").click()
        alert = page.get_by_role("alert").filter(has_text="The server does not answer")
        expect(alert).to_contain_text("Is it still running?")
        server.start()
        page.get_by_role("button", name="Try now").click()
        expect(gone).to_have_count(0)
        page.get_by_role("button", name="Next event").click()
        expect(alert).to_have_count(0)
        expect(page.locator("#event-title")).to_have_text("Event 23")


def test_a_session_that_is_deleted_elsewhere_is_said_to_be_gone(look, state_store):
    from holdfast import SnapshotArchive
    from holdfast.sessions.portal import get_portal

    with BlockingSession.open(state_store, agent_id=RUNNER, session_id="ses_gone") as session:
        session.add_message("user", "hello")
    page = look.at(RUNNER, "ses_gone").page
    look.expected.append("404")
    get_portal().call(SnapshotArchive(state_store).delete_session(session_id="ses_gone"))
    look.wake()
    expect(page.get_by_role("alert").filter(has_text="ses_gone")).to_be_visible()


def test_a_session_that_is_not_there_is_said_to_be_missing(look):
    look.expected.append("404")
    page = look.fresh().at().page
    page.goto(look.url + f"#/{AGENT}/ses_nowhere")
    expect(page.get_by_role("alert").filter(has_text="ses_nowhere")).to_be_visible()
    page.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("alert").filter(has_text="ses_nowhere")).to_have_count(0)


# ---------------------------------------------------------------------------------------- tokens


@pytest.fixture(scope="module")
def guarded(browser, state_store):
    """A server that wants a token."""
    from holdfast.server import Token, create_app

    tokens = [
        Token(READ, scope="read"),
        Token(WRITE, scope="write"),
        Token(NAMED, scope="read", agents=frozenset([AGENT])),
    ]
    with served(lambda: create_app(state_store, tokens=tokens)) as server:
        yield server


def give(page, token: str) -> None:
    page.get_by_role("dialog", name="A token, please").get_by_label("Token").fill(token)
    page.get_by_role("button", name="Use it").click()


def test_a_token_is_asked_for_and_kept_for_this_tab_only(open_look, guarded):
    look = open_look(guarded)
    page = look.at().page
    look.expected.append("401")
    give(page, "not-a-token-at-all-0123")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("does not know this")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_visible()
    give(page, WRITE)
    expect(page.locator(".agent").first).to_be_visible()
    assert page.evaluate("Object.values(sessionStorage)") == [WRITE]
    assert WRITE not in page.evaluate("JSON.stringify(localStorage) + document.cookie")
    look.at(AGENT, SESSION)
    expect(page.get_by_role("button", name="Restore…")).to_be_visible()
    page.get_by_role("button", name="Export…").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename.endswith(".json")
    assert SESSION in download.value.path().read_text()
    assert not any(WRITE in each for each in look.requests)


def test_with_a_token_for_reading_there_are_no_buttons_that_write(open_look, guarded):
    look = open_look(guarded)
    page = look.at().page
    give(page, READ)
    expect(page.get_by_role("button", name="Token: read only")).to_be_visible()
    look.at(AGENT, SESSION, view="snapshots")
    expect(page.get_by_role("button", name="Export…")).to_be_visible()
    for name in ("Restore…", "Fork…", "Save a snapshot…", "Delete…", "Import…"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.get_by_role("button", name=re.compile("^delete the snapshot"))).to_have_count(0)


def test_a_token_for_one_agent_shows_that_agent_alone(open_look, guarded):
    look = open_look(guarded)
    page = look.at().page
    give(page, NAMED)
    expect(page.locator(".agent")).to_have_text([AGENT])
    look.at(AGENT, FORK)


def test_a_token_can_be_forgotten(open_look, guarded):
    page = open_look(guarded).at().page
    give(page, READ)
    page.get_by_role("button", name="Token: read only").click()
    page.get_by_role("button", name="Forget the token").click()
    expect(page.get_by_role("dialog", name="A token, please")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
