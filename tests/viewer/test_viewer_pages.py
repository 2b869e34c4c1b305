"""The pages as a whole: their requests, the API documentation, the screenshots of the docs."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from support.http_server import serve_app
from viewer.blob_sessions import code_session
from viewer.sample_sessions import AGENT, SESSION, report_session, store_with
from viewer.viewer_page import expect

PHONE = {"width": 390, "height": 844}
FOLDER = Path(__file__).parents[2] / "docs" / "images"


def test_cold_page_of_a_session_sends_at_most_12_requests(open_viewer, server):
    viewer = open_viewer(server).open(AGENT, SESSION, at=14)
    expect(viewer.page.locator(".session[aria-current=page]")).to_be_visible()
    expect(viewer.page.locator(".snapshot-mark")).to_have_count(3)
    assert len(viewer.requests) <= 12, viewer.requests
    files = [url for url in viewer.requests if "/viewer/" in url]
    assert sorted(files) == [f"{viewer.url}viewer/app.js", f"{viewer.url}viewer/style.css"]


def test_api_docs_list_every_route(viewer):
    page = viewer.page
    page.goto(f"{viewer.url}docs")
    expect(page.get_by_role("heading", name=re.compile("^Holdfast API"))).to_be_visible()
    paths = page.evaluate(
        "fetch('openapi.json').then((response) => response.json()).then((api) => api.paths)"
    )
    routes = sum(len(set(item) & {"get", "post", "delete"}) for item in paths.values())
    expect(page.locator("details.route")).to_have_count(routes)
    page.get_by_role("link", name=re.compile("POST.*restore$")).first.click()
    opened = page.locator("details.route[open]")
    expect(opened).to_have_count(1)
    expect(opened.get_by_role("row").filter(has_text="dry_run")).to_contain_text("Default: false")
    expect(opened).to_contain_text("Responses")


def test_viewer_works_below_a_path_prefix(open_viewer, browser, state_store):
    from starlette.applications import Starlette
    from starlette.routing import Mount

    from holdfast.server import create_app

    def mounted_app():
        return Starlette(routes=[Mount("/holdfast", create_app(state_store))])

    with serve_app(mounted_app) as server:
        viewer = open_viewer(server)
        viewer.url += "holdfast/"
        page = viewer.open(AGENT, SESSION, at=3).page
        expect(page.locator("article")).to_have_count(1)
        page.get_by_role("link", name="API", exact=True).click()
        expect(page.locator("details.route").first).to_be_visible()


# ----------------------------------------------------------------------------------- screenshots


@pytest.mark.skipif(not os.environ.get("HOLDFAST_SCREENSHOTS"), reason="HOLDFAST_SCREENSHOTS=1")
def test_screenshots_of_the_documentation_are_taken(open_viewer, browser):
    from holdfast.server import create_app

    state_store = store_with(lambda store: report_session(store, pause=0.4))
    with serve_app(lambda: create_app(state_store)) as server:
        viewer = open_viewer(server)
        page = viewer.page
        page.emulate_media(color_scheme="light")
        save_screenshot(viewer.open(AGENT, SESSION, at=14), "state")
        viewer.open(AGENT, SESSION, at=16, view="compare", **{"from": 11, "to": 16})
        expect(page.locator(".diff-entry").first).to_be_visible()
        save_screenshot(viewer, "compare")
        page.emulate_media(color_scheme="dark")
        save_screenshot(viewer.reset().open(AGENT, SESSION, at=12), "dark")
        save_screenshot(viewer.open(AGENT, SESSION, at=15, view="growth"), "growth")
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(PHONE)
        save_screenshot(viewer.open(AGENT, SESSION, at=14), "phone")


@pytest.mark.skipif(not os.environ.get("HOLDFAST_SCREENSHOTS"), reason="HOLDFAST_SCREENSHOTS=1")
def test_screenshots_of_files_and_images_are_taken(open_viewer, browser):
    from holdfast.server import create_app

    state_store = store_with(code_session)
    with serve_app(lambda: create_app(state_store)) as server:
        viewer = open_viewer(server)
        page = viewer.page
        page.emulate_media(color_scheme="light")
        viewer.open("coder", "ses_fix_prices", view="files")
        page.locator(".tree-key").get_by_text("prices.py", exact=True).click()
        expect(page.locator(".line-added").first).to_be_visible()
        save_screenshot(viewer, "files")
        viewer.open("coder", "ses_fix_prices")
        expect(page.get_by_role("img", name="totals.png")).to_be_visible()
        save_screenshot(viewer, "images")


def save_screenshot(viewer, name: str) -> None:
    viewer.page.wait_for_timeout(400)
    viewer.page.evaluate("document.activeElement.blur()")
    viewer.page.screenshot(path=FOLDER / f"viewer-{name}.png")
