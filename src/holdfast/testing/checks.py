"""What the suites share: keys that backends stumble over, and short words for common steps."""

from __future__ import annotations

import asyncio
import functools
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from holdfast.errors import ConflictError
from holdfast.stores.base import StateStore

Suite = TypeVar("Suite")
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
    "e\u0301",  # the same to the eye, in two
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


def in_loop(
    test: Callable[[Suite, NewStore], Awaitable[None]],
) -> Callable[[Suite, NewStore], None]:
    """A coroutine as a test that pytest can run by itself."""

    @functools.wraps(test)
    def run(self: Suite, new_store: NewStore) -> None:
        async def whole() -> None:
            await test(self, new_store)

        asyncio.run(whole())

    return run


async def listed(keys: AsyncIterator[str]) -> list[str]:
    """A listing as a list."""
    return [key async for key in keys]


async def content(store: StateStore) -> dict[str, bytes]:
    """Everything in a store."""
    entries = await store.get_many(await listed(store.list()))
    return {key: entry.value for key, entry in entries.items()}


async def use(store: StateStore, value: bytes) -> None:
    """Write and read in one event loop."""
    await store.put("a", value)
    found = await store.get("a")
    assert found is not None
    assert found.value == value


async def increment(store: StateStore, key: str) -> None:
    """Add one to a number, however many others do."""
    for attempt in itertools.count():
        entry = await store.get(key)
        try:
            if entry is None:
                await store.put(key, b"1", if_absent=True)
            else:
                await store.put(key, b"%d" % (int(entry.value) + 1), if_match=entry.etag)
            return
        except ConflictError:
            # Or else of many who read at once all but one will have read in vain, again and again.
            await asyncio.sleep(random.uniform(0, 0.001) * 2 ** min(attempt, 6))  # noqa: S311
