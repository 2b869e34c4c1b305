"""The SDK's compaction over our sessions, with a scripted client."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

pytest.importorskip("agents")
pytest.importorskip("cryptography")

from agents import Agent, OpenAIResponsesCompactionSession, Runner, SQLiteSession
from agents.extensions.memory import EncryptedSession
from agents.memory import SessionSettings, is_openai_responses_compaction_aware_session

from adapters.scripted_model import ScriptedModel
from adapters.test_openai_agents import ITEMS, QUIET
from holdfast import Session
from holdfast.adapters.openai_agents import HoldfastSession
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.observed_store import ObservedStore

SUMMARY = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}
TALK = [{"role": "user", "content": str(number)} for number in range(6)]


class RespondingModel(ScriptedModel):
    """Answers with a response id, which the SDK needs for a compaction."""

    async def get_response(self, *rest, **more):
        response = await super().get_response(*rest, **more)
        response.response_id = f"resp_{len(self.asked)}"
        return response


class Client:
    """The part of an OpenAI client that the compaction uses."""

    def __init__(self, during=None):
        self.asked = []
        self.during = during
        self.responses = self

    async def compact(self, **request):
        self.asked.append(request)
        if self.during is not None:
            await self.during()
        return SimpleNamespace(output=[dict(SUMMARY)], usage=None)


def make_compacting_session(session, client, **options):
    """Return a session of the SDK that compacts another one after every turn."""
    return OpenAIResponsesCompactionSession(
        session.session_id,
        session,
        client=client,
        should_trigger_compaction=lambda _: True,
        compaction_mode="input",
        **options,
    )


def make_both_sessions():
    """Return one of our sessions and one of the SDK's."""
    return HoldfastSession("ses", MemoryStateStore(), agent_id="waiter"), SQLiteSession("ses")


async def run(session, *words):
    for each in words:
        agent = Agent(name="waiter", model=RespondingModel(f"You said {each}"))
        await Runner.run(agent, each, session=session, run_config=QUIET)


# ------------------------------------------------------------------------------------------- both


@async_test
async def test_a_run_is_compacted_like_with_the_sdk_session():
    found = []
    for session in make_both_sessions():
        client = Client()
        await run(make_compacting_session(session, client), "one", "two")
        assert len(client.asked) == 2
        found.append((await session.get_items(), client.asked))
    assert found[0] == found[1]
    assert found[0][0] == [SUMMARY]


@async_test
async def test_items_that_the_model_did_not_see_are_kept():
    for session in make_both_sessions():
        await session.add_items(TALK)
        session.session_settings = SessionSettings(limit=2)
        client = Client()
        wrapped = make_compacting_session(session, client)
        wrapped.session_settings = session.session_settings
        await run(wrapped, "hello")
        session.session_settings = None
        kept = await session.get_items()
        assert kept == [*TALK[:4], SUMMARY], session
        assert len(client.asked[0]["input"]) == 4


@async_test
async def test_a_forced_compaction_replaces_everything():
    for session in make_both_sessions():
        await session.add_items(TALK)
        await make_compacting_session(session, Client()).run_compaction({"force": True})
        assert await session.get_items() == [SUMMARY]


@async_test
async def test_a_session_without_a_wrapper_does_not_compact():
    for session in make_both_sessions():
        assert not is_openai_responses_compaction_aware_session(session)


@async_test
async def test_the_items_of_an_encrypted_session_are_not_readable_in_the_store():
    for session in make_both_sessions():
        encrypted = EncryptedSession("ses", session, encryption_key="secret")
        await run(encrypted, "one", "two")
        assert [item.get("role") for item in await encrypted.get_items()] == [
            "user",
            "assistant",
        ] * 2
        assert all(item["__enc__"] == 1 for item in await session.get_items())
        assert (await encrypted.pop_item())["role"] == "assistant"
        client = Client()
        wrapped = EncryptedSession(
            "ses", make_compacting_session(session, client), encryption_key="secret"
        )
        await run(wrapped, "three")
        assert await wrapped.get_items() == [SUMMARY]
        assert len(client.asked[0]["input"]) == 5


# ---------------------------------------------------------------------------------------- ours


@pytest.mark.parametrize("limit", [1, 3, 6, 7, 100])
@async_test
async def test_a_compaction_snapshot_has_the_last_items(limit):
    for session in make_both_sessions():
        await session.add_items(TALK)
        snapshot = await session._get_compaction_snapshot(limit)
        assert snapshot.items == TALK[-limit:]
        assert snapshot.complete is (limit >= 6)


@async_test
async def test_a_suffix_is_replaced_in_one_commit():
    store = ObservedStore()
    session = HoldfastSession("ses", store)
    await session.add_items(TALK)
    snapshot = await session._get_compaction_snapshot(4)
    store.forget()
    assert await snapshot.replace_suffix(1, [SUMMARY])
    assert len([key for key in store.written if "/log/" in key]) == 1
    assert await session.get_items() == [*TALK[:3], SUMMARY]
    await session.add_items(TALK[:1])
    assert await HoldfastSession("ses", store).get_items() == [*TALK[:3], SUMMARY, TALK[0]]
    document = await session.export()
    assert document.events[-3].type == "conversation.compacted"
    assert document.events[-3].data == {"removed": 3, "added": 1}
    assert (await session.verify()).ok


@async_test
async def test_a_suffix_that_changed_is_not_replaced():
    for session in make_both_sessions():
        await session.add_items(TALK)
        for change in (session.pop_item, lambda s=session: s.add_items(ITEMS[:1])):
            snapshot = await session._get_compaction_snapshot(4)
            await change()
            before = await session.get_items()
            assert not await snapshot.replace_suffix(0, [SUMMARY])
            assert await session.get_items() == before
        snapshot = await session._get_compaction_snapshot(4)
        assert not await snapshot.replace_suffix(4, [SUMMARY])
        await session.clear_session()
        assert not await snapshot.replace_suffix(0, [SUMMARY])
        assert await session.get_items() == []


@async_test
async def test_expired_items_at_the_start_are_removed_with_a_suffix():
    for session in make_both_sessions():
        await session.add_items(TALK)
        snapshot = await session._get_compaction_snapshot(
            2, prune_prefix=lambda item: item["content"] in ("0", "1", "3")
        )
        assert await snapshot.replace_suffix(1, [SUMMARY])
        assert await session.get_items() == [*TALK[2:5], SUMMARY]


@async_test
async def test_items_added_during_a_summary_are_kept():
    store = MemoryStateStore()
    session, other = (HoldfastSession("ses", store, agent_id="waiter") for _ in range(2))
    wrapped = make_compacting_session(session, Client(during=lambda: other.add_items(TALK[:1])))
    await run(wrapped, "one")
    kept = await session.get_items()
    assert [item["role"] for item in kept] == ["user", "assistant", "user"]


@async_test
async def test_concurrent_compactions_replace_once():
    store = MemoryStateStore()
    await HoldfastSession("ses", store).add_items(TALK)
    sessions = [HoldfastSession("ses", store) for _ in range(4)]
    snapshots = [await each._get_compaction_snapshot(10) for each in sessions]
    done = await asyncio.gather(*(each.replace_suffix(0, [SUMMARY]) for each in snapshots))
    assert sorted(done) == [False, False, False, True]
    assert await sessions[0].get_items() == [SUMMARY]


@async_test
async def test_a_compaction_does_not_change_the_status():
    store = MemoryStateStore()
    session = HoldfastSession("ses", store, agent_id="waiter")
    await run(make_compacting_session(session, Client()), "one")
    assert await session.get_items() == [SUMMARY]
    found = await Session.open(store, agent_id="waiter", session_id="ses")
    assert found.status == "completed"


@async_test
async def test_a_subclass_is_compacted_through_its_own_methods():
    class Counting(HoldfastSession):
        added = 0

        async def add_items(self, items):
            self.added += len(items)
            await super().add_items(items)

    session = Counting("ses", MemoryStateStore())
    await session.add_items(TALK)
    assert await session._get_compaction_snapshot(3) is None
    assert await session._atomic_replace_items([SUMMARY]) is False
    await make_compacting_session(session, Client()).run_compaction({"force": True})
    assert await session.get_items() == [SUMMARY]
    assert session.added == 7
