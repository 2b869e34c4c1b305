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
    stores = [new_state_store() for _ in range(8)]
    end = time.monotonic() + 3

    async def write(name, store):
        session, number = await open_session(store), 0
        while not number or time.monotonic() < end:
            session.add_message("user", f"{name} {number}")
            await session.commit(on_conflict="rebase")
            number += 1
        return number

    names = "abcdefgh"
    counts = await asyncio.gather(*map(write, names, stores))
    assert min(counts) > 1, counts
    session = await open_session(stores[0])
    said = Counter(message["content"] for message in session.messages)
    assert said == Counter(
        f"{name} {number}"
        for name, count in zip(names, counts, strict=True)
        for number in range(count)
    )
    assert (await session.verify()).ok
    for store in stores:
        await store.close()
