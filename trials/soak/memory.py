"""Check that processes do not grow: their memory, by thirds of a run.

In the first third caches fill and sessions reach their size; after that, memory must stay level.
Medians are compared, because a single garbage collection means little. A worker holds few sessions
of a few hundred events each. The server's caches are bounded, but take longer to fill.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

PAGE = os.sysconf("SC_PAGE_SIZE")
MEGABYTE = 1 << 20
ALLOWED = 8 * MEGABYTE
"""How much the median may grow from the middle third to the last."""
ALLOWED_SERVER = 32 * MEGABYTE
"""The same for the server, whose caches may hold 160 MB."""
EVERY = 0.2
LONG_ENOUGH = 45.0
"""Shorter runs are not judged: they are still warming up in the last third."""


class Memory:
    """Samples of processes, by name and third."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self.pids = pids
        self.samples: dict[str, list[list[int]]] = {name: [] for name in pids}

    def watch(self, is_over: Callable[[], bool]) -> None:
        """Sample until a third is over."""
        for of in self.samples.values():
            of.append([])
        while not is_over():
            for name, pid in self.pids.items():
                self.samples[name][-1].append(resident(pid))
            time.sleep(EVERY)

    def medians(self) -> Iterator[tuple[str, list[int]]]:
        """Return the median of each third in bytes, by process."""
        for name, thirds in self.samples.items():
            yield name, [round(median(third)) if third else 0 for third in thirds]

    def problems(self) -> Iterator[str]:
        """Return processes that grew."""
        for name, (_, middle, last) in self.medians():
            if last - middle > (ALLOWED_SERVER if name == "server" else ALLOWED):
                grown = (last - middle) / MEGABYTE
                yield f"{name} grew by {grown:.1f} MB from the middle third to the last"


def resident(pid: int) -> int:
    """Return the resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
