"""Images, large texts and attachments: shown when they are visible, never as pages."""

from __future__ import annotations

import re

import pytest

from support.http_server import serve_app
from viewer.blob_sessions import AGENT, LONG_TEXT, SESSION, SVG
from viewer.viewer_page import expect

TOKEN = "blob-token-0123456789"
IS_LOADED = "(image) => image.complete && image.naturalWidth"


def message(page, index):
    """Return a message, scrolled into view."""
    article = page.locator(f"#conversation article[data-index='{index}']")
    article.scroll_into_view_if_needed()
    return article


def blob_requests(viewer):
    return [url for url in viewer.requests if "/blobs/" in url]


@pytest.mark.parametrize("index", [1, 2])
def test_image_of_a_provider_is_shown(blob_viewer, index):
    page = blob_viewer.open(AGENT, SESSION).page
    image = message(page, index).locator("img")
    expect(image).to_be_visible()
    page.wait_for_function(f"(image) => ({IS_LOADED})(image) === 320", arg=image.element_handle())
    assert image.get_attribute("src").startswith("blob:")
    expect(message(page, index).locator(".blob-head")).to_contain_text(re.compile(r"\d+ kB"))
    # What else the part says is not lost.
    message(page, index).get_by_text("other fields").click()
    expect(message(page, index).get_by_role("tree")).to_contain_text("type")


def test_attachments_are_shown_by_their_type(blob_viewer):
    page = blob_viewer.open(AGENT, SESSION).page
    article = message(page, 3)
    expect(article.locator(".blob-name")).to_have_text(
        ["chart.png", "page.html", "drawing.svg", "archive.bin"]
    )
    expect(article.get_by_role("img", name="chart.png")).to_be_visible()
    expect(article.get_by_role("img", name="drawing.svg")).to_be_visible()
    # A page is text, and a binary file is only offered as a download.
    expect(article.locator("pre")).to_have_text(re.compile("<html><script>window.hacked=1"))
    assert article.locator(".blob").nth(3).locator(".blob-body > *").count() == 0
    with page.expect_download() as download:
        article.get_by_role("link", name="download drawing.svg").click()
    assert download.value.suggested_filename == "drawing.svg"
    assert download.value.path().read_bytes() == SVG


def test_start_of_a_large_text_is_shown_and_all_of_it_on_request(blob_viewer):
    page = blob_viewer.open(AGENT, SESSION).page
    article = message(page, 5)
    text = article.locator("pre")
    expect(text).to_contain_text("    0 the quick brown fox")
    assert len(text.text_content()) == (1 << 16) + 1
    article.get_by_role("button", name="show all").click()
    expect(text).to_contain_text(" 4999 the quick brown fox")
    assert text.text_content() == LONG_TEXT
    expect(article.get_by_role("button", name="show all")).to_have_count(0)


def test_large_value_is_loaded_when_it_is_expanded(blob_viewer):
    page = blob_viewer.open(AGENT, SESSION).page
    values = page.get_by_role("tree", name="values at this event")
    row = values.get_by_role("treeitem").filter(has_text="raw").last
    expect(row).to_contain_text(re.compile(r"raw: \d+ kB bytes"))
    page.wait_for_load_state("networkidle")
    before = len(blob_requests(blob_viewer))
    assert all("state" not in url for url in blob_requests(blob_viewer))
    row.locator(".tree-row").first.click()
    expect(values.locator("img")).to_be_visible()
    assert len(blob_requests(blob_viewer)) > before
    # The keyboard reaches the download, and leaves the tree as it is.
    values.get_by_role("link", name=re.compile("download")).focus()
    page.keyboard.press("ArrowLeft")
    expect(values.locator("img")).to_be_visible()


def test_missing_content_is_reported_in_its_place(blob_viewer):
    page = blob_viewer.open(AGENT, SESSION).page
    blob_viewer.allow("404")
    values = page.get_by_role("tree", name="values at this event")
    values.locator(".leaf").filter(has_text="lost.txt").click()
    expect(values.locator(".blob-problem")).to_contain_text("is not stored")
    expect(page.locator("#alerts")).to_be_empty()


def test_comparison_shows_contents_of_both_sides(blob_viewer):
    page = blob_viewer.open(AGENT, SESSION, view="compare", **{"from": 8, "to": 12}).page
    blob_viewer.allow("404")  # the lost one
    entry = page.locator(".diff-entry").filter(has_text="state/chart")
    expect(entry.get_by_role("img", name="chart.png")).to_be_visible()
    notes = page.locator(".diff-entry").filter(has_text="state/notes")
    notes.scroll_into_view_if_needed()
    expect(notes.locator(".after pre")).to_contain_text("the quick brown fox")


def test_export_can_leave_out_large_values(blob_viewer):
    page = blob_viewer.open(AGENT, SESSION).page
    page.get_by_role("button", name="Export…").click()
    page.get_by_label("Leave out large values and attachments").check()
    with page.expect_download() as download:
        page.get_by_role("dialog").get_by_role("link", name="Download").click()
    assert download.value.path().stat().st_size < 20_000


def test_contents_are_loaded_with_the_token_of_the_tab(open_viewer, blob_store):
    from holdfast.server import Token, create_app

    with serve_app(lambda: create_app(blob_store, tokens=[Token(TOKEN, scope="read")])) as server:
        viewer = open_viewer(server)
        page = viewer.page
        viewer.allow("401")
        page.goto(viewer.url)
        page.evaluate("(token) => sessionStorage.setItem('holdfast.token', token)", TOKEN)
        page.reload()
        viewer.open(AGENT, SESSION)
        expect(message(page, 3).get_by_role("img", name="chart.png")).to_be_visible()
        with page.expect_download() as download:
            message(page, 3).get_by_role("link", name="download archive.bin").click()
        assert download.value.path().read_bytes() == bytes(range(256)) * 20
