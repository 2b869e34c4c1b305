"""The sidebar, the timeline, the conversation, the values and the events of a session."""

from __future__ import annotations

import re

import pytest

from holdfast import BlockingSession
from viewer.sample_sessions import (
    AGENT,
    FORK,
    FRAMEWORK_MESSAGES,
    FRAMEWORKS,
    LONG_AGENT,
    MULTI_AGENT,
    PRUNED_AGENT,
    SESSION,
)
from viewer.viewer_page import box_of, expect


def slider(page):
    return page.get_by_role("slider")


def expect_position(page, text: str) -> None:
    """Wait until the slider describes its position so."""
    expect(slider(page)).to_have_attribute("aria-valuetext", re.compile(text))


# --------------------------------------------------------------------------------------- sidebar


def test_click_on_a_listed_session_opens_it(viewer):
    page = viewer.open().page
    side = page.get_by_role("navigation", name="Agents and sessions")
    side.get_by_role("button", name=AGENT).click()
    side.get_by_role("link", name=re.compile(SESSION)).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"{AGENT} / {SESSION}")
    assert page.evaluate("location.hash") == f"#/{AGENT}/{SESSION}"
    expect(side.get_by_role("link", name=re.compile(SESSION))).to_have_attribute(
        "aria-current", "page"
    )


def test_agents_are_searched_by_part_of_their_id_ignoring_case(viewer):
    page = viewer.open().page
    page.get_by_role("searchbox", name="Search agents").fill("LOAD")
    expect(page.locator(".agent")).to_have_text([LONG_AGENT])
    page.get_by_role("searchbox", name="Search agents").fill("unknown")
    expect(page.get_by_text("No agent id contains “unknown”.")).to_be_visible()
    page.get_by_role("searchbox", name="Search agents").fill("")
    expect(page.locator(".agent").filter(has_text=AGENT)).to_be_visible()


def test_sessions_are_searched_by_part_of_their_id(viewer):
    page = viewer.reset().open(AGENT).page
    expect(page.locator(".session-id")).to_have_text([SESSION, FORK])
    page.get_by_role("searchbox", name="Search sessions").fill("what_IF")
    expect(page.locator(".session-id")).to_have_text([FORK])


def test_long_lists_are_loaded_page_by_page(open_viewer, server_with_many_agents):
    page = open_viewer(server_with_many_agents).open().page
    expect(page.locator(".agent")).to_have_count(50)
    page.get_by_role("button", name="more", exact=True).click()
    expect(page.locator(".agent")).to_have_count(53)
    page.get_by_role("button", name="busy").click()
    expect(page.locator(".session-id")).to_have_count(50)
    page.locator(".sessions").get_by_role("button", name="more").click()
    expect(page.locator(".session-id")).to_have_count(52)


def test_link_opens_a_position_and_back_and_forward_work(viewer):
    page = viewer.open(AGENT, SESSION, at=5).page
    expect_position(page, "event 5 of 23")
    page.get_by_role("button", name=re.compile("snapshot at event 11")).click()
    expect_position(page, "event 11 of 23")
    assert "at=11" in page.evaluate("location.hash")
    page.go_back()
    expect_position(page, "event 5 of 23")
    page.go_forward()
    expect_position(page, "event 11 of 23")


# -------------------------------------------------------------------------------------- timeline


def test_slider_describes_its_event_with_type_and_time(viewer):
    page = viewer.open(AGENT, SESSION, at=12).page
    expect_position(page, r"^event 12 of 23, state\.set, \d\d:\d\d:\d\d$")
    expect(page.locator(".event-info code")).to_have_text("state.set")


def test_keys_step_through_the_events(viewer):
    page = viewer.open(AGENT, SESSION, at=12).page
    for key, seq in [
        ("ArrowRight", 13),
        ("ArrowLeft", 12),
        ("PageDown", 2),
        ("PageUp", 12),
        ("Home", 1),
        ("ArrowLeft", 1),
        ("End", 23),
        ("ArrowRight", 23),
    ]:
        page.keyboard.press(key)
        expect_position(page, f"event {seq} of 23, ")
    slider(page).focus()
    for key, seq in [("Home", 1), ("ArrowRight", 2), ("PageUp", 12), ("PageDown", 2), ("End", 23)]:
        page.keyboard.press(key)
        expect_position(page, f"event {seq} of 23, ")


def test_slider_can_be_dragged(viewer):
    page = viewer.open(AGENT, SESSION).page
    box = box_of(slider(page))
    page.mouse.move(box["x"] + box["width"] - 9, box["y"] + 12)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 12, steps=8)
    page.mouse.up()
    expect_position(page, "event 12 of 23, state.set")
    expect(page.locator("#event-title")).to_have_text("Event 12")


def test_buttons_step_and_the_number_field_jumps(viewer):
    page = viewer.open(AGENT, SESSION, at=12).page
    for name, seq in [("Next", 13), ("Previous", 12), ("First", 1), ("Last", 23)]:
        page.get_by_role("button", name=f"{name} event").click()
        expect_position(page, f"event {seq} of 23, ")
    number = page.get_by_role("spinbutton", name="Event number")
    number.fill("9")
    number.press("Enter")
    expect_position(page, "event 9 of 23, ")


def test_play_steps_until_it_is_paused_or_reaches_the_head(viewer):
    page = viewer.open(AGENT, SESSION, at=2).page
    speed = page.get_by_role("combobox", name="Speed")
    speed.select_option("4/s")
    page.get_by_role("button", name="Play").click()
    expect_position(page, r"event ([4-9]|1\d) of 23, ")
    page.get_by_role("button", name="Pause").click()
    stopped = slider(page).input_value()
    page.wait_for_timeout(300)
    assert slider(page).input_value() == stopped
    speed.select_option("20/s")
    page.get_by_role("button", name="Play").click()
    expect_position(page, "event 23 of 23, ")
    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_click_on_a_snapshot_mark_goes_to_its_event(viewer):
    page = viewer.open(AGENT, SESSION).page
    marks = page.get_by_role("group", name="Snapshots").get_by_role("button")
    expect(marks).to_have_count(3)
    expect(marks.nth(0)).to_contain_text("step=searched")
    marks.nth(1).click()
    expect_position(page, "event 19 of 23, ")


# ---------------------------------------------------------------------------------- conversation


def message(page, number: int):
    return page.locator(f"article[data-index='{number}']")


def test_conversation_is_shown_as_it_was_at_the_event(viewer):
    page = viewer.open(AGENT, SESSION, at=4).page
    expect(page.locator("#conversation article")).to_have_count(2)
    expect(message(page, 0)).to_contain_text("System")
    expect(message(page, 1)).to_contain_text("User")
    expect(message(page, 1)).to_contain_text("Compare the two reports")
    page.keyboard.press("End")
    expect(page.locator("#conversation article")).to_have_count(11)


def test_added_message_is_marked_with_words(viewer):
    page = viewer.open(AGENT, SESSION, at=4).page
    expect(message(page, 1)).to_contain_text("+ added by this event")
    page.keyboard.press("ArrowRight")
    expect_position(page, "event 5")
    expect(message(page, 1)).not_to_contain_text("added by this event")


def test_tool_calls_and_results_link_to_each_other(viewer):
    page = viewer.open(AGENT, SESSION).page
    expect(message(page, 2)).to_contain_text("search_reports")
    expect(message(page, 2)).to_contain_text("battery prices 2026")
    message(page, 2).get_by_role("button", name="result in #4").click()
    expect(message(page, 4)).to_be_focused()
    expect(message(page, 4)).to_contain_text("result of search_reports")
    message(page, 4).get_by_role("button", name="called in #2").click()
    expect(message(page, 2)).to_be_focused()


def test_anthropic_content_blocks_are_shown_as_text_and_tool_calls(viewer):
    page = viewer.open(AGENT, SESSION).page
    expect(message(page, 5)).to_contain_text("The 2026 report is not indexed.")
    expect(message(page, 5)).to_contain_text("read_file")
    expect(message(page, 5).get_by_text("thinking", exact=True)).to_be_visible()
    expect(message(page, 6)).to_contain_text("result of read_file")
    expect(message(page, 6)).to_contain_text("Tool")


@pytest.mark.parametrize("framework", FRAMEWORK_MESSAGES)
def test_messages_of_a_framework_are_shown_as_text_and_tool_calls(viewer, framework):
    page = viewer.open(FRAMEWORKS, framework).page
    texts = ("Is it open?", "calls look_up", "from nine", "At nine.")
    for number, (sender, text) in enumerate(
        zip(("User", "Assistant", "Tool", "Assistant"), texts, strict=True)
    ):
        expect(message(page, number).locator(".sender")).to_have_text(sender)
        expect(message(page, number)).to_contain_text(text)
    expect(message(page, 2)).to_contain_text("result of look_up")
    expect(message(page, 1).get_by_role("button", name="result in #2")).to_be_visible()
    expect(page.get_by_role("tree", name="message in an unknown format")).to_have_count(0)


def test_a_message_of_a2a_is_shown_with_its_role(viewer, state_store):
    with BlockingSession.open(state_store, agent_id=FRAMEWORKS, session_id="a2a") as session:
        session.append_message({"role": "ROLE_AGENT", "parts": [{"text": "Done."}]})
    page = viewer.open(FRAMEWORKS, "a2a").page
    expect(message(page, 0).locator(".sender")).to_have_text("Assistant")
    expect(message(page, 0)).to_contain_text("Done.")


def test_tool_call_without_a_result_is_labelled(viewer):
    page = viewer.open(AGENT, SESSION).page
    expect(message(page, 10)).to_contain_text("no result yet")
    expect(page.locator("#facts")).to_contain_text("1 tool call without a result: send_mail")


def test_long_text_is_folded_and_can_be_shown_in_full(viewer):
    page = viewer.open(AGENT, SESSION).page
    expect(message(page, 6)).not_to_contain_text("The 59th finding")
    message(page, 6).get_by_role("button", name=re.compile("show all")).click()
    expect(message(page, 6)).to_contain_text("The 59th finding")
    message(page, 6).get_by_role("button", name="show less").click()
    expect(message(page, 6)).not_to_contain_text("The 59th finding")


def test_message_in_an_unknown_format_is_shown_as_a_tree(viewer):
    page = viewer.open(AGENT, SESSION).page
    tree = message(page, 7).get_by_role("tree")
    expect(tree).to_contain_text("handoff")
    expect(tree.get_by_role("treeitem")).to_have_count(3)


# ---------------------------------------------------------------------------------------- values


def values(page):
    return page.get_by_role("tree", name="values at this event")


def test_changes_inside_a_value_are_marked_and_expanded(viewer):
    page = viewer.reset().open(AGENT, SESSION, at=12).page
    tree = values(page)
    expect(
        tree.get_by_role("treeitem", name=re.compile("^tokens: 17900 ~ changed"))
    ).to_be_visible()
    expect(tree.get_by_role("treeitem", name=re.compile("^note: .*\\+ added"))).to_be_visible()
    expect(tree.get_by_role("treeitem", name=re.compile("^plan: .*~ changed"))).to_be_visible()
    expect(page.locator("#values-count")).to_have_text("1 change by this event")


def test_removed_value_is_shown_at_the_event_that_removed_it(viewer):
    page = viewer.reset().open(AGENT, SESSION, at=16).page
    removed = values(page).get_by_role("treeitem", name=re.compile("^draft: .*\u2212 removed"))
    expect(removed).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect_position(page, "event 17")
    expect(removed).to_have_count(0)


def test_tree_shows_other_namespaces_and_the_session(viewer):
    page = viewer.reset().open(AGENT, SESSION, at=17).page
    tree = values(page)
    expect(tree.get_by_role("treeitem", name=re.compile("^memory"))).to_be_visible()
    expect(
        tree.get_by_role("treeitem", name=re.compile("^seen: 2026-03-01T09:30"))
    ).to_contain_text("datetime")
    tree.get_by_text("session", exact=True).click()
    expect(tree.get_by_role("treeitem", name=re.compile('^status: "running"'))).to_be_visible()


def test_large_collections_expand_a_hundred_items_at_a_time(viewer):
    page = viewer.reset().open(AGENT, SESSION, at=19).page
    tree = values(page)
    tree.get_by_text("prices", exact=True).click()
    expect(tree.get_by_role("treeitem", name=re.compile(r"^\d{4}: "))).to_have_count(100)
    tree.get_by_text("show 100 more of 150").click()
    expect(tree.get_by_role("treeitem", name=re.compile(r"^\d{4}: "))).to_have_count(200)
    tree.get_by_text("show 50 more of 50").click()
    expect(tree.get_by_role("treeitem", name=re.compile(r"^\d{4}: "))).to_have_count(250)


def test_tree_can_be_used_by_keys_alone(viewer):
    page = viewer.reset().open(AGENT, SESSION, at=20).page
    tree = values(page)
    focused = page.locator("[role=treeitem]:focus > .tree-row")
    tree.get_by_role("treeitem").first.focus()
    page.keyboard.press("ArrowDown")
    expect(focused).to_contain_text("plan")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(focused).to_contain_text("steps")
    page.keyboard.press("ArrowLeft")
    expect(focused).to_contain_text("plan")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("[role=treeitem]:focus")).to_have_attribute("aria-expanded", "false")
    page.keyboard.type("so")
    expect(focused).to_contain_text("sources")
    page.keyboard.press("Enter")
    expect(page.locator("[role=treeitem]:focus")).to_have_attribute("aria-expanded", "true")
    page.keyboard.press("End")
    expect(focused).to_contain_text("session")
    page.keyboard.press("*")
    page.keyboard.press("Home")
    expect(focused).to_contain_text("values")
    expect_position(page, "event 20 of 23, ")  # the keys of the tree did not move the timeline


# ---------------------------------------------------------------------------------------- events


def test_event_is_shown_with_its_data_and_changes(viewer):
    page = viewer.open(AGENT, SESSION, at=6).page
    card = page.get_by_role("region", name="Event 6")
    expect(card).to_contain_text("llm.called")
    expect(card.get_by_role("tree", name="data of the event")).to_contain_text("input_tokens: 412")
    page.get_by_role("button", name="Previous event").click()
    card = page.get_by_role("region", name="Event 5")
    expect(card).to_contain_text("+ added state/plan")


def test_click_on_a_nearby_event_goes_there(viewer):
    page = viewer.open(AGENT, SESSION, at=6).page
    nearby = page.get_by_role("region", name="Nearby events")
    expect(nearby.locator("[aria-current=step]")).to_contain_text("llm.called")
    nearby.get_by_role("button", name=re.compile("^8 tool.called")).click()
    expect_position(page, "event 8 of 23, tool.called")
    expect(nearby.locator("[aria-current=step]")).to_contain_text("tool.called")


# ----------------------------------------------------------------------- other kinds of sessions


def test_pruned_session_shows_what_is_kept(viewer):
    page = viewer.open(PRUNED_AGENT, "ses_most", at=8).page
    expect(page.locator("#facts")).to_contain_text("pruned before event 8")
    expect(page.get_by_role("button", name="First event")).to_have_attribute(
        "aria-disabled", "true"
    )
    expect(page.locator("#conversation")).to_contain_text("still here")
    viewer.open(PRUNED_AGENT, "ses_most")
    expect(
        values(page).get_by_role("treeitem", name=re.compile("^turn: 7 ~ changed"))
    ).to_be_visible()
    page.goto(viewer.url + f"#/{PRUNED_AGENT}/ses_all")
    expect(page.locator("#event .type")).to_have_text("pruned")
    expect(values(page).get_by_role("treeitem", name=re.compile("^turn: 5"))).to_be_visible()
    page.get_by_role("tab", name="Growth").click()
    expect(page.get_by_text("All events were pruned.")).to_be_visible()


def test_messages_of_a_multi_agent_session_name_their_agent(viewer):
    page = viewer.open().page
    page.get_by_role("button", name=MULTI_AGENT, exact=True).click()
    page.get_by_role("link", name=re.compile("ses_team.*multi-agent")).click()
    expect(message(page, 0)).to_contain_text("planner")
    expect(message(page, 1)).to_contain_text("writer")
    assert "scope=multi_agent" in page.evaluate("location.hash")
    expect(values(page).get_by_role("treeitem", name=re.compile("^state.writer"))).to_be_visible()
