"""Looking at a session: the lists, the line of time, the conversation, the values, the events."""

from __future__ import annotations

import re

from viewer.looking import box_of, expect
from viewer.recordings import AGENT, FORK, LONG_AGENT, PRUNED_AGENT, SESSION, SEVERAL


def slider(page):
    return page.get_by_role("slider")


def told(page, text: str) -> None:
    """Wait until the slider says where it is."""
    expect(slider(page)).to_have_attribute("aria-valuetext", re.compile(text))


# ----------------------------------------------------------------------------------------- lists


def test_agents_and_sessions_are_listed_and_a_click_opens_one(look):
    page = look.at().page
    side = page.get_by_role("navigation", name="Agents and sessions")
    side.get_by_role("button", name=AGENT).click()
    side.get_by_role("link", name=re.compile(SESSION)).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(f"{AGENT} / {SESSION}")
    assert page.evaluate("location.hash") == f"#/{AGENT}/{SESSION}"
    expect(side.get_by_role("link", name=re.compile(SESSION))).to_have_attribute(
        "aria-current", "page"
    )


def test_agents_are_found_by_a_part_of_their_id_in_any_case(look):
    page = look.at().page
    page.get_by_role("searchbox", name="Search agents").fill("LOAD")
    expect(page.locator(".agent")).to_have_text([LONG_AGENT])
    page.get_by_role("searchbox", name="Search agents").fill("nobody at all")
    expect(page.get_by_text("No agent has “nobody at all” in its id.")).to_be_visible()
    page.get_by_role("searchbox", name="Search agents").fill("")
    expect(page.locator(".agent").filter(has_text=AGENT)).to_be_visible()


def test_sessions_are_found_by_a_part_of_their_id(look):
    page = look.fresh().at(AGENT).page
    # A fork comes after what it was made of, until it is written to.
    expect(page.locator(".session-id")).to_have_text([SESSION, FORK])
    page.get_by_role("searchbox", name="Search sessions").fill("what_IF")
    expect(page.locator(".session-id")).to_have_text([FORK])


def test_long_lists_come_by_pages(open_look, crowd):
    page = open_look(crowd).at().page
    expect(page.locator(".agent")).to_have_count(50)
    page.get_by_role("button", name="more", exact=True).click()
    expect(page.locator(".agent")).to_have_count(61)
    page.get_by_role("button", name="busy").click()
    expect(page.locator(".session-id")).to_have_count(50)
    page.locator(".sessions").get_by_role("button", name="more").click()
    expect(page.locator(".session-id")).to_have_count(55)


def test_a_link_leads_to_a_moment_and_back_and_forward_lead_through_the_past(look):
    page = look.at(AGENT, SESSION, at=5).page
    told(page, "event 5 of 23")
    page.get_by_role("button", name=re.compile("snapshot at event 11")).click()
    told(page, "event 11 of 23")
    assert "at=11" in page.evaluate("location.hash")
    page.go_back()
    told(page, "event 5 of 23")
    page.go_forward()
    told(page, "event 11 of 23")


# -------------------------------------------------------------------------------------- timeline


def test_the_slider_says_which_event_it_stands_at_of_what_type_and_when(look):
    page = look.at(AGENT, SESSION, at=12).page
    told(page, r"^event 12 of 23, state\.set, \d\d:\d\d:\d\d$")
    expect(page.locator(".what code")).to_have_text("state.set")


def test_keys_go_over_every_event(look):
    page = look.at(AGENT, SESSION, at=12).page
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
        told(page, f"event {seq} of 23, ")
    slider(page).focus()
    for key, seq in [("Home", 1), ("ArrowRight", 2), ("PageUp", 12), ("PageDown", 2), ("End", 23)]:
        page.keyboard.press(key)
        told(page, f"event {seq} of 23, ")


def test_the_slider_can_be_dragged(look):
    page = look.at(AGENT, SESSION).page
    box = box_of(slider(page))
    page.mouse.move(box["x"] + box["width"] - 9, box["y"] + 12)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 12, steps=8)
    page.mouse.up()
    told(page, "event 12 of 23, state.set")
    expect(page.locator("#event-title")).to_have_text("Event 12")


def test_buttons_step_and_a_number_jumps(look):
    page = look.at(AGENT, SESSION, at=12).page
    for name, seq in [("Next", 13), ("Previous", 12), ("First", 1), ("Last", 23)]:
        page.get_by_role("button", name=f"{name} event").click()
        told(page, f"event {seq} of 23, ")
    number = page.get_by_role("spinbutton", name="Event number")
    number.fill("9")
    number.press("Enter")
    told(page, "event 9 of 23, ")


def test_play_goes_on_by_itself_until_it_is_paused(look):
    page = look.at(AGENT, SESSION, at=2).page
    speed = page.get_by_role("combobox", name="Speed")
    speed.select_option("4/s")
    page.get_by_role("button", name="Play").click()
    told(page, r"event ([4-9]|1\d) of 23, ")
    page.get_by_role("button", name="Pause").click()
    stopped = slider(page).input_value()
    page.wait_for_timeout(300)
    assert slider(page).input_value() == stopped
    speed.select_option("20/s")
    page.get_by_role("button", name="Play").click()
    told(page, "event 23 of 23, ")
    expect(page.get_by_role("button", name="Play")).to_be_visible()


def test_snapshots_are_marked_with_their_tags_and_a_click_goes_there(look):
    page = look.at(AGENT, SESSION).page
    marks = page.get_by_role("group", name="Snapshots").get_by_role("button")
    expect(marks).to_have_count(3)
    expect(marks.nth(0)).to_contain_text("step=searched")
    marks.nth(1).click()
    told(page, "event 19 of 23, ")


# ---------------------------------------------------------------------------------- conversation


def message(page, number: int):
    return page.locator(f"article[data-index='{number}']")


def test_the_conversation_is_shown_as_it_was_at_the_step(look):
    page = look.at(AGENT, SESSION, at=4).page
    expect(page.locator("#conversation article")).to_have_count(2)
    expect(message(page, 0)).to_contain_text("System")
    expect(message(page, 1)).to_contain_text("User")
    expect(message(page, 1)).to_contain_text("Compare the two reports")
    page.keyboard.press("End")
    expect(page.locator("#conversation article")).to_have_count(11)


def test_what_a_step_adds_is_marked_in_words(look):
    page = look.at(AGENT, SESSION, at=4).page
    expect(message(page, 1)).to_contain_text("+ added at this step")
    page.keyboard.press("ArrowRight")
    told(page, "event 5")
    expect(message(page, 1)).not_to_contain_text("added at this step")


def test_tool_calls_and_their_results_lead_to_each_other(look):
    page = look.at(AGENT, SESSION).page
    expect(message(page, 2)).to_contain_text("search_reports")
    expect(message(page, 2)).to_contain_text("battery prices 2026")
    message(page, 2).get_by_role("button", name="result in #4").click()
    expect(message(page, 4)).to_be_focused()
    expect(message(page, 4)).to_contain_text("result of search_reports")
    message(page, 4).get_by_role("button", name="called in #2").click()
    expect(message(page, 2)).to_be_focused()


def test_content_blocks_are_read_like_tool_calls(look):
    page = look.at(AGENT, SESSION).page
    expect(message(page, 5)).to_contain_text("The 2026 report is not indexed.")
    expect(message(page, 5)).to_contain_text("read_file")
    expect(message(page, 5).get_by_text("thinking", exact=True)).to_be_visible()
    expect(message(page, 6)).to_contain_text("result of read_file")
    expect(message(page, 6)).to_contain_text("Tool")


def test_a_call_without_a_result_is_said_to_have_none(look):
    page = look.at(AGENT, SESSION).page
    expect(message(page, 10)).to_contain_text("no result yet")
    expect(page.locator("#facts")).to_contain_text("1 tool call without a result: send_mail")


def test_a_long_text_is_folded_and_shown_in_full_on_demand(look):
    page = look.at(AGENT, SESSION).page
    expect(message(page, 6)).not_to_contain_text("The 59th finding")
    whole = message(page, 6).get_by_role("button", name=re.compile("show all"))
    whole.click()
    expect(message(page, 6)).to_contain_text("The 59th finding")
    message(page, 6).get_by_role("button", name="show less").click()
    expect(message(page, 6)).not_to_contain_text("The 59th finding")


def test_a_message_of_an_unknown_shape_is_a_tree(look):
    page = look.at(AGENT, SESSION).page
    tree = message(page, 7).get_by_role("tree")
    expect(tree).to_contain_text("handoff")
    expect(tree.get_by_role("treeitem")).to_have_count(3)


# ---------------------------------------------------------------------------------------- values


def values(page):
    return page.get_by_role("tree", name="values at this step")


def test_changes_inside_a_value_are_marked_and_unfolded(look):
    page = look.fresh().at(AGENT, SESSION, at=12).page
    tree = values(page)
    expect(
        tree.get_by_role("treeitem", name=re.compile("^tokens: 17900 ~ changed"))
    ).to_be_visible()
    expect(tree.get_by_role("treeitem", name=re.compile("^note: .*\\+ added"))).to_be_visible()
    expect(tree.get_by_role("treeitem", name=re.compile("^plan: .*~ changed"))).to_be_visible()
    expect(page.locator("#values-count")).to_have_text("1 change at this step")


def test_what_a_step_removes_is_still_shown_as_removed(look):
    page = look.fresh().at(AGENT, SESSION, at=16).page
    gone = values(page).get_by_role("treeitem", name=re.compile("^draft: .*\u2212 removed"))
    expect(gone).to_be_visible()
    page.keyboard.press("ArrowRight")
    told(page, "event 17")
    expect(gone).to_have_count(0)


def test_other_namespaces_and_the_session_itself_are_in_the_tree(look):
    page = look.fresh().at(AGENT, SESSION, at=17).page
    tree = values(page)
    expect(tree.get_by_role("treeitem", name=re.compile("^memory"))).to_be_visible()
    expect(
        tree.get_by_role("treeitem", name=re.compile("^seen: 2026-03-01T09:30"))
    ).to_contain_text("datetime")
    tree.get_by_text("session", exact=True).click()
    expect(tree.get_by_role("treeitem", name=re.compile('^status: "running"'))).to_be_visible()


def test_large_collections_unfold_by_the_hundred(look):
    page = look.fresh().at(AGENT, SESSION, at=19).page
    tree = values(page)
    tree.get_by_text("prices", exact=True).click()
    expect(tree.get_by_role("treeitem", name=re.compile(r"^\d{4}: "))).to_have_count(100)
    tree.get_by_text("show 100 more of 150").click()
    expect(tree.get_by_role("treeitem", name=re.compile(r"^\d{4}: "))).to_have_count(200)
    tree.get_by_text("show 50 more of 50").click()
    expect(tree.get_by_role("treeitem", name=re.compile(r"^\d{4}: "))).to_have_count(250)


def test_the_tree_is_used_by_keys_alone(look):
    page = look.fresh().at(AGENT, SESSION, at=20).page
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
    told(page, "event 20 of 23, ")  # the keys of a tree move nothing else


# ---------------------------------------------------------------------------------------- events


def test_the_event_is_shown_with_its_data_and_its_changes(look):
    page = look.at(AGENT, SESSION, at=6).page
    card = page.get_by_role("region", name="Event 6")
    expect(card).to_contain_text("llm.called")
    expect(card.get_by_role("tree", name="data of the event")).to_contain_text("input_tokens: 412")
    page.get_by_role("button", name="Previous event").click()
    card = page.get_by_role("region", name="Event 5")
    expect(card).to_contain_text("+ added state/plan")


def test_the_events_around_are_listed_and_a_click_goes_there(look):
    page = look.at(AGENT, SESSION, at=6).page
    around = page.get_by_role("region", name="Events around it")
    expect(around.locator("[aria-current=step]")).to_contain_text("llm.called")
    around.get_by_role("button", name=re.compile("^8 tool.called")).click()
    told(page, "event 8 of 23, tool.called")
    expect(around.locator("[aria-current=step]")).to_contain_text("tool.called")


# ------------------------------------------------------------------------- sessions of other kinds


def test_of_a_pruned_session_what_is_left_is_shown(look):
    page = look.at(PRUNED_AGENT, "ses_most", at=8).page
    expect(page.locator("#facts")).to_contain_text("pruned before event 8")
    expect(page.get_by_role("button", name="First event")).to_have_attribute(
        "aria-disabled", "true"
    )
    expect(page.locator("#conversation")).to_contain_text("still here")
    look.at(PRUNED_AGENT, "ses_most")
    expect(
        values(page).get_by_role("treeitem", name=re.compile("^turn: 7 ~ changed"))
    ).to_be_visible()
    page.goto(look.url + f"#/{PRUNED_AGENT}/ses_all")
    expect(page.locator("#event .type")).to_have_text("pruned")
    expect(values(page).get_by_role("treeitem", name=re.compile("^turn: 5"))).to_be_visible()
    page.get_by_role("tab", name="Growth").click()
    expect(page.get_by_text("No events are left to plot.")).to_be_visible()


def test_in_a_session_of_several_agents_each_message_has_its_agent(look):
    page = look.at().page
    page.get_by_role("button", name=SEVERAL, exact=True).click()
    page.get_by_role("link", name=re.compile("ses_team.*several agents")).click()
    expect(message(page, 0)).to_contain_text("planner")
    expect(message(page, 1)).to_contain_text("writer")
    assert "scope=multi_agent" in page.evaluate("location.hash")
    expect(values(page).get_by_role("treeitem", name=re.compile("^state.writer"))).to_be_visible()
