"""Coroutines, run to their end: within a test, or as a test that pytest can run by itself."""

from __future__ import annotations

import asyncio
import functools


def in_loop(test):
    """A coroutine function, which takes fixtures by name, as an ordinary test."""

    @functools.wraps(test)
    def run(*self, **fixtures):
        asyncio.run(test(*self, **fixtures))

    return run


def done(work):
    """What a coroutine gives."""
    return asyncio.run(work)
