"""Common parts of the benchmarks: interleaved rounds, tables with ratios, results as JSON."""

from __future__ import annotations

import importlib
import json
import os
import platform
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType

RESULTS = Path(__file__).parent / "results"
ROOT = Path(__file__).parent.parent


@dataclass(slots=True)
class Row:
    """One question and its answers in the given unit; lower is better."""

    question: str
    unit: str
    times: dict[str, float] = field(default_factory=dict)
    target: float | None = None

    def offer(self, who: str, value: float) -> None:
        """Keep the best time."""
        self.times[who] = min(value, self.times.get(who, value))

    def ratio(self, peer: str, ours: str) -> float | None:
        """Return the peer's figure divided by ours."""
        if peer in self.times and self.times.get(ours):
            return self.times[peer] / self.times[ours]
        return None


def import_interpreted() -> ModuleType:
    """Import the same source of holdfast interpreted, under another name in this process."""
    folder = Path(tempfile.mkdtemp(prefix="holdfast-twin-"))
    target = folder / "holdfast_interpreted"
    shutil.copytree(
        ROOT / "src" / "holdfast", target, ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    for source in target.rglob("*.py"):
        renamed = re.sub(
            r"\b(from|import) holdfast\b", r"\1 holdfast_interpreted", source.read_text()
        )
        source.write_text(renamed)
    sys.path.insert(0, str(folder))
    return importlib.import_module("holdfast_interpreted")


def measure_clock() -> float:
    """Return the seconds that reading the clock twice takes, to subtract from single calls."""
    return min(-time.perf_counter() + time.perf_counter() for _ in range(1000))


def time_call(call: Callable[..., object], *arguments: object) -> float:
    """Return the seconds that one call takes."""
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


def shuffle(names: list[str], rng: random.Random) -> list[str]:
    """Return the contestants in random order, so that none always runs with a cold cache."""
    return rng.sample(names, len(names))


def run_in_new_process(program: str, *arguments: str) -> float:
    """Return the number that a program prints in a new process, for memory measurements."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def progress(message: str) -> None:
    """Print progress to stderr."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{message}")
        sys.stderr.flush()


def format_table(title: str, rows: list[Row], peer: str, ours: list[str]) -> str:
    """Return all rows as text, with the peer's time over ours."""
    progress("")
    heads = [title, "unit", peer, *ours, *[f"{peer} / {name}" for name in ours], "target", ""]
    lines = [heads]
    for row in rows:
        ratios = [row.ratio(peer, name) for name in ours]
        reached = ""
        if row.target is not None and ratios[0] is not None:
            reached = "yes" if ratios[0] >= row.target else "NO"
        lines.append(
            [
                row.question,
                row.unit,
                *[figure(row.times.get(name)) for name in (peer, *ours)],
                *[figure(ratio) for ratio in ratios],
                figure(row.target),
                reached,
            ]
        )
    widths = [max(len(line[at]) for line in lines) for at in range(len(heads))]
    text = []
    for number, line in enumerate(lines):
        cells = [line[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True)]
        text.append("  ".join(cells).rstrip())
        if number == 0:
            text.append("-" * len(text[0]))
    return "\n".join(text)


def figure(value: float | None) -> str:
    """Format a number with three significant digits."""
    if value is None:
        return ""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def keep(name: str, rows: list[Row], **more: object) -> Path:
    """Write the results as JSON."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    content = {
        "benchmark": name,
        "python": platform.python_version(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        **more,
        "rows": [asdict(row) for row in rows],
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path
