"""Two positions compared, and the growth of a session."""

from __future__ import annotations

import re

import pytest

from viewer.sample_sessions import AGENT, FORK, LONG, LONG_AGENT, SESSION
from viewer.viewer_page import box_of, expect


def picker(page, name: str):
    return page.get_by_role("group", name=name)


def entry(page, name: str):
    return page.locator(".diff-entry").filter(has=page.get_by_text(name, exact=True))


def test_two_events_are_compared_down_to_the_changed_fields(viewer):
    page = viewer.open(AGENT, SESSION, at=12, view="compare").page
    picker(page, "A, before").get_by_role("spinbutton", name="Event").fill("11")
    picker(page, "B, after").get_by_role("spinbutton", name="Event").fill("16")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("heading", name="event 11 compared with event 16")).to_be_focused()
    plan = entry(page, "state/plan")
    expect(plan).to_contain_text("~ changed")
    tokens = plan.locator(".field-row").filter(has_text="budget \u203a tokens")
    expect(tokens.locator(".field-before")).to_have_text("20000")
    expect(tokens.locator(".field-after")).to_have_text("17900")
    plan.get_by_text("full values before and after").click()
    expect(plan.get_by_role("tree", name="before")).to_be_visible()
    added = entry(page, "messages/000000000005")
    expect(added).to_contain_text("+ added")
    expect(added.locator(".before")).to_contain_text("absent")
    viewer.wait_for_address("from=11&to=16")


def test_link_opens_a_comparison(viewer):
    page = viewer.reset().open(AGENT, SESSION, view="compare", **{"from": 15, "to": 16}).page
    expect(entry(page, "state/draft")).to_contain_text("\u2212 removed")
    expect(entry(page, "state/draft").locator(".before")).to_contain_text("to be removed")


def test_snapshot_head_and_current_position_can_be_chosen_and_swapped(viewer):
    page = viewer.reset().open(AGENT, SESSION, at=16, view="compare").page
    before, after = picker(page, "A, before"), picker(page, "B, after")
    before.get_by_role("combobox", name="Position").select_option("Snapshot")
    expect(before.get_by_role("combobox", name="Snapshot")).to_contain_text("step=searched")
    after.get_by_role("combobox", name="Position").select_option("Head")
    after.get_by_role("button", name="Use current").click()
    expect(after.get_by_role("spinbutton", name="Event")).to_have_value("16")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(
        page.get_by_role("heading", name="the snapshot at event 11 compared with event 16")
    ).to_be_visible()
    page.get_by_role("button", name="Swap").click()
    expect(before.get_by_role("spinbutton", name="Event")).to_have_value("16")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(
        page.get_by_role("heading", name="event 16 compared with the snapshot at event 11")
    ).to_be_visible()


@pytest.mark.parametrize(("agent", "session"), [(AGENT, FORK), (LONG_AGENT, LONG)])
def test_positions_of_two_sessions_are_compared(viewer, agent, session):
    page = viewer.reset().open(AGENT, SESSION, at=11, view="compare").page
    picker(page, "A, before").get_by_role("button", name="Use current").click()
    after = picker(page, "B, after")
    after.get_by_role("checkbox", name="in another session").check()
    after.get_by_role("combobox", name="Agent").fill(agent)
    after.get_by_role("combobox", name="Session", exact=True).fill(session)
    after.get_by_role("combobox", name="Position").select_option("Head")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator(".comparison h3")).to_contain_text(f"of {agent} / {session}")
    if session == FORK:
        expect(page.locator(".summary")).to_have_text("No differences.")
    else:
        expect(page.locator(".summary")).to_contain_text("not all are listed")
        expect(page.locator(".diff-entry")).to_have_count(50)
        page.get_by_role("button", name=re.compile("show more")).click()
        expect(page.locator(".diff-entry")).to_have_count(100)


def test_snapshot_table_compares_a_snapshot_with_the_current_position(viewer):
    page = viewer.reset().open(AGENT, SESSION, at=16, view="snapshots").page
    page.get_by_role(
        "button", name="compare the snapshot at event 11 with the current position"
    ).click()
    expect(
        page.get_by_role("heading", name="the snapshot at event 11 compared with event 16")
    ).to_be_visible()


def test_comparison_with_a_missing_event_shows_the_error(viewer):
    page = viewer.reset().open(AGENT, SESSION, view="compare").page
    viewer.allow("404")
    picker(page, "B, after").get_by_role("spinbutton", name="Event").fill("999")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="has no event 999")).to_be_visible()


# ---------------------------------------------------------------------------------------- growth


def test_click_on_the_growth_chart_goes_to_that_event(viewer):
    page = viewer.open(LONG_AGENT, LONG, at=100, view="growth").page
    plot = page.get_by_role("img", name=re.compile("Growth of the session to 1,349 messages"))
    expect(plot).to_contain_text("Messages: 90")
    expect(plot).to_contain_text("Size: ")
    page.get_by_role("combobox", name="over").select_option("events")
    expect(plot.locator(".axis-name")).to_have_text("event")
    box = box_of(plot)
    plot.click(position={"x": 64 + (box["width"] - 80) / 2, "y": 60})
    expect(page.locator("#slider")).to_have_js_property("value", "751")
    expect(plot).to_contain_text("Messages: 67")
    assert float(plot.locator(".current").get_attribute("x1")) == pytest.approx(
        64 + (box["width"] - 80) / 2, abs=2
    )


def test_growth_table_goes_to_an_event(viewer):
    page = viewer.open(AGENT, SESSION, at=5, view="growth").page
    page.get_by_text("Show as table").click()
    table = page.get_by_role("table", name="Growth of the session")
    expect(table.get_by_role("row").last).to_contain_text("23")
    table.get_by_role("button", name="go to event 1", exact=True).click()
    expect(page.locator("#slider")).to_have_js_property("value", "1")
