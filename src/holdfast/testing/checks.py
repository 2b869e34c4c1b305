"""Difficult keys and common steps of the suites."""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, ParamSpec

from holdfast.errors import ConflictError
from holdfast.stores.base import StateStore

Parameters = ParamSpec("Parameters")
NewStore = Callable[[], StateStore]

STRANGE_KEYS = (
    "..",
    ".",
    "...",
    "../../outside",
    "/",
    "//",
    "/etc/passwd",
    "a/",
    "a//b",
    "a/./b",
    "a/../b",
    "a",
    "a/b",
    "a.json",
    "a.json/b",
    "a-b",
    "a!b",
    "nul\x00nul",
    "\x00",
    "line\nline\r\n\tend",
    " ",
    " lead and trail ",
    "%",
    "%2F%2e%00",
    "100%_sure",
    "*",
    ">",
    "a.*.>",
    "star*?[x]",
    "back\\slash",
    "a||b",
    "{brace}:colon;semi",
    "'; DROP TABLE entries; --",
    '"quoted"',
    "~tilde~~",
    "case",
    "CASE",
    "Case",
    "\u00e9",  # one character
    "e\u0301",  # looks the same, two characters
    "\U0001f419 emoji",
    "\ud7ff",
    "\ue000",
    "\ufeff",
    "\uffff",
    "\U0010ffff",
    "x" * 1000,
    "x" * 1001,
    "\U0001f419" * 1000,
    "d/" * 500 + "deep",
    "long/" + "y" * 300 + "/" + "z" * 300 + "/end.json",
    "k" * 8192,
    "k" * 8191 + "j",
)


def async_test(test: Callable[Parameters, Coroutine[Any, Any, None]]) -> Callable[Parameters, None]:
    """Wrap a coroutine function as a test that needs no pytest plugin."""

    @functools.wraps(test)
    def run(*args: Parameters.args, **fixtures: Parameters.kwargs) -> None:
        asyncio.run(test(*args, **fixtures))

    return run


async def collect_keys(keys: AsyncIterator[str]) -> list[str]:
    """Return a listing as a list."""
    return [key async for key in keys]


async def read_all(store: StateStore) -> dict[str, bytes]:
    """Return all values of a store by key."""
    entries = await store.get_many(await collect_keys(store.list()))
    return {key: entry.value for key, entry in entries.items()}


async def write_and_read(store: StateStore, value: bytes) -> None:
    """Write a value and read it back."""
    await store.put("a", value)
    found = await store.get("a")
    assert found is not None
    assert found.value == value


async def increment(store: StateStore, key: str) -> None:
    """Add one to a number with conditional writes; retry on conflict."""
    for attempt in itertools.count():
        entry = await store.get(key)
        try:
            if entry is None:
                await store.put(key, b"1", if_absent=True)
            else:
                await store.put(key, b"%d" % (int(entry.value) + 1), if_match=entry.etag)
            return
        except ConflictError:
            # Back off: of many concurrent readers only one succeeds.
            await asyncio.sleep(random.uniform(0, 0.001) * 2 ** min(attempt, 6))  # noqa: S311
