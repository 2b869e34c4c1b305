"""Requests that write to one session at once: they take turns, and one that deletes it as well."""

from __future__ import annotations

import asyncio

from holdfast import Session
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.rest_api import S, client, filled, good, opened, problem

SHARED = "/agents/ann/sessions/ses_shared"


class Held(MemoryStateStore):
    """Keeps a write waiting until it is let go."""

    def __init__(self):
        super().__init__()
        self.reached, self.let_go = asyncio.Event(), asyncio.Event()
        self.is_holding = False

    async def put_many(self, puts, **conditions):
        if self.is_holding:
            self.is_holding = False
            self.reached.set()
            await self.let_go.wait()
        return await super().put_many(puts, **conditions)


async def asked_meanwhile(store, first, second):
    """Ask for one thing, and for another while the first is about to write."""
    store.is_holding = True
    store.reached.clear()
    store.let_go.clear()
    one = asyncio.create_task(first)
    await asyncio.wait_for(store.reached.wait(), 5)
    other = asyncio.create_task(second)
    await asyncio.sleep(0.02)
    was_done = other.done()
    store.let_go.set()
    return was_done, await one, await other


@async_test
async def test_a_session_is_deleted_before_or_after_it_is_written_to_and_not_meanwhile():
    store = Held()
    api = client(store)
    for act in ("restore", "snapshots", "import"):
        first, _ = await filled(store)
        document = (await api.get("/agents/ses_1/snapshot")).content
        asked = {
            "restore": lambda at=first: api.post(f"{S}/restore", json={"at": at}),
            "snapshots": lambda: api.post(f"{S}/snapshots"),
            "import": lambda body=document: api.post("/agents/snapshot/restore", content=body),
        }
        was_done, written, deleted = await asked_meanwhile(store, asked[act](), api.delete(S))
        assert not was_done, act
        assert written.status_code in (200, 201)
        good(deleted, 204)
        problem(await api.get(S), 404)
        async with Session.open(store, agent_id="research-bot", session_id="ses_1") as session:
            session.add_message("user", "anew")
        assert (await (await opened(store)).verify()).damage == []
        good(await api.delete(S), 204)


@async_test
async def test_a_part_of_a_session_is_not_written_to_while_all_of_it_is_deleted():
    store = Held()
    await filled(store)
    api = client(store)
    restore = api.post("/agents/bob/sessions/ses_shared/restore", json={"at": "1"})
    was_done, written, deleted = await asked_meanwhile(store, restore, api.delete(SHARED))
    assert not was_done
    good(written)
    good(deleted, 204)
    problem(await api.get("/agents/bob/sessions/ses_shared"), 404)
    assert store._keys
    assert not [key for key in store._keys if key.startswith("sessions/ses_shared/")]


@async_test
async def test_a_snapshot_is_deleted_when_the_session_is_not_written_to():
    store = Held()
    first, _ = await filled(store)
    api = client(store)
    restore = api.post(f"{S}/restore", json={"at": first})
    delete = api.delete(f"{S}/snapshots/{first}")
    was_done, written, deleted = await asked_meanwhile(store, restore, delete)
    assert not was_done
    good(written)
    good(deleted, 204)


@async_test
async def test_a_part_that_is_gone_when_its_turn_comes_is_not_there(store, api, monkeypatch):
    await filled(store)
    catalog = api._transport.app.state.context.catalog
    there = await catalog.locations("ses_shared")
    answers = [there, [place for place in there if place.scope_id != "ann"]] * 2

    async def locations(session_id):
        return answers.pop(0)

    monkeypatch.setattr(catalog, "locations", locations)
    head = {"If-Match": '"0000"'}
    for query in ("", "?dry_run=true"):
        problem(await api.delete(SHARED + query, headers=head), 404, "ses_shared")
    assert answers == []
