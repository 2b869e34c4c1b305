"""Many writers of one session all make progress, and nothing is lost."""

from __future__ import annotations

import asyncio
import time
from collections import Counter

import pytest

from support.async_tests import run_async
from support.backends import make_opener
from support.conversations import open_session


@pytest.mark.parametrize("backend", ["sqlite", "nats", "files"])
def test_each_of_eight_writers_commits_and_no_message_is_lost(backend, request):
    run_async(check_eight(make_opener(backend, request)))


async def check_eight(new_state_store):
    """Let eight writers commit until each has done so three times."""
    names = "abcdefgh"
    stores = [new_state_store() for _ in names]
    counts = Counter()
    # The limit is far from what it takes: a slow machine is not an unfair one.
    end = time.monotonic() + 60

    async def write(name, store):
        session = await open_session(store)
        while min(counts[each] for each in names) < 3 and time.monotonic() < end:
            session.add_message("user", f"{name} {counts[name]}")
            await session.commit(on_conflict="rebase")
            counts[name] += 1

    await asyncio.gather(*map(write, names, stores))
    assert min(counts.values()) >= 3, counts
    session = await open_session(stores[0])
    contents = Counter(message["content"] for message in session.messages)
    assert contents == Counter(
        f"{name} {number}" for name, count in counts.items() for number in range(count)
    )
    assert (await session.verify()).ok
    for store in stores:
        await store.close()
