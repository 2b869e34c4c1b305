"""A real browser on a real server. Without Chromium, the tests are skipped."""

from __future__ import annotations

import os
import shutil

import pytest

from servers.process import needs
from viewer.blob_sessions import files_session, image_session
from viewer.sample_sessions import (
    agents_and_sessions_on_two_pages,
    framework_sessions,
    hostile_session,
    long_session,
    many_snapshots,
    multi_agent_session,
    pruned_sessions,
    report_session,
    store_with,
)


@pytest.fixture(scope="package")
def browser():
    """One Chromium for these tests. Playwright's event loop must not outlive them."""
    needs("playwright.sync_api")
    from playwright.sync_api import sync_playwright

    from viewer.viewer_page import CHROMIUM_ARGUMENTS

    path = os.environ.get("HOLDFAST_CHROMIUM") or shutil.which("chromium")
    if path is None:
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def state_store():
    """A store with the sample sessions, shared by the server and the tests."""
    return store_with(
        report_session,
        hostile_session,
        long_session,
        many_snapshots,
        pruned_sessions,
        multi_agent_session,
        framework_sessions,
    )


@pytest.fixture(scope="session")
def server(state_store):
    """A server without tokens."""
    needs("uvicorn", "fastapi")
    from holdfast.server import create_app
    from support.http_server import serve_app

    with serve_app(lambda: create_app(state_store)) as running:
        yield running


@pytest.fixture(scope="session")
def blob_store():
    """A store with images, attachments and the files of a workspace."""
    return store_with(image_session, files_session)


@pytest.fixture(scope="session")
def blob_server(blob_store):
    """A server of that store."""
    needs("uvicorn", "fastapi")
    from holdfast.server import create_app
    from support.http_server import serve_app

    with serve_app(lambda: create_app(blob_store)) as running:
        yield running


@pytest.fixture(scope="module")
def server_with_many_agents():
    """A server with more agents and sessions than fit on one page."""
    needs("uvicorn", "fastapi")
    from holdfast.server import create_app
    from support.http_server import serve_app

    state_store = store_with(agents_and_sessions_on_two_pages)
    with serve_app(lambda: create_app(state_store)) as running:
        yield running


@pytest.fixture(scope="module")
def new_viewer(browser):
    """A function that opens a tab on a server."""
    from viewer.viewer_page import ViewerPage

    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(10_000)
    yield lambda running: ViewerPage(context.new_page(), f"{running.url}/")
    context.close()


@pytest.fixture
def open_viewer(new_viewer):
    """A function that opens a tab on a server for one test."""
    opened = []

    def open_tab(running):
        opened.append(new_viewer(running))
        return opened[-1]

    yield open_tab
    for each in opened:
        each.check()
        each.page.close()


@pytest.fixture(scope="module")
def shared_viewer(new_viewer, server):
    return new_viewer(server)


@pytest.fixture
def viewer(shared_viewer):
    """A tab on the server, shared by the tests of a module."""
    yield shared_viewer
    shared_viewer.check()
    shared_viewer.page.emulate_media(color_scheme="null")
    shared_viewer.page.set_viewport_size({"width": 1280, "height": 800})


@pytest.fixture(scope="module")
def shared_blob_viewer(new_viewer, blob_server):
    return new_viewer(blob_server)


@pytest.fixture
def blob_viewer(shared_blob_viewer):
    """A tab on the server with blobs, shared by the tests of a module; everything is collapsed."""
    yield shared_blob_viewer.reset()
    shared_blob_viewer.check()
