"""A browser that looks at a server: what it opens, and what must not happen while it does."""

from __future__ import annotations

from urllib.parse import quote, urlencode

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


SHOWN = """([agent, session, at]) => {
  const [slider, title] = ["slider", "event-title"].map((id) => document.getElementById(id));
  const name = document.getElementById("session-title")?.parentElement.textContent;
  if (!title || document.getElementById("session").hidden) return false;
  const step = at ?? slider.max;
  return name === `${agent} / ${session}` && slider.value == step
    && title.dataset.seq == step && slider.getAttribute("aria-valuetext").split(", ").length > 2;
}"""


QUIET = "() => !document.querySelector('[aria-busy=true]')"


def expect(what):
    """What Playwright expects of a part of a page, sooner or later.

    Playwright looks again at ever longer intervals; a page that says when it is busy is waited for
    without losing that time.
    """
    from playwright.sync_api import expect as expected  # it may not be installed

    what.page.wait_for_function(QUIET)
    return expected(what)


def box_of(locator):
    """Where something is, once it is there: what is drawn anew is not there for a moment."""
    for _ in range(200):
        if box := locator.bounding_box():
            return box
        locator.page.wait_for_timeout(20)
    raise AssertionError(f"{locator} is not there")


def place(agent: str = "", session: str = "", **options: object) -> str:
    """The hash of what is looked at."""
    path = "/".join(quote(each, safe="") for each in (agent, session) if each)
    query = urlencode({name: str(value) for name, value in options.items()})
    return f"#/{path}" + (f"?{query}" if query else "")


class Look:
    """One page on a server. What a browser complains of fails the test, unless it is expected."""

    def __init__(self, page, url: str) -> None:
        self.page = page
        self.url = url
        self.expected: list[str] = []
        self.complaints: list[str] = []
        self.requests: list[str] = []
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"error: {error}"))
        page.on("request", lambda request: self.requests.append(request.url))

    def _heard(self, message) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(f"{message.type}: {message.text} {message.location}")

    def at(self, agent: str = "", session: str = "", **options: object) -> Look:
        """Go to a place, and wait until it is shown. What is on the page already stays there."""
        wanted = self.url + place(agent, session, **options)
        if self.page.url == wanted:
            self.page.wait_for_timeout(250)  # the address is not up to date while one steps
        self.page.goto(wanted)
        if session:
            self.page.wait_for_function(SHOWN, arg=[agent, session, options.get("at")])
        return self

    def fresh(self) -> Look:
        """Leave the session, so that the next place begins with nothing unfolded."""
        self.page.goto(f"{self.url}#/")
        self.page.locator("#welcome").wait_for()
        return self

    def wake(self) -> None:
        """Come back to the page, which then looks at once for what is new."""
        self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    def check(self) -> None:
        """Nothing was complained of that was not expected."""
        left = [each for each in self.complaints if not any(text in each for text in self.expected)]
        self.complaints.clear()
        self.expected.clear()
        assert left == []
        assert self.page.evaluate("window.hacked") is None
