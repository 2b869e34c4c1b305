"""The cost of ``import holdfast`` for a program that only needs a ``Store``."""

from __future__ import annotations

import pytest

from support.subprocesses import read_python

LIMIT = 0.1
TIMED = "import time; t = time.perf_counter(); import holdfast; print(time.perf_counter() - t)"
# Modules that a store in memory does not need; each takes ten milliseconds or more to import.
LATER = ("asyncio", "sqlite3", "ssl", "socket", "subprocess", "logging", "importlib.metadata")


def test_import_takes_less_than_100_ms():
    took = []
    for _ in range(30):  # the best counts: others use this machine, too
        took.append(float(read_python(TIMED)))
        if len(took) >= 3 and min(took) < LIMIT:
            return
    pytest.fail(f"the best of {len(took)} imports took {min(took):.3f} s")


def test_import_defers_modules_that_a_store_does_not_need():
    loaded = read_python("import sys, holdfast; print(*sys.modules)").split()
    before = read_python("import sys; print(*sys.modules)").split()  # the environment
    assert [name for name in LATER if name in loaded and name not in before] == []
