"""Coroutines as tests that pytest can run by itself."""

from __future__ import annotations

import asyncio
import functools


def in_loop(test):
    """A coroutine function, which takes fixtures by name, as an ordinary test."""

    @functools.wraps(test)
    def run(**fixtures):
        asyncio.run(test(**fixtures))

    return run
