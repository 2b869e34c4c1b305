"""Sessions that change, or disappear, while the viewer shows them."""

from __future__ import annotations

import re

import pytest

from holdfast import BlockingSession, SnapshotArchive
from holdfast.stores.portal import get_portal
from support.http_server import serve_app
from viewer.sample_sessions import AGENT, SESSION, report_session, store_with
from viewer.viewer_page import expect

RUNNER = "runner"


@pytest.fixture
def running(state_store, request):
    """A session that is written to while it is shown."""
    name = request.node.name.removeprefix("test_")[:40]
    with BlockingSession.open(state_store, agent_id=RUNNER, session_id=name) as session:
        for number in range(4):
            session.add_message("user", f"message {number}")
        session.commit()
        yield session


def slider(page):
    return page.locator("#slider")


def test_viewer_at_the_head_follows_new_events(viewer, running):
    page = viewer.open(RUNNER, running.session_id).page
    running.add_message("assistant", "here is something new")
    running.commit()
    expect(slider(page)).to_have_js_property("value", "6")
    expect(page.locator("#conversation")).to_contain_text("here is something new")
    expect(page.locator("#facts")).to_contain_text("6 events")
    running.save(tags={"saved": "live"})
    viewer.poll_now()
    expect(page.get_by_role("button", name=re.compile("snapshot at event 6"))).to_be_visible()


def test_viewer_at_an_earlier_event_stays_and_reports_new_events(viewer, running):
    page = viewer.open(RUNNER, running.session_id, at=2).page
    for number in range(3):
        running.set("turn", number)
    running.commit()
    viewer.poll_now()
    new_events = page.get_by_role("button", name="3 new events")
    expect(new_events).to_be_visible()
    assert slider(page).input_value() == "2"
    new_events.click()
    expect(slider(page)).to_have_js_property("value", "8")
    expect(new_events).to_be_hidden()


def test_unchanged_session_is_polled_with_an_etag(viewer, running):
    page = viewer.open(RUNNER, running.session_id).page
    with page.expect_response(lambda response: response.status == 304) as response:
        viewer.poll_now()
    assert response.value.url.endswith(running.session_id)


def test_viewer_is_told_of_new_events_and_does_not_poll(viewer, running):
    page = viewer.open(RUNNER, running.session_id).page
    with page.expect_response(lambda response: "/events/stream?" in response.url) as response:
        viewer.poll_now()
    assert response.value.url.endswith("after=5&brief=true")
    viewer.requests.clear()
    for number in range(5):  # each at once, and not after the interval of 30 seconds
        running.add_message("assistant", f"live {number}")
        running.commit()
    expect(page.locator("#conversation")).to_contain_text("live 4")
    assert len([url for url in viewer.requests if url.endswith(running.session_id)]) <= 5
    assert not [url for url in viewer.requests if "/events/stream" in url]


def test_viewer_polls_if_the_stream_is_refused(viewer, running):
    page = viewer.page
    page.route("**/events/stream?*", lambda route: route.fulfill(status=429, json={"status": 429}))
    viewer.allow("429")
    viewer.open(RUNNER, running.session_id)
    with page.expect_response(lambda response: response.status == 429):
        viewer.poll_now()
    running.add_message("assistant", "found by polling")
    running.commit()
    expect(page.locator("#conversation")).to_contain_text("found by polling")
    page.unroute_all()


def test_hidden_page_is_not_polled(open_viewer, server, running):
    viewer = open_viewer(server)
    page = viewer.page
    page.clock.install()
    viewer.open(RUNNER, running.session_id)
    with page.expect_request(lambda request: "/events/stream?" in request.url) as stream:
        viewer.poll_now()
    page.evaluate(
        """() => {
          Object.defineProperty(document, "hidden", { value: true, configurable: true });
          document.dispatchEvent(new Event("visibilitychange"));
        }"""
    )
    page.clock.run_for(1000)
    viewer.requests.clear()
    page.clock.run_for(10_000)
    assert viewer.requests == []
    assert stream.value.failure is not None  # cancelled
    with page.expect_response(lambda response: response.status == 304):
        page.evaluate("delete document.hidden")
        viewer.poll_now()


def test_viewer_reports_an_unreachable_server_and_reconnects(open_viewer, browser):
    from holdfast.server import create_app

    state_store = store_with(report_session)
    with serve_app(lambda: create_app(state_store)) as server:
        viewer = open_viewer(server).open(AGENT, SESSION)
        viewer.allow("ERR_CONNECTION_REFUSED")
        page = viewer.page
        server.stop()
        viewer.poll_now()
        offline = page.get_by_role("status").filter(has_text="The server does not respond")
        expect(offline).to_be_visible()
        page.get_by_role("button", name="Previous event").click()
        alert = page.get_by_role("alert").filter(has_text="The server does not respond")
        expect(alert).to_contain_text("Check that it is running.")
        server.start()
        page.get_by_role("button", name="Retry now").click()
        expect(offline).to_have_count(0)
        page.get_by_role("button", name="Next event").click()
        expect(alert).to_have_count(0)
        expect(page.locator("#event-title")).to_have_text("Event 23")


def test_session_deleted_by_another_client_is_reported(viewer, state_store):
    with BlockingSession.open(state_store, agent_id=RUNNER, session_id="ses_deleted") as session:
        session.add_message("user", "hello")
    page = viewer.open(RUNNER, "ses_deleted").page
    viewer.allow("404")
    get_portal().call(SnapshotArchive(state_store).delete_session(session_id="ses_deleted"))
    viewer.poll_now()
    expect(page.get_by_role("alert").filter(has_text="ses_deleted")).to_be_visible()


def test_missing_session_is_reported(viewer):
    viewer.allow("404")
    page = viewer.reset().open().page
    page.goto(viewer.url + f"#/{AGENT}/ses_nowhere")
    expect(page.get_by_role("alert").filter(has_text="ses_nowhere")).to_be_visible()
    page.get_by_role("button", name="Dismiss").click()
    expect(page.get_by_role("alert").filter(has_text="ses_nowhere")).to_have_count(0)
