"""What would break a lesser page: texts that are code, ten thousand events, many snapshots."""

from __future__ import annotations

import re

from viewer.looking import expect
from viewer.recordings import (
    CROWDED,
    HOSTILE_AGENT,
    HOSTILE_SESSION,
    IMAGE,
    LINK,
    LONG,
    LONG_AGENT,
    SCRIPT,
)


def slider(page):
    return page.locator("#slider")


# -------------------------------------------------------------------------------------- hostile


def test_markup_and_scripts_are_shown_as_the_text_that_they_are(look):
    page = look.at(HOSTILE_AGENT, HOSTILE_SESSION).page
    for step in range(1, int(slider(page).input_value()) + 1):
        look.at(HOSTILE_AGENT, HOSTILE_SESSION, at=step)
    expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE_SESSION)
    expect(page.locator(".agent").first).to_have_text(HOSTILE_AGENT)
    expect(page.locator("#conversation article").first).to_contain_text(SCRIPT + IMAGE)
    tree = page.get_by_role("tree", name="values at this step")
    page.keyboard.press("Escape")
    tree.get_by_text(IMAGE, exact=True).first.click()
    for details in page.locator("#conversation details summary").all():
        details.click()
    for view in ("snapshots", "growth"):
        look.at(HOSTILE_AGENT, HOSTILE_SESSION, view=view)
    look.at(HOSTILE_AGENT, HOSTILE_SESSION, view="compare", **{"from": 0, "to": 9})
    expect(page.locator(".diff-entry").first).to_be_visible()
    expect(page.locator(".compared")).to_contain_text(LINK)
    assert page.evaluate("document.querySelectorAll('main img, main script').length") == 0
    assert page.evaluate("[...document.links].filter((a) => a.protocol === 'javascript:')") == []


def test_ids_of_any_characters_survive_the_address(look):
    page = look.at().page
    page.reload()
    page.get_by_role("button", name=HOSTILE_AGENT).click()
    page.locator(".session").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE_SESSION)
    page.get_by_role("button", name="First event").click()
    expect(page.locator("#event-title")).to_have_text("Event 1")
    page.wait_for_timeout(300)
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_contain_text(HOSTILE_SESSION)
    expect(page.locator("#event-title")).to_have_text("Event 1")


def test_an_address_that_is_no_address_does_no_harm(look):
    page = look.fresh().at().page
    look.expected.append("404")
    for wrong in ("#/%E0%A4%A", "#/a/b?at=x&view=nowhere", "#//", "#/?at=1", "#main"):
        page.goto(look.url + wrong)
        page.wait_for_timeout(100)


# ---------------------------------------------------------------------------------------- large


def test_of_nine_thousand_messages_only_those_near_are_fetched_and_drawn(look):
    look.requests.clear()
    page = look.fresh().at(LONG_AGENT, LONG).page
    expect(page.locator("article[data-index='8998']")).to_be_visible()
    assert page.locator("article").count() <= 150
    page.get_by_role("button", name="to the first").click()
    expect(page.locator("article[data-index='0']")).to_be_focused()
    expect(page.locator("article[data-index='0']")).to_contain_text("message number 1")
    page.locator("#conversation").evaluate("(pane) => { pane.scrollTop = pane.scrollHeight / 2; }")
    expect(page.locator("article").filter(has_text="message number 45").first).to_be_visible()
    assert page.locator("article").count() <= 1000
    limits = [re.search(r"message_limit=(\d+)", url) for url in look.requests if "/state?" in url]
    assert all(limit and int(limit[1]) <= 50 for limit in limits)
    assert len(limits) < 30
    events = [url for url in look.requests if "/events?" in url]
    assert len(events) == 1


def test_a_drag_over_ten_thousand_events_asks_for_few_of_them(look):
    page = look.at(LONG_AGENT, LONG, at=1).page
    look.requests.clear()
    page.evaluate(
        """async () => {
          const slider = document.getElementById("slider");
          for (let step = 0; step < 100; step += 1) {
            slider.value = 91 + step * 90;
            slider.dispatchEvent(new Event("input", { bubbles: true }));
            await new Promise((done) => setTimeout(done, 4));
          }
        }"""
    )
    expect(page.locator("#event-title")).to_have_text("Event 9,001")
    assert len([url for url in look.requests if "/state?" in url]) < 60


def test_what_was_asked_for_a_step_that_was_left_is_given_up(look):
    page = look.at(LONG_AGENT, LONG, at=10).page
    failed = []
    page.on("requestfailed", lambda request: failed.append(request.url))
    page.route(re.compile(r"/state\?at=500&"), lambda route: None)  # no answer comes
    number = page.get_by_role("spinbutton", name="Event number")
    with page.expect_request(re.compile(r"/state\?at=500&")):
        number.fill("500")
        number.press("Enter")
    with page.expect_event("requestfailed"):
        number.fill("600")
        number.press("Enter")
    expect(page.locator("#event-title")).to_have_text("Event 600")
    assert any("at=500&" in url for url in failed)
    page.unroute_all()


def test_going_back_to_a_step_asks_for_nothing_again(look):
    page = look.at(LONG_AGENT, LONG, at=2000).page
    page.get_by_role("button", name="Next event").click()
    expect(page.locator("#event-title")).to_have_text("Event 2,001")
    look.requests.clear()
    page.get_by_role("button", name="Previous event").click()
    expect(page.locator("#event-title")).to_have_text("Event 2,000")
    assert [url for url in look.requests if "/state?" in url or "/events" in url] == []


def test_events_beyond_the_block_are_reached_from_the_list(look):
    page = look.at(LONG_AGENT, LONG, at=4000).page
    around = page.get_by_role("region", name="Events around it")
    expect(around.locator(".event-row")).to_have_count(100)
    around.get_by_role("button", name="later events").click()
    expect(page.locator("#event-title")).to_have_text("Event 4,001")
    around.get_by_role("button", name="earlier events").click()
    expect(page.locator("#event-title")).to_have_text("Event 4,000")


def test_many_snapshots_become_bars(look):
    page = look.at(LONG_AGENT, CROWDED).page
    bars = page.get_by_role("group", name="Snapshots").get_by_role("button")
    expect(bars).to_have_count(60)
    expect(bars.nth(30)).to_have_attribute("aria-label", re.compile("2 snapshots, events 6"))
    bars.nth(30).click()
    expect(page.locator("#event-title")).to_have_text(re.compile("Event 6"))
    look.at(LONG_AGENT, CROWDED, view="snapshots")
    expect(page.locator("#view-snapshots tbody tr")).to_have_count(100)
    page.get_by_role("button", name="show more of 20").click()
    expect(page.locator("#view-snapshots tbody tr")).to_have_count(120)
