"""The files of a workspace at each event, and their diffs."""

from __future__ import annotations

import re

import pytest

from viewer.blob_sessions import AGENT, FILES, NEW_CODE, SESSION
from viewer.test_accessibility import LOW_CONTRAST, PHONE
from viewer.viewer_page import expect


def open_files(viewer):
    return viewer.open(AGENT, FILES, view="files").page


def tree_of(page):
    return page.get_by_role("tree", name="files at this event")


def item(page, name):
    return tree_of(page).locator(".tree-row").filter(has_text=name).last


def test_tree_shows_folders_first_and_what_the_event_changed(blob_viewer):
    page = open_files(blob_viewer)
    expect(page.locator("#view-files .card-head").first).to_contain_text(
        "7 files, 4.2 kB; 4 changes by this event"
    )
    keys = tree_of(page).locator(".tree-key")
    expect(keys.first).to_have_text("docs/")
    expect(item(page, "agent.py").locator(".mark")).to_have_text("~ changed")
    expect(item(page, "chart.png").locator(".mark")).to_have_text("+ added")
    expect(item(page, "old.py").locator(".mark")).to_have_text("\u2212 removed")
    expect(item(page, "run.sh")).to_contain_text("executable")
    expect(item(page, "latest")).to_contain_text("→ docs/guide")
    expect(tree_of(page)).not_to_contain_text("start.md")
    item(page, "guide/").click()
    expect(tree_of(page)).to_contain_text("start.md")


def test_chosen_file_shows_its_content_and_its_changes(blob_viewer):
    page = open_files(blob_viewer)
    content = page.get_by_role("region", name="Content of the file")
    expect(content).to_contain_text("Choose a file")
    item(page, "agent.py").click()
    expect(content.locator(".blob-text")).to_have_text(NEW_CODE)
    lines = content.get_by_label("changed lines")
    expect(lines.locator(".line-removed")).to_have_text([re.compile("return 3"), re.compile("9")])
    expect(lines.locator(".line-added")).to_have_text([re.compile("return 30"), re.compile("90")])
    item(page, "chart.png").click()
    expect(content.get_by_role("img", name="chart.png")).to_be_visible()
    item(page, "old.py").click()
    expect(content).to_contain_text("removed by this event")
    expect(content.locator(".blob-text")).to_have_text("print('old')\n")
    item(page, "latest").click()
    expect(content).to_contain_text("link to docs/guide")
    item(page, "script>.txt").click()
    expect(content.locator(".blob-text")).to_have_text("new\n")


def test_files_follow_the_timeline(blob_viewer):
    page = open_files(blob_viewer)
    item(page, "agent.py").click()
    content = page.get_by_role("region", name="Content of the file")
    expect(content.locator(".blob-text")).to_contain_text("return 30")
    page.get_by_role("button", name=re.compile("snapshot at event 3")).click()
    expect(page.locator("#view-files")).to_contain_text("6 files")
    expect(content.locator(".blob-text")).to_contain_text("return 3\n")
    expect(item(page, "agent.py").locator(".mark")).to_have_text("+ added")
    page.get_by_role("button", name="First event").click()
    expect(page.locator("#view-files")).to_contain_text("No files at this event.")
    expect(content).to_contain_text("src/agent.py does not exist at this event.")


def test_file_is_chosen_with_the_keyboard(blob_viewer):
    page = open_files(blob_viewer)
    tree_of(page).get_by_role("treeitem").first.focus()
    page.keyboard.press("End")
    page.keyboard.press("Enter")
    content = page.get_by_role("region", name="Content of the file")
    expect(content.locator(".blob-text")).to_contain_text("#!/bin/sh")
    expect(content).to_contain_text("mode 755")
    expect(tree_of(page).locator("[aria-selected=true]")).to_have_count(1)


def test_tab_is_hidden_for_a_session_without_files(blob_viewer):
    page = blob_viewer.open(AGENT, SESSION).page
    expect(page.get_by_role("tab", name="State")).to_be_visible()
    expect(page.get_by_role("tab", name="Files")).to_be_hidden()
    page.get_by_role("tab", name="State").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Compare")).to_be_focused()
    blob_viewer.open(AGENT, FILES)
    expect(page.get_by_role("tab", name="Files")).to_be_visible()


def test_files_are_not_repeated_among_the_values(blob_viewer):
    page = blob_viewer.open(AGENT, FILES).page
    expect(page.locator("#values-count")).to_have_text("not changed by this event")
    expect(page.get_by_role("tree", name="values at this event")).not_to_contain_text("digest")
    expect(page.locator("#event .changes")).to_contain_text("files/src/agent.py 342 B")
    # There may be many: they are fetched only for their own view.
    states = [url for url in blob_viewer.requests if f"/{FILES}/state?" in url]
    assert "without=files" in states[-1]
    page.get_by_role("tab", name="Files").click()
    expect(tree_of(page)).to_contain_text("README.md")


def test_comparison_shows_the_lines_that_changed(blob_viewer):
    page = blob_viewer.open(AGENT, FILES, view="compare", **{"from": 3, "to": 5}).page
    entries = page.locator(".diff-entry")
    expect(entries.locator("> .diff-head code")).to_have_text(
        [
            "docs/chart.png",
            "src/<script>window.hacked=1</script>.txt",
            "src/agent.py",
            "src/old.py",
            re.compile("messages/"),
        ]
    )
    changed = entries.nth(2)
    changed.scroll_into_view_if_needed()
    expect(changed.locator(".line-added")).to_have_count(2)
    expect(changed).to_contain_text("+2 \u22122 lines")
    expect(entries.nth(0).get_by_role("img", name="chart.png")).to_be_visible()
    entries.nth(3).scroll_into_view_if_needed()
    expect(entries.nth(3).locator(".blob-text")).to_have_text("print('old')\n")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contents_and_changed_lines_have_enough_contrast(blob_viewer, scheme):
    page = open_files(blob_viewer)
    page.emulate_media(color_scheme=scheme)
    item(page, "agent.py").click()
    expect(page.locator(".line-added").first).to_be_visible()
    assert page.evaluate(LOW_CONTRAST) == []
    blob_viewer.allow("404")
    page = blob_viewer.open(AGENT, SESSION).page
    values = page.get_by_role("tree", name="values at this event")
    values.locator(".leaf").filter(has_text="lost.txt").click()
    expect(values.locator(".blob-problem")).to_be_visible()
    assert page.evaluate(LOW_CONTRAST) == []
    page.emulate_media(color_scheme="null")


def test_files_fit_on_a_phone(blob_viewer):
    page = open_files(blob_viewer)
    page.set_viewport_size(PHONE)
    item(page, "agent.py").click()
    expect(page.locator(".line-added").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    page.set_viewport_size({"width": 1280, "height": 800})
