"""Long sessions: only what is visible is fetched and drawn."""

from __future__ import annotations

import re

from viewer.sample_sessions import AGENT, CROWDED, LONG, LONG_AGENT, SESSION
from viewer.viewer_page import expect

LAST_EVENT = 1500


def expect_event(page, title: str) -> None:
    expect(page.locator("#event-title")).to_have_text(title)


# ------------------------------------------------------------------------------------- requests


def test_only_messages_near_the_visible_ones_are_fetched_and_drawn(viewer):
    viewer.requests.clear()
    page = viewer.reset().open(LONG_AGENT, LONG).page
    expect(page.locator("article[data-index='1348']")).to_be_visible()
    assert page.locator("article").count() <= 150
    page.get_by_role("button", name="first message").click()
    expect(page.locator("article[data-index='0']")).to_be_focused()
    expect(page.locator("article[data-index='0']")).to_contain_text("message number 1")
    page.locator("#conversation").evaluate("(pane) => { pane.scrollTop = pane.scrollHeight / 2; }")
    expect(page.locator("article").filter(has_text="message number 67").first).to_be_visible()
    assert page.locator("article").count() <= 500
    limits = [re.search(r"message_limit=(\d+)", url) for url in viewer.requests if "/state?" in url]
    assert all(limit and int(limit[1]) <= 50 for limit in limits)
    assert len(limits) < 15
    assert len([url for url in viewer.requests if "/events?" in url]) == 1


def test_drag_over_many_events_requests_few_of_them(viewer):
    page = viewer.open(LONG_AGENT, LONG, at=1).page
    viewer.requests.clear()
    page.evaluate(
        """async () => {
          const slider = document.getElementById("slider");
          for (let step = 1; step <= 100; step += 1) {
            slider.value = step * 14;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
            await new Promise((done) => setTimeout(done, 4));
          }
        }"""
    )
    expect_event(page, "Event 1,400")
    assert len([url for url in viewer.requests if "/state?" in url]) < 60


def test_requests_for_a_position_that_was_left_are_cancelled(viewer):
    page = viewer.open(LONG_AGENT, LONG, at=10).page
    failed = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.route(re.compile(r"/state\?at=500&"), lambda route: None)  # never responds
    number = page.get_by_role("spinbutton", name="Event number")
    with page.expect_request(re.compile(r"/state\?at=500&")):
        number.fill("500")
        number.press("Enter")
    with page.expect_event("requestfailed"):
        number.fill("600")
        number.press("Enter")
    expect_event(page, "Event 600")
    assert any("at=500&" in url for url in failed)
    page.unroute_all()


def test_step_back_sends_no_requests(viewer):
    page = viewer.open(LONG_AGENT, LONG, at=200).page
    page.get_by_role("button", name="Next event").click()
    expect_event(page, "Event 201")
    viewer.requests.clear()
    page.get_by_role("button", name="Previous event").click()
    expect_event(page, "Event 200")
    assert [url for url in viewer.requests if "/state?" in url or "/events" in url] == []


def test_many_snapshots_become_bars(viewer):
    page = viewer.open(LONG_AGENT, CROWDED).page
    bars = page.get_by_role("group", name="Snapshots").get_by_role("button")
    expect(bars).to_have_count(60)
    expect(bars.nth(30)).to_have_attribute("aria-label", re.compile("2 snapshots, events 6"))
    bars.nth(30).click()
    expect_event(page, re.compile("Event 6"))
    viewer.open(LONG_AGENT, CROWDED, view="snapshots")
    expect(page.locator("#view-snapshots tbody tr")).to_have_count(100)
    page.get_by_role("button", name="show more (20 left)").click()
    expect(page.locator("#view-snapshots tbody tr")).to_have_count(120)


# -------------------------------------------------------------------------------- nearby events

VISIBLE_EVENTS = """() => {
  const box = document.querySelector("ol.events").getBoundingClientRect();
  const isVisible = ({ top, bottom }) => top >= box.top - 1 && bottom <= box.bottom + 1;
  return [...document.querySelectorAll("ol.events .event-row")]
    .filter((row) => isVisible(row.getBoundingClientRect()))
    .map((row) => Number(row.dataset.seq));
}"""


def visible_events(viewer, at):
    """Return the events that are visible in the list without scrolling."""
    page = viewer.open(LONG_AGENT, LONG, at=at).page
    expect(page.locator(".event-row[aria-current]")).to_have_attribute("data-seq", str(at))
    return page.evaluate(VISIBLE_EVENTS)


def test_list_shows_the_events_before_and_after_the_current_one(viewer):
    for at in (40, 501, 553, 600):
        seen = visible_events(viewer, at)
        assert seen[0] <= at - 4, (at, seen)
        assert seen[-1] >= at + 4, (at, seen)
        assert seen == list(range(seen[0], seen[-1] + 1))


def test_list_starts_and_ends_with_the_log(viewer):
    assert visible_events(viewer, 1)[0] == 1
    assert visible_events(viewer, LAST_EVENT)[-1] == LAST_EVENT


def test_list_leads_to_earlier_and_later_events(viewer):
    page = viewer.open(LONG_AGENT, LONG, at=400).page
    nearby = page.get_by_role("region", name="Nearby events")
    expect(nearby.locator(".event-row")).to_have_count(100)
    nearby.get_by_role("button", name="later events").click()
    expect_event(page, "Event 451")
    nearby.get_by_role("button", name="earlier events").click()
    expect_event(page, "Event 400")


def test_list_and_conversation_are_scrolled_after_a_move_in_another_tab(viewer):
    page = viewer.open(LONG_AGENT, LONG, at=553).page
    page.get_by_role("tab", name="Snapshots").click()
    viewer.open(LONG_AGENT, LONG, at=1170, view="snapshots")
    page.get_by_role("tab", name="State").click()
    expect(page.locator(".event-row[aria-current]")).to_be_visible()
    seen = page.evaluate(VISIBLE_EVENTS)
    assert seen[0] < 1170 < seen[-1]
    expect(page.locator("#conversation article").last).to_be_in_viewport()
    viewer.reset().open(AGENT, SESSION)  # nothing of the first session is requested of this one


def test_list_has_different_signs_for_added_and_changed_entries(viewer):
    page = viewer.open(AGENT, SESSION, at=12).page

    def changed_keys(seq):
        return page.locator(f'.event-row[data-seq="{seq}"] .changed-keys')

    expect(changed_keys(5)).to_have_text("+ state/plan")
    expect(changed_keys(12)).to_have_text("~ state/plan")
    expect(changed_keys(13)).to_have_text("+ state/draft")
    expect(changed_keys(16)).to_have_text("\N{MINUS SIGN} state/draft")
