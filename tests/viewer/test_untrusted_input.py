"""Sessions full of markup and scripts, ids of any characters, and addresses that lead nowhere."""

from __future__ import annotations

from viewer.sample_sessions import (
    AGENT,
    HOSTILE_AGENT,
    HOSTILE_SESSION,
    IMAGE,
    LINK,
    PRUNED_AGENT,
    SCRIPT,
    SESSION,
)
from viewer.viewer_page import expect, route


def slider(page):
    return page.locator("#slider")


def expect_event(page, title: str) -> None:
    expect(page.locator("#event-title")).to_have_text(title)


# ------------------------------------------------------------------------------- hostile sessions


def test_markup_and_scripts_are_shown_as_text(viewer):
    page = viewer.open(HOSTILE_AGENT, HOSTILE_SESSION).page
    for at in range(1, int(slider(page).input_value()) + 1):
        viewer.open(HOSTILE_AGENT, HOSTILE_SESSION, at=at)
    expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE_SESSION)
    expect(page.locator(".agent").first).to_have_text(HOSTILE_AGENT)
    expect(page.locator("#conversation article").first).to_contain_text(SCRIPT + IMAGE)
    tree = page.get_by_role("tree", name="values at this event")
    tree.get_by_text(IMAGE, exact=True).first.click()
    for summary in page.locator("#conversation details summary").all():
        summary.click()
    for view in ("snapshots", "growth"):
        viewer.open(HOSTILE_AGENT, HOSTILE_SESSION, view=view)
    viewer.open(HOSTILE_AGENT, HOSTILE_SESSION, view="compare", **{"from": 0, "to": 9})
    expect(page.locator(".diff-entry").first).to_be_visible()
    expect(page.locator(".comparison")).to_contain_text(LINK)
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert page.evaluate("[...document.links].filter((a) => a.protocol === 'javascript:')") == []


def test_ids_of_any_characters_survive_a_reload(viewer):
    page = viewer.open().page
    page.reload()
    page.get_by_role("button", name=HOSTILE_AGENT).click()
    page.locator(".session").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE_SESSION)
    page.get_by_role("button", name="First event").click()
    expect_event(page, "Event 1")
    viewer.wait_for_address("at=1")
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE_SESSION)
    expect_event(page, "Event 1")


# -------------------------------------------------------------------------------------- addresses


def test_malformed_addresses_cause_no_errors(viewer):
    page = viewer.reset().open().page
    viewer.allow("404")
    for wrong in ("#/%E0%A4%A", "#/a/b?at=x&view=nowhere", "#//", "#/?at=1", "#main"):
        page.goto(viewer.url + wrong)
        expect(page.locator("#main")).to_have_attribute("aria-busy", "false")


def open_missing_event(viewer, agent, session, at):
    """Follow a link to an event that is not in the log; return the page and its notice."""
    page = viewer.page
    page.goto(viewer.url + route(agent, session, at=at))
    notice = page.locator("#missing-event")
    expect(notice).to_be_visible()
    return page, notice


def test_link_past_the_head_says_that_there_is_no_such_event(viewer):
    page, notice = open_missing_event(viewer, AGENT, SESSION, 99)
    expect(notice).to_contain_text("This session has no event 99.")
    expect(notice).to_contain_text("has the events 1 to 23")
    expect(slider(page)).to_have_attribute("aria-valuetext", "event 99 is not in the log")
    expect(page.get_by_role("spinbutton", name="Event number")).to_have_value("99")
    for part in ("#view-state", "#tabs", "#actions"):
        expect(page.locator(part)).to_be_hidden()
    page.get_by_role("button", name="Go to event 23").click()
    expect_event(page, "Event 23")
    expect(notice).to_be_hidden()
    page.go_back()
    expect(notice).to_be_visible()
    assert "at=99" in page.evaluate("location.hash")


def test_link_to_a_pruned_event_says_where_the_log_starts(viewer):
    viewer.reset()
    page, notice = open_missing_event(viewer, PRUNED_AGENT, "ses_most", 3)
    first, last = (int(slider(page).get_attribute(name)) for name in ("min", "max"))
    expect(notice).to_contain_text("Event 3 was pruned.")
    expect(notice).to_contain_text(f"has the events {first} to {last}")
    page.get_by_role("button", name="Next event").click()
    expect_event(page, f"Event {first}")


def test_link_to_an_invalid_event_number_says_so(viewer):
    viewer.reset()
    for text in ("abc", "-3", "9" * 30):
        _, notice = open_missing_event(viewer, AGENT, SESSION, text)
        expect(notice).to_contain_text(f"“{text}” is not an event number.")
    _, notice = open_missing_event(viewer, AGENT, SESSION, 0)
    expect(notice).to_contain_text("This session has no event 0.")


def test_typed_number_of_a_missing_event_says_so(viewer):
    page = viewer.open(AGENT, SESSION, at=5).page
    number = page.get_by_role("spinbutton", name="Event number")
    number.fill("5000")
    number.press("Enter")
    expect(page.locator("#missing-event")).to_contain_text("This session has no event 5,000.")
    page.get_by_role("button", name="Previous event").click()
    expect_event(page, "Event 23")
