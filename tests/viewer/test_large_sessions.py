"""What would break a lesser page: texts that are code, ten thousand events, many snapshots."""

from __future__ import annotations

import re

from viewer.looking import expect, place
from viewer.recordings import (
    AGENT,
    CROWDED,
    HOSTILE_AGENT,
    HOSTILE_SESSION,
    IMAGE,
    LINK,
    LONG,
    LONG_AGENT,
    PRUNED_AGENT,
    SCRIPT,
    SESSION,
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
    expect(page.locator("#event-title")).to_have_text("Event 4,051")
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


# ------------------------------------------------------------------------------ events around it

SEEN = """() => {
  const box = document.querySelector("ol.events").getBoundingClientRect();
  const isSeen = ({ top, bottom }) => top >= box.top - 1 && bottom <= box.bottom + 1;
  return [...document.querySelectorAll("ol.events .event-row")]
    .filter((row) => isSeen(row.getBoundingClientRect())).map((row) => Number(row.dataset.seq));
}"""


def seen_around(look, at):
    """The events around one that can be seen in the list without scrolling."""
    page = look.at(LONG_AGENT, LONG, at=at).page
    expect(page.locator(".event-row[aria-current]")).to_have_attribute("data-seq", str(at))
    return page.evaluate(SEEN)


def test_the_events_around_one_are_those_before_and_after_it(look):
    for at in (2553, 40, 2501, 2600, 5000, 9951):
        seen = seen_around(look, at)
        assert seen[0] <= at - 4, (at, seen)
        assert seen[-1] >= at + 4, (at, seen)
        assert seen == list(range(seen[0], seen[-1] + 1))


def test_the_events_around_the_first_and_the_last_one_end_with_them(look):
    assert seen_around(look, 1)[0] == 1
    assert seen_around(look, 10_000)[-1] == 10_000


def test_the_events_around_one_are_right_after_a_step_in_another_view(look):
    page = look.at(LONG_AGENT, LONG, at=2553).page
    page.get_by_role("tab", name="Snapshots").click()
    look.at(LONG_AGENT, LONG, at=7770, view="snapshots")
    page.get_by_role("tab", name="This moment").click()
    expect(page.locator(".event-row[aria-current]")).to_be_visible()
    seen = page.evaluate(SEEN)
    assert seen[0] < 7770 < seen[-1]
    expect(page.locator("#conversation article").last).to_be_in_viewport()
    look.fresh().at(AGENT, SESSION)  # and nothing of the one is asked of the other


def test_an_entry_that_an_event_adds_has_another_sign_there_than_one_that_it_changes(look):
    page = look.at(AGENT, SESSION, at=12).page

    def touched(seq):
        return page.locator(f'.event-row[data-seq="{seq}"] .touched')

    expect(touched(5)).to_have_text("+ state/plan")
    expect(touched(12)).to_have_text("~ state/plan")
    expect(touched(13)).to_have_text("+ state/draft")
    expect(touched(16)).to_have_text("\N{MINUS SIGN} state/draft")


# ---------------------------------------------------------------------------- outside of the log


def outside(look, agent, session, at):
    """Follow a link to an event that is not in the log."""
    page = look.page
    page.goto(look.url + place(agent, session, at=at))
    expect(page.locator("#outside")).to_be_visible()
    return page


def test_a_link_past_the_end_of_the_log_says_so_and_does_not_jump(look):
    page = outside(look, AGENT, SESSION, 99)
    expect(page.locator("#outside")).to_contain_text("There is no event 99 in this session.")
    expect(page.locator("#outside")).to_contain_text("has the events 1 to 23")
    expect(slider(page)).to_have_attribute("aria-valuetext", "event 99 is not in the log")
    expect(page.get_by_role("spinbutton", name="Event number")).to_have_value("99")
    for part in ("#view-moment", "#tabs", "#acts"):
        expect(page.locator(part)).to_be_hidden()
    page.wait_for_timeout(300)
    assert "at=99" in page.evaluate("location.hash")
    page.get_by_role("button", name="Go to event 23").click()
    expect(page.locator("#event-title")).to_have_text("Event 23")
    expect(page.locator("#outside")).to_be_hidden()
    page.go_back()
    expect(page.locator("#outside")).to_be_visible()


def test_a_link_to_a_pruned_event_says_where_the_log_starts(look):
    look.fresh()
    page = outside(look, PRUNED_AGENT, "ses_most", 3)
    first = int(slider(page).get_attribute("min"))
    last = int(slider(page).get_attribute("max"))
    expect(page.locator("#outside")).to_contain_text("Event 3 was pruned.")
    expect(page.locator("#outside")).to_contain_text(f"has the events {first} to {last}")
    page.get_by_role("button", name="Next event").click()
    expect(page.locator("#event-title")).to_have_text(f"Event {first}")


def test_a_link_to_what_is_not_an_event_number_says_so(look):
    look.fresh()
    for text in ("abc", "-3", "9" * 30):
        page = outside(look, AGENT, SESSION, text)
        expect(page.locator("#outside")).to_contain_text(f"“{text}” is not an event number.")
    page = outside(look, AGENT, SESSION, 0)
    expect(page.locator("#outside")).to_contain_text("There is no event 0 in this session.")


def test_a_typed_number_outside_of_the_log_says_so_too(look):
    page = look.at(AGENT, SESSION, at=5).page
    number = page.get_by_role("spinbutton", name="Event number")
    number.fill("5000")
    number.press("Enter")
    expect(page.locator("#outside")).to_contain_text("There is no event 5,000 in this session.")
    page.get_by_role("button", name="Previous event").click()
    expect(page.locator("#event-title")).to_have_text("Event 23")
