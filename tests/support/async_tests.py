"""Run coroutines, within a test or as a test."""

from __future__ import annotations

import asyncio

from holdfast.testing.checks import async_test

__all__ = ["async_test", "run_async"]


def run_async(work):
    """Run a coroutine and return its result."""
    return asyncio.run(work)
