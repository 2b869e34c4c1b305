"""Kill workers by kind and backend, and print a table of the outcomes."""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from holdfast import open_state_store
from trials.kills.kinds import KINDS
from trials.kills.stores import BACKENDS, SERVERS, Stores, open_stores
from trials.kills.tasks import Kind, Task, damage
from trials.kills.worker import Worker
from trials.processes import clean_up_on_sigterm
from trials.report import ProgressBar, Report, progress

SERVER_EVERY = 5
"""Kill the server before every fifth kill, if there is one."""


def main() -> int:
    """Run the trial and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m trials.kills", description=__doc__)
    parser.add_argument("--kills", type=int, help="by backend; 200, and 50 with a server")
    parser.add_argument("--backend", nargs="+", choices=BACKENDS, default=BACKENDS)
    parser.add_argument("--kind", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    options = parser.parse_args()
    print(f"seed {options.seed}", file=sys.stderr)
    report = Report("kill -9")
    kills = {each: options.kills or (50 if each in SERVERS else 200) for each in BACKENDS}
    clean_up_on_sigterm()
    with (
        report.to_the_end(),
        tempfile.TemporaryDirectory(prefix="holdfast-kills-") as folder,
        closing(Worker()) as worker,
        progress("kills", sum(kills[each] for each in options.backend)) as bar,
    ):
        for backend in options.backend:
            with open_stores(backend, Path(folder) / backend) as stores:
                dice = random.Random(f"{options.seed} {backend}")
                trial = Trial(stores, worker, report, dice)
                trial.run(kills[backend], options.kind, bar)
    return report.finish()


class Trial:
    """Kills on one backend."""

    def __init__(self, stores: Stores, worker: Worker, report: Report, dice: random.Random) -> None:
        self.stores = stores
        self.worker = worker
        self.report = report
        self.dice = dice

    def run(self, kills: int, names: Sequence[str], bar: ProgressBar) -> None:
        """Kill workers of each kind in turn, and verify all stores at the end."""
        kinds = [KINDS[name](self.stores) for name in names]
        for number in range(kills):
            with_server = self.stores.server is not None and number % SERVER_EVERY == 1
            self.kill(kinds[number % len(kinds)], number // len(kinds), with_server=with_server)
            bar.step()
        for name in ("written", "imported"):
            for problem in asyncio.run(all_damage(self.stores.url(name))):
                self.report.problem(f"{self.stores.backend} in the end: {problem}")

    def kill(self, kind: Kind, number: int, *, with_server: bool) -> None:
        """Kill one worker, and check what is stored."""
        name = f"{self.stores.backend} {kind.name}"
        task = kind.task(number)
        ledger = Path(task.ledger)
        operation = self.dice.randint(1, kind.operations)
        self.worker.start(task)
        lived = self.worker.wait_for(ledger, operation)
        if with_server:
            self.kill_server()
            self.report.count(f"{name}: kills of the server")
            lived = self.worker.wait_for(ledger, operation + 1, done=operation)
        time.sleep(self.dice.uniform(0, self.dice.choice(kind.spreads)))
        ended = self.worker.kill()
        if not lived or ended:
            self.report.problem(f"{name} {number}: the worker did not go on: {ended or 'stuck'}")
            return
        notes = kind.operations_of(task)
        self.report.count(f"{name}: kills")
        self.report.count(f"{name}: of these inside", len(notes.begun) > len(notes.acknowledged))
        self.report.count(f"{name}: operations acknowledged", len(notes.acknowledged))
        self.check(kind, task, f"{name} {number}")

    def kill_server(self) -> None:
        """Kill and restart the server."""
        time.sleep(self.dice.uniform(0, 0.02))
        self.stores.server.kill()
        self.stores.server.start()

    def check(self, kind: Kind, task: Task, name: str) -> None:
        """Check what is stored, and repeat the operation."""
        try:
            problems = asyncio.run(kind.check(task))
        except Exception as error:  # noqa: BLE001 - recorded, and the trial continues
            self.report.failed(name, error)
            return
        for problem in problems:
            self.report.problem(f"{name}: {problem}")


async def all_damage(url: str) -> list[str]:
    """Return what is damaged in a store."""
    async with open_state_store(url) as store:
        return await damage(store)


if __name__ == "__main__":
    sys.exit(main())
