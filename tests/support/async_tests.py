"""Run coroutines, within a test or as a test."""

from __future__ import annotations

import asyncio
import functools


def async_test(test):
    """Wrap a coroutine function, which takes fixtures by name, as a test."""

    @functools.wraps(test)
    def run(*self, **fixtures):
        asyncio.run(test(*self, **fixtures))

    return run


def run_async(work):
    """Run a coroutine and return its result."""
    return asyncio.run(work)
