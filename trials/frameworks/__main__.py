"""Kill a scripted run of a framework at a random step, resume it, and check how it ended.

Every process is forked from this one, which has imported the framework. A kill takes the whole
process group, so also programs that the framework started.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import os
import random
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import cast

from holdfast import open_state_store
from trials.backends import BACKENDS, start_backend
from trials.frameworks.scenario import Scenario, count_steps
from trials.kills.tasks import damage
from trials.processes import clean_up_on_sigterm
from trials.report import Report, progress

NAMES = sorted(
    each.stem
    for each in Path(__file__).parent.glob("*.py")
    if each.stem not in ("__init__", "__main__", "scenario")
)
SPREADS = (0.0, 0.001, 0.004, 0.02, 0.1)
"""Upper bounds in seconds for the delay between the start of a step and the kill."""
PATIENCE = 120.0
"""Seconds after which a run without progress counts as stuck."""


def main() -> int:
    """Run the trial and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m trials.frameworks", description=__doc__)
    parser.add_argument("framework", choices=NAMES)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--backend", choices=BACKENDS, default="sqlite")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    clean_up_on_sigterm()
    scenario = cast("Scenario", importlib.import_module(f"trials.frameworks.{options.framework}"))
    report = Report(f"kill -9: {options.framework} on {options.backend}")
    dice = random.Random(options.seed)
    with (
        report.to_the_end(),
        tempfile.TemporaryDirectory(prefix="holdfast-frameworks-") as name,
        start_backend(options.backend, Path(name)) as url,
        progress("kills", options.kills) as bar,
    ):
        kills = runs = 0
        while kills < options.kills:
            folder = Path(name) / f"run-{runs}"
            folder.mkdir()
            own = f"{url}{'&' if '?' in url else '?'}prefix={folder.name}/"
            done = Run(scenario, own, folder, dice, report).run(options.kills - kills)
            runs += 1
            kills += done
            bar.to(kills)
            if report.problems:
                break
    return report.finish()


class Run:
    """One run of an agent, killed once or more often, under a prefix of its own."""

    def __init__(
        self, scenario: Scenario, url: str, folder: Path, dice: random.Random, report: Report
    ) -> None:
        self.scenario = scenario
        self.url = url
        self.folder = folder
        self.dice = dice
        self.report = report

    def run(self, most: int) -> int:
        """Kill the run at most that often, let it end, and check it; return the kills."""
        kills = 0
        for _ in range(min(most, self.dice.choice((1, 1, 2, 3)))):
            before = count_steps(self.folder)
            wanted = before + self.dice.randint(1, max(1, self.scenario.STEPS - before))
            if not self.start_and_kill(wanted):
                break
            kills += 1
        self.report.count("runs")
        self.report.count("kills", kills)
        status = self.start(wanted=None)
        if status != 0:
            self.report.problem(f"{self.folder.name}: the resumed run ended with {status}")
            return kills
        for problem in asyncio.run(self.check()):
            self.report.problem(f"{self.folder.name}: {problem}")
        return kills

    async def check(self) -> list[str]:
        """Return what the scenario and `verify` find."""
        problems = await self.scenario.check(self.url, self.folder)
        async with open_state_store(self.url) as store:
            return [*problems, *await damage(store)]

    def start_and_kill(self, wanted: int) -> bool:
        """Start the run and kill it after a step; return False if it ended before."""
        status = self.start(wanted)
        if status not in (-signal.SIGKILL, 0):
            self.report.problem(f"{self.folder.name}: a run ended with {status}")
        return status == -signal.SIGKILL

    def start(self, wanted: int | None) -> int:
        """Fork a process for the run, kill it after a step if wanted, and return its status."""
        pid = os.fork()
        if pid == 0:
            self.work()
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return os.waitstatus_to_exitcode(status)
            if wanted is not None and count_steps(self.folder) >= wanted:
                time.sleep(self.dice.uniform(0, self.dice.choice(SPREADS)))
                break
            time.sleep(0.0005)
        else:
            self.report.problem(f"{self.folder.name}: the run is stuck")
        kill_group(pid)
        _, status = os.waitpid(pid, 0)
        return os.waitstatus_to_exitcode(status)

    def work(self) -> None:
        """Run the agent in this process, and exit."""
        os.setpgid(0, 0)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        try:
            asyncio.run(self.scenario.run(self.url, self.folder))
        except BaseException:  # noqa: BLE001 - the process must not continue as the parent
            traceback.print_exc()
            os._exit(1)
        os._exit(0)


def kill_group(pid: int) -> None:
    """Kill a process and those that it started."""
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:  # it has not made its group yet
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
