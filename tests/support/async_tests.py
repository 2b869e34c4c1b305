"""Coroutines, run to their end: within a test, or as a test that pytest can run by itself."""

from __future__ import annotations

import asyncio
import functools


def async_test(test):
    """A coroutine function, which takes fixtures by name, as an ordinary test."""

    @functools.wraps(test)
    def run(*self, **fixtures):
        asyncio.run(test(*self, **fixtures))

    return run


def run_async(work):
    """What a coroutine gives."""
    return asyncio.run(work)
