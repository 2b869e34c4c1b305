"""Stores that work on the same conversations at once, versions of the framework, and kills."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, UserPromptPart

from adapters.pydantic_ai.conversations import add_with_retries
from holdfast import SnapshotArchive, open_state_store
from holdfast.adapters.pydantic_ai import HoldfastConversationStore
from support.async_tests import async_test

ROOT = Path(__file__).parent.parent.parent.parent


def read_texts(conversation):
    return [each.parts[0].content for each in conversation.messages]


@async_test
async def test_saves_forks_and_deletions_at_once_lose_nothing(tmp_path):
    url = f"file://{tmp_path}/states"  # without atomic batches, so that steps interleave
    async with open_state_store(url) as one, open_state_store(url) as two:
        stores = [HoldfastConversationStore(each) for each in (one, two)]
        start = Conversation(conversation_id="c")
        start.messages.append(ModelRequest(parts=[UserPromptPart("start")]))
        await stores[0].save(start)
        forks = []

        async def fork(store, name):
            for number in range(4):
                forked = await store.fork("c", new_conversation_id=f"{name}{number}")
                forks.append((forked.conversation_id, read_texts(forked)))

        async def replace(store, name):
            for number in range(4):
                await store.delete("d")
                new = Conversation(conversation_id="d")
                new.messages.append(ModelRequest(parts=[UserPromptPart(f"{name}{number}")]))
                try:
                    await store.save(new)
                    await store.fork("d", new_conversation_id=f"d-{name}{number}")
                except (ConversationConflict, UserError):
                    continue  # the other created it first, or deleted it before the fork

        await asyncio.gather(
            add_with_retries(stores[0], "c", "x", 6),
            add_with_retries(stores[1], "c", "y", 6),
            fork(stores[0], "f"),
            fork(stores[1], "g"),
            replace(stores[0], "r"),
            replace(stores[1], "s"),
        )
        fresh = HoldfastConversationStore(two)
        texts = read_texts(await fresh.load("c"))
        assert sorted(texts) == sorted(
            ["start", *(f"{name}{number}" for name in "xy" for number in range(6))]
        )
        for name, expected in forks:
            assert read_texts(await fresh.load(name)) == expected
        for record in await fresh.list_conversations():
            name = record.conversation_id
            for entry in await stores[0].load_entries(name):
                assert await fresh.read_entry(entry.id) == entry
            assert (await SnapshotArchive(one).verify(location=fresh.location(name))).ok


@async_test
async def test_stores_that_delete_the_same_conversation_leave_nothing(tmp_path):
    url = f"file://{tmp_path}/states"
    async with open_state_store(url) as one, open_state_store(url) as two:
        stores = [HoldfastConversationStore(each) for each in (one, two, one, two)]
        for _ in range(5):
            await stores[0].save(Conversation(conversation_id="c"))
            await asyncio.gather(*(store.delete("c") for store in stores))
            assert [await store.load("c") for store in stores] == [None] * 4
        assert [key async for key in one.list()] == []
