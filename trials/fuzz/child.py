"""The process that tries inputs: with a bound on its memory, and free to crash.

It gets what to do as one JSON argument, and prints one line of JSON for each target.
"""

from __future__ import annotations

import json
import logging
import resource
import sys
import tempfile
from pathlib import Path

from trials.fuzz.running import run
from trials.fuzz.trying import Watch

ROOM = 1 << 30
"""Bytes that may be asked for beyond what the process has when it begins."""


def bound_memory() -> None:
    """What asks for more memory than that gets a ``MemoryError``, which is a problem."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))


def main() -> None:
    """Try what the argument says."""
    logging.disable(logging.CRITICAL)
    said = json.loads(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="holdfast-fuzz-") as folder:
        watch = Watch(Path(folder))
        if sys.platform == "linux":
            bound_memory()
        for name in said["targets"]:
            done = run(
                name,
                watch,
                Path(said["kept"]),
                said["seed"],
                seconds=said["seconds"],
                inputs=said["inputs"],
            )
            line = {
                "target": name,
                "counts": dict(done.counts),
                "problems": list(done.problems.values()),
            }
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
