"""A real browser on a real server; a visible skip where the system has no Chromium."""

from __future__ import annotations

import os
import shutil

import pytest

from servers.process import needs
from viewer.recordings import (
    crowded,
    hostile,
    long,
    many_agents,
    pruned,
    recorded,
    several,
    store_with,
)


@pytest.fixture(scope="module")
def browser():
    """Chromium, one a module."""
    needs("playwright.sync_api")
    from playwright.sync_api import sync_playwright

    from viewer.looking import ARGUMENTS

    found = os.environ.get("HOLDFAST_CHROMIUM") or shutil.which("chromium")
    if found is None:
        # No wheel brings it, and not everybody may install it: make test says so.
        pytest.skip("Chromium is not installed: apt-get install chromium")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def state_store():
    """A store with all recordings, which the server and the tests share."""
    return store_with(recorded, hostile, long, crowded, pruned, several)


@pytest.fixture(scope="session")
def server(state_store):
    """A server that wants no token."""
    needs("uvicorn", "fastapi")
    from holdfast.server import create_app
    from support.http_server import served

    with served(lambda: create_app(state_store)) as running:
        yield running


@pytest.fixture(scope="module")
def crowd():
    """A server with more agents and sessions than one page has."""
    needs("uvicorn", "fastapi")
    from holdfast.server import create_app
    from support.http_server import served

    with served(lambda: create_app(store_with(many_agents))) as running:
        yield running


@pytest.fixture(scope="module")
def new_look(browser):
    """A function that opens a tab on a server."""
    from viewer.looking import Look

    context = browser.new_context(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
    context.set_default_timeout(10_000)
    yield lambda running: Look(context.new_page(), f"{running.url}/")
    context.close()


@pytest.fixture
def open_look(new_look):
    """The same for one test, at the end of which every tab is checked and closed."""
    opened = []

    def look_at(running):
        opened.append(new_look(running))
        return opened[-1]

    yield look_at
    for each in opened:
        each.check()
        each.page.close()


@pytest.fixture(scope="module")
def one_page(new_look, server):
    return new_look(server)


@pytest.fixture
def look(one_page):
    """A tab on the server, the same for all tests of a module, as one who looks has it."""
    yield one_page
    one_page.check()
    one_page.page.emulate_media(color_scheme="null")
    one_page.page.set_viewport_size({"width": 1280, "height": 800})
