"""How a trial tells what it did: counts while it runs, a Markdown table and an exit code."""

from __future__ import annotations

import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Report:
    """What was done, counted by name; and what was lost, each told in one line."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.begun = time.monotonic()

    def count(self, name: str, number: int = 1) -> None:
        """So many more of this were done."""
        self.counts[name] += number

    def problem(self, text: str) -> None:
        """Something was lost, doubled or damaged: the trial goes on, and fails at its end."""
        self.problems.append(text)

    def merge(self, counts: dict[str, int], problems: list[str]) -> None:
        """Add what another process counted."""
        self.counts.update(counts)
        self.problems += problems

    @contextmanager
    def to_the_end(self) -> Iterator[None]:
        """Whatever ends the block too early is one more problem, and hides none before it.

        Where somebody wants the program itself to end, all that is known is printed first.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - told, and the trial fails
            self.failed("the trial did not come to its end", error)
        except BaseException:
            self.finish()
            raise

    def failed(self, what: str, error: Exception) -> None:
        """An error that should not have been: a problem, with where it came from."""
        traceback.print_exception(error)
        self.problem(f"{what}: {type(error).__name__}: {error}")

    @property
    def tried(self) -> int:
        """How much was done at all."""
        return self.counts.total()

    @property
    def table(self) -> str:
        """The counts as a Markdown table."""
        seconds = time.monotonic() - self.begun
        rows = [("seconds", round(seconds)), *self.counts.items()]
        rows.append(("lost, doubled or damaged", len(self.problems)))
        lines = [f"| {self.title} | |", "| --- | ---: |"]
        return "\n".join([*lines, *(f"| {name} | {number:,} |" for name, number in rows)])

    def finish(self) -> int:
        """Print it all; gives the exit code of the program. To have done nothing is a failure."""
        if not self.tried and not self.problems:
            self.problem("nothing was tried")
        print(self.table)
        for problem in self.problems[:50]:
            print(f"PROBLEM {problem}", file=sys.stderr)
        return 1 if self.problems else 0


@contextmanager
def progress(what: str, total: float) -> Iterator[ProgressBar]:
    """A bar on a terminal's error output; nothing elsewhere."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield ProgressBar(bar, total)


class ProgressBar:
    """One bar of `progress`."""

    def __init__(self, bar: Progress, total: float) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=total)

    def to(self, done: float) -> None:
        """So much is done by now."""
        self._bar.update(self._task, completed=done)

    def step(self, number: float = 1) -> None:
        """So much more is done."""
        self._bar.advance(self._task, number)
