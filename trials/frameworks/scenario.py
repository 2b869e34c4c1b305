"""What a framework's module provides, and the steps that a run reports."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol


class Scenario(Protocol):
    """A module of this package."""

    STEPS: int
    """The number of times that an uninterrupted run calls ``note_step``."""

    async def run(self, url: str, folder: Path) -> None:
        """Run the agent to its end, from wherever an earlier run of it was killed."""

    async def check(self, url: str, folder: Path) -> list[str]:
        """Return what is lost, doubled or damaged after the run has ended."""


def note_step(folder: Path) -> None:
    """Report that a step of the run has begun. Call it from the model and from tools."""
    with (folder / "steps").open("ab") as file:
        file.write(b".")


def count_steps(folder: Path) -> int:
    """Return the number of steps that all processes of a run have begun."""
    path = folder / "steps"
    return path.stat().st_size if path.exists() else 0


def note_acknowledged(folder: Path, text: str) -> None:
    """Record what the store acknowledged, for the check, durably."""
    with (folder / "acknowledged").open("a", encoding="utf-8") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())


def read_acknowledged(folder: Path) -> list[str]:
    """Return what `note_acknowledged` recorded; a line cut by a kill is not acknowledged."""
    path = folder / "acknowledged"
    text = path.read_text("utf-8") if path.exists() else ""
    return [line for line in text.split("\n")[:-1] if line]
