"""A tab of a browser on the viewer. What the browser complains about fails the test."""

from __future__ import annotations

from urllib.parse import quote, urlencode

CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


IS_SHOWN = """([agent, session, at]) => {
  const [slider, title] = ["slider", "event-title"].map((id) => document.getElementById(id));
  const name = document.getElementById("session-title")?.parentElement.textContent;
  if (!title || document.getElementById("session").hidden) return false;
  const seq = at ?? slider.max;
  return name === `${agent} / ${session}` && slider.value == seq
    && title.dataset.seq == seq && slider.getAttribute("aria-valuetext").split(", ").length > 2;
}"""

IS_IDLE = "() => !document.querySelector('[aria-busy=true]')"


def expect(locator):
    """Call Playwright's ``expect`` after the page has become idle.

    Playwright retries at growing intervals; waiting for the page first is faster.
    """
    from playwright.sync_api import expect as playwright_expect  # it may not be installed

    locator.page.wait_for_function(IS_IDLE)
    return playwright_expect(locator)


def box_of(locator):
    """Return the position and size of an element once it is attached: a redraw may replace it."""
    for _ in range(200):
        if box := locator.bounding_box():
            return box
        locator.page.wait_for_timeout(20)
    raise AssertionError(f"{locator} is not attached")


def route(agent: str = "", session: str = "", **options: object) -> str:
    """Return the hash of the address of a session."""
    path = "/".join(quote(each, safe="") for each in (agent, session) if each)
    query = urlencode({name: str(value) for name, value in options.items()})
    return f"#/{path}" + (f"?{query}" if query else "")


class ViewerPage:
    """A tab on a server, with the requests that it sent and the complaints of the browser."""

    def __init__(self, page, url: str) -> None:
        self.page = page
        self.url = url
        self.requests: list[str] = []
        self._complaints: list[str] = []
        self._allowed: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self._complaints.append(f"error: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))

    def _on_console(self, message) -> None:
        if message.type in ("error", "warning"):
            self._complaints.append(f"{message.type}: {message.text} {message.location}")

    def open(self, agent: str = "", session: str = "", **options: object) -> ViewerPage:
        """Go to a position and wait until it is shown. The page is not reloaded."""
        url = self.url + route(agent, session, **options)
        position = [agent, session, options.get("at")]
        if session and self.page.url == url:
            # Navigating to the current address has no effect, but a step may not be in it yet.
            is_ready = f"([url, ...position]) => location.href !== url || ({IS_SHOWN})(position)"
            self.page.wait_for_function(is_ready, arg=[url, *position])
        self.page.goto(url)
        if session:
            self.page.wait_for_function(IS_SHOWN, arg=position)
        return self

    def reset(self) -> ViewerPage:
        """Leave the session, so that the next one is opened with everything collapsed."""
        self.page.goto(f"{self.url}#/")
        self.page.locator("#welcome").wait_for()
        return self

    def wait_for_address(self, part: str) -> None:
        """Wait until the address contains a text; it is written a little after a step."""
        self.page.wait_for_function("(part) => location.hash.includes(part)", arg=part)

    def poll_now(self) -> None:
        """Have the page poll at once, as it does when it becomes visible."""
        self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    def allow(self, text: str) -> None:
        """Allow complaints of the browser that contain a text, in this test."""
        self._allowed.append(text)

    def check(self) -> None:
        """Fail if the browser complained, or if a script of a session ran."""
        left = [
            each for each in self._complaints if not any(text in each for text in self._allowed)
        ]
        self._complaints.clear()
        self._allowed.clear()
        assert left == []
        assert self.page.evaluate("window.hacked") is None
