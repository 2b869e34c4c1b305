"""Counts, problems and the exit code of a trial."""

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
    """What a trial did, counted by name, and what it found lost, duplicated or damaged."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.begun = time.monotonic()

    def count(self, name: str, number: int = 1) -> None:
        """Add to a count."""
        self.counts[name] += number

    def problem(self, text: str) -> None:
        """Record a problem: the trial continues, and fails at its end."""
        self.problems.append(text)

    def merge(self, counts: dict[str, int], problems: list[str]) -> None:
        """Add the counts and problems of another process."""
        self.counts.update(counts)
        self.problems += problems

    @contextmanager
    def to_the_end(self) -> Iterator[None]:
        """Record an exception that ends the block as one more problem.

        ``SystemExit`` and ``KeyboardInterrupt`` propagate, after the report is printed.
        """
        try:
            yield
        except Exception as error:  # noqa: BLE001 - recorded, and the trial fails
            self.failed("the trial did not come to its end", error)
        except BaseException:
            self.finish()
            raise

    def failed(self, what: str, error: Exception) -> None:
        """Record an unexpected error as a problem, and print its traceback."""
        traceback.print_exception(error)
        self.problem(f"{what}: {type(error).__name__}: {error}")

    @property
    def tried(self) -> int:
        """The sum of all counts."""
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
        """Print the report and return the exit code. A trial that did nothing fails."""
        if not self.tried and not self.problems:
            self.problem("nothing was tried")
        print(self.table)
        for problem in self.problems[:50]:
            print(f"PROBLEM {problem}", file=sys.stderr)
        return 1 if self.problems else 0


@contextmanager
def progress(what: str, total: float) -> Iterator[ProgressBar]:
    """Show a progress bar on stderr, if that is a terminal."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield ProgressBar(bar, total)


class ProgressBar:
    """The bar of `progress`."""

    def __init__(self, bar: Progress, total: float) -> None:
        self._bar = bar
        self._task = bar.add_task("", total=total)

    def to(self, done: float) -> None:
        """Set the progress."""
        self._bar.update(self._task, completed=done)

    def step(self, number: float = 1) -> None:
        """Add to the progress."""
        self._bar.advance(self._task, number)
