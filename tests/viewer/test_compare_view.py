"""Two moments beside each other, the growth of a session, and its snapshots."""

from __future__ import annotations

import json
import re

import pytest

from viewer.looking import box_of, expect
from viewer.recordings import AGENT, FORK, LONG, LONG_AGENT, SESSION


def picker(page, name: str):
    return page.get_by_role("group", name=name)


def entry(page, name: str):
    return page.locator(".diff-entry").filter(has=page.get_by_text(name, exact=True))


def test_two_events_are_compared_with_before_and_after_and_the_fields_inside(look):
    page = look.at(AGENT, SESSION, at=12, view="compare").page
    picker(page, "A, before").get_by_role("spinbutton", name="Event").fill("11")
    picker(page, "B, after").get_by_role("spinbutton", name="Event").fill("16")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("heading", name="event 11 compared with event 16")).to_be_focused()
    plan = entry(page, "state/plan")
    expect(plan).to_contain_text("~ changed")
    tokens = plan.locator(".field-row").filter(has_text="budget \u203a tokens")
    expect(tokens.locator(".field-before")).to_have_text("20000")
    expect(tokens.locator(".field-after")).to_have_text("17900")
    plan.get_by_text("whole value before and after").click()
    expect(plan.get_by_role("tree", name="before")).to_be_visible()
    added = entry(page, "messages/000000000005")
    expect(added).to_contain_text("+ added")
    expect(added.locator(".before")).to_contain_text("not there")
    assert "from=11&to=16" in page.evaluate("location.hash")


def test_a_link_leads_to_a_comparison(look):
    page = look.fresh().at(AGENT, SESSION, view="compare", **{"from": 15, "to": 16}).page
    expect(entry(page, "state/draft")).to_contain_text("\u2212 removed")
    expect(entry(page, "state/draft").locator(".before")).to_contain_text("to be removed")


def test_moments_are_snapshots_or_this_moment_or_now_and_can_be_swapped(look):
    page = look.fresh().at(AGENT, SESSION, at=16, view="compare").page
    before, after = picker(page, "A, before"), picker(page, "B, after")
    before.get_by_role("combobox", name="Moment").select_option("Snapshot")
    expect(before.get_by_role("combobox", name="Snapshot")).to_contain_text("step=searched")
    after.get_by_role("combobox", name="Moment").select_option("Now")
    after.get_by_role("button", name="This moment").click()
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
def test_moments_of_two_sessions_are_compared(look, agent, session):
    page = look.fresh().at(AGENT, SESSION, at=11, view="compare").page
    picker(page, "A, before").get_by_role("button", name="This moment").click()
    after = picker(page, "B, after")
    after.get_by_role("checkbox", name="of another session").check()
    after.get_by_role("combobox", name="Agent").fill(agent)
    after.get_by_role("combobox", name="Session", exact=True).fill(session)
    after.get_by_role("combobox", name="Moment").select_option("Now")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator(".compared h3")).to_contain_text(f"of {agent} / {session}")
    if session == FORK:
        expect(page.locator(".summary")).to_have_text("Nothing differs.")
    else:
        expect(page.locator(".summary")).to_contain_text("not all are listed")
        expect(page.locator(".diff-entry")).to_have_count(50)
        page.get_by_role("button", name=re.compile("show more")).click()
        expect(page.locator(".diff-entry")).to_have_count(100)


def test_a_snapshot_is_compared_with_this_moment_from_the_table(look):
    page = look.fresh().at(AGENT, SESSION, at=16, view="snapshots").page
    page.get_by_role("button", name="compare the snapshot at event 11 with this moment").click()
    expect(
        page.get_by_role("heading", name="the snapshot at event 11 compared with event 16")
    ).to_be_visible()


def test_a_moment_that_is_not_there_is_refused_in_words(look):
    page = look.fresh().at(AGENT, SESSION, view="compare").page
    look.expected.append("404")
    picker(page, "B, after").get_by_role("spinbutton", name="Event").fill("999")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="has no event 999")).to_be_visible()


# ---------------------------------------------------------------------------------------- growth


def test_the_plot_shows_growth_and_a_click_goes_to_that_step(look):
    page = look.at(LONG_AGENT, LONG, at=100, view="growth").page
    plot = page.get_by_role("img", name=re.compile("How the session grew to 8,999 messages"))
    expect(plot).to_contain_text("Messages: 90")
    expect(plot).to_contain_text("Size: ")
    page.get_by_role("combobox", name="over").select_option("events")
    expect(plot.locator(".axis-name")).to_have_text("event")
    box = box_of(plot)
    plot.click(position={"x": 64 + (box["width"] - 80) / 2, "y": 60})
    expect(page.locator("#slider")).to_have_js_property("value", "5001")
    expect(plot).to_contain_text("Messages: 4,50")
    assert float(plot.locator(".here").get_attribute("x1")) == pytest.approx(
        64 + (box["width"] - 80) / 2, abs=2
    )


def test_a_table_says_the_same_as_the_plot(look):
    page = look.at(AGENT, SESSION, at=5, view="growth").page
    page.get_by_text("The same as a table").click()
    table = page.get_by_role("table", name="How the session grew")
    expect(table.get_by_role("row").last).to_contain_text("23")
    table.get_by_role("button", name="go to event 1", exact=True).click()
    expect(page.locator("#slider")).to_have_js_property("value", "1")


# ------------------------------------------------------------------------------------- snapshots


def test_the_table_of_snapshots_leads_to_their_steps(look):
    page = look.at(AGENT, SESSION, view="snapshots").page
    rows = page.get_by_role("region", name="Snapshots").get_by_role("row")
    expect(rows).to_have_count(4)
    expect(rows.nth(2)).to_contain_text("env=production")
    expect(rows.nth(1)).to_contain_text("unfinished tool call")
    page.get_by_role("button", name="go to the snapshot at event 11").click()
    expect(page.locator("#slider")).to_have_js_property("value", "11")


def test_a_document_is_exported_of_now_and_of_the_snapshot_looked_at(look):
    page = look.at(AGENT, SESSION, at=19).page
    page.get_by_role("button", name="Export…").click()
    dialog = page.get_by_role("dialog", name="Export this session")
    expect(dialog.get_by_role("combobox", name="What")).to_contain_text("step=read")
    with page.expect_download() as download:
        dialog.get_by_role("link", name="Download").click()
    found = json.loads(download.value.path().read_bytes())
    assert found["session_id"] == SESSION
    assert found["tags"]["step"] == "read"
    expect(dialog).to_have_count(0)
    page.get_by_role("button", name="Export…").click()
    dialog.get_by_role("combobox", name="What").select_option("as it is now")
    with page.expect_download() as download:
        dialog.get_by_role("link", name="Download").click()
    assert json.loads(download.value.path().read_bytes())["event_log_count"] == 23


def test_an_export_can_be_redacted(look):
    page = look.at(AGENT, SESSION).page
    page.get_by_role("button", name="Export…").click()
    dialog = page.get_by_role("dialog", name="Export this session")
    dialog.get_by_role("combobox", name="What").select_option("as it is now")
    dialog.get_by_role("checkbox", name="Redact secrets and personal data").check()
    with page.expect_download() as download:
        dialog.get_by_role("link", name="Download").click()
    text = download.value.path().read_text()
    assert "battery prices" in text
    assert "team@example.org" not in text
