"""Measure the viewer in Chromium: first content of a long session, and steps of its slider.

A session of 5,000 events on SQLite. Each round starts a server and a browser without any cache,
opens the session, and notes when its first messages and when everything at its last event is shown,
and how many requests that took. Then the
slider moves one event at a time, and to random events. `--smoke` takes a short session. Without
Chromium (apt-get install chromium) there is nothing to measure.
Run: make bench-viewer
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import sync_playwright

from benchmarks.harness import ROOT, Row, format_table, keep, progress
from holdfast import BlockingSession

sys.path.insert(0, str(ROOT / "tests"))

from servers.process import free_port
from viewer.viewer_page import CHROMIUM_ARGUMENTS, IS_SHOWN, route

AGENT, SESSION = "research-bot", "ses_long"
TARGET, OURS = "target", "holdfast"
MILLI = 1e3
FIRST_MS, REQUESTS, STEP_MS = 500.0, 12.0, 50.0
FIRST_AT = "() => document.querySelector('#conversation article') && performance.now()"
SHOWN_AT = f"(position) => ({IS_SHOWN})(position) && performance.now()"
MOVE = """async (seq) => {
  const slider = document.getElementById("slider");
  const start = performance.now();
  const isShown = () => document.getElementById("event-title")?.dataset.seq == seq
    && !document.querySelector("[aria-busy=true]");
  slider.value = seq;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  while (!isShown()) {
    if (performance.now() - start > 30000) throw new Error(`event ${seq} is not shown`);
    await new Promise(requestAnimationFrame);
  }
  return performance.now() - start;
}"""


def find_chromium() -> str | None:
    """Return the path of Chromium, or None."""
    return os.environ.get("HOLDFAST_CHROMIUM") or shutil.which("chromium")


def record_session(url: str, events: int) -> int:
    """Record a session with about this many events, and return the number of the last one."""
    rng = random.Random(7)
    words = ["agent", "reads", "report", "writes", "found", "user", "plan", "later", "answer"]
    with BlockingSession.open(url, agent_id=AGENT, session_id=SESSION) as session:
        for number in range(events):
            if number % 5 == 4:
                session.set("plan", {"step": number})
            else:
                session.add_message(
                    "assistant" if number % 2 else "user", " ".join(rng.choices(words, k=60))
                )
            if number % 50 == 0:
                session.save(tags={"turn": str(number)})
        session.save()
        return len(session.events)


@contextmanager
def run_server(url: str) -> Iterator[str]:
    """Run a server with empty caches, and yield its address."""
    port = free_port()
    command = [sys.executable, "-m", "holdfast", "serve", "--port", str(port), "--store", url]
    address = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(200):
                try:
                    urllib.request.urlopen(f"{address}/health/live").close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield address
        finally:
            server.terminate()


def measure_round(address: str, last: int, steps: int, rng: random.Random) -> list[float]:
    """Return the times of the first and of all content, requests, and medians of moves."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=find_chromium(), args=CHROMIUM_ARGUMENTS
        )
        page = browser.new_page(viewport={"width": 1280, "height": 800}, reduced_motion="reduce")
        requests: list[str] = []
        page.on("request", lambda request: requests.append(request.url))
        page.goto(f"{address}/{route(AGENT, SESSION)}", wait_until="commit")
        first = page.wait_for_function(FIRST_AT).json_value()
        shown = page.wait_for_function(SHOWN_AT, arg=[AGENT, SESSION, None]).json_value()
        sent = len(requests)
        middle = last // 2
        page.evaluate(MOVE, middle)
        stepped = [page.evaluate(MOVE, middle + at) for at in range(1, steps + 1)]
        jumped = [page.evaluate(MOVE, rng.randrange(1, last)) for _ in range(steps)]
        browser.close()
    return [first, shown, sent, statistics.median(stepped), statistics.median(jumped)]


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short session, once")
    options = parser.parse_args()
    if find_chromium() is None:
        raise SystemExit("Chromium is not installed: apt-get install chromium")
    events, rounds, steps = (60, 1, 3) if options.smoke else (5000, 5, 50)
    rng = random.Random(7)
    found: list[list[float]] = []
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        url = f"sqlite:///{folder}/state.db"
        last = record_session(url, events)
        for number in range(rounds):
            progress(f"round {number + 1} of {rounds}")
            with run_server(url) as address:
                found.append(measure_round(address, last, steps, rng))
    rows = []
    for at, (question, unit, target) in enumerate(
        (
            (f"first messages of {last} events, cold", "ms", FIRST_MS),
            ("everything shown, cold", "ms", FIRST_MS),
            ("requests until then", "", REQUESTS),
            ("one step of the slider, median", "ms", STEP_MS),
            ("a jump to any event, median", "ms", STEP_MS),
        )
    ):
        values = [each[at] for each in found]
        row = Row(f"{question} ({min(values):.0f} to {max(values):.0f})", unit, target=1)
        row.offer(TARGET, target)
        row.offer(OURS, statistics.median(values))
        rows.append(row)
    print(format_table("viewer, median of all rounds", rows, TARGET, [OURS]))
    if not options.smoke:
        keep("viewer", rows, events=last)


if __name__ == "__main__":
    main()
