"""Servers that require a token: what the viewer asks for, keeps and shows."""

from __future__ import annotations

import re

import pytest

from support.http_server import serve_app
from viewer.sample_sessions import AGENT, FORK, SESSION
from viewer.viewer_page import expect

READ, WRITE, NAMED = "read-token-0123456789", "write-token-0123456789", "named-token-0123456789"


@pytest.fixture(scope="module")
def guarded_server(browser, state_store):
    """A server that requires a token."""
    from holdfast.server import Token, create_app

    tokens = [
        Token(READ, scope="read"),
        Token(WRITE, scope="write"),
        Token(NAMED, scope="read", agents=frozenset([AGENT])),
    ]
    with serve_app(lambda: create_app(state_store, tokens=tokens)) as server:
        yield server


def enter_token(page, token: str) -> None:
    page.get_by_role("dialog", name="Token required").get_by_label("Token").fill(token)
    page.get_by_role("button", name="Use token").click()


def test_token_is_asked_for_and_kept_in_this_tab_only(open_viewer, guarded_server):
    viewer = open_viewer(guarded_server)
    page = viewer.open().page
    viewer.allow("401")
    enter_token(page, "not-a-token-at-all-0123")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("does not accept this")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_visible()
    enter_token(page, WRITE)
    expect(page.locator(".agent").first).to_be_visible()
    assert page.evaluate("Object.values(sessionStorage)") == [WRITE]
    assert WRITE not in page.evaluate("JSON.stringify(localStorage) + document.cookie")
    viewer.open(AGENT, SESSION)
    expect(page.get_by_role("button", name="Restore…")).to_be_visible()
    page.get_by_role("button", name="Export…").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Download").click()
    assert download.value.suggested_filename.endswith(".json")
    assert SESSION in download.value.path().read_text()
    assert not any(WRITE in each for each in viewer.requests)


def test_token_for_reading_hides_buttons_that_write(open_viewer, guarded_server):
    viewer = open_viewer(guarded_server)
    page = viewer.open().page
    enter_token(page, READ)
    expect(page.get_by_role("button", name="Token: read only")).to_be_visible()
    viewer.open(AGENT, SESSION, view="snapshots")
    expect(page.get_by_role("button", name="Export…")).to_be_visible()
    for name in ("Restore…", "Fork…", "Save snapshot…", "Delete…", "Import…"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.get_by_role("button", name=re.compile("^delete the snapshot"))).to_have_count(0)


def test_token_for_one_agent_shows_only_that_agent(open_viewer, guarded_server):
    viewer = open_viewer(guarded_server)
    page = viewer.open().page
    enter_token(page, NAMED)
    expect(page.locator(".agent")).to_have_text([AGENT])
    viewer.open(AGENT, FORK)


def test_token_can_be_forgotten(open_viewer, guarded_server):
    page = open_viewer(guarded_server).open().page
    enter_token(page, READ)
    page.get_by_role("button", name="Token: read only").click()
    page.get_by_role("button", name="Forget token").click()
    expect(page.get_by_role("dialog", name="Token required")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0
