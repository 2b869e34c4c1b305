"""Requests that write to one session, or delete it, are serialized."""

from __future__ import annotations

import asyncio
import threading

from holdfast import Session
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.rest_api import SES_1, connect, expect_ok, expect_problem, fill_store, open_session

SHARED = "/agents/ann/sessions/ses_shared"


class HeldStore(MemoryStateStore):
    """Holds back one write until it is released."""

    runs_inline = False

    def __init__(self):
        super().__init__()
        self.reached, self.released = asyncio.Event(), asyncio.Event()
        self.is_holding = False

    async def put_many(self, puts, **conditions):
        if self.is_holding:
            self.is_holding = False
            self.reached.set()
            await self.released.wait()
        return await super().put_many(puts, **conditions)


async def send_during_write(store, first, second):
    """Send a request, and a second one while the first is about to write."""
    store.is_holding = True
    store.reached.clear()
    store.released.clear()
    one = asyncio.create_task(first)
    await asyncio.wait_for(store.reached.wait(), 5)
    other = asyncio.create_task(second)
    await asyncio.sleep(0.02)
    was_done = other.done()
    store.released.set()
    return was_done, await one, await other


@async_test
async def test_delete_waits_for_a_write_to_the_session():
    store = HeldStore()
    api = connect(store)
    for action in ("restore", "snapshots", "import"):
        first, _ = await fill_store(store)
        document = (await api.get("/agents/ses_1/snapshot")).content
        requests = {
            "restore": lambda at=first: api.post(f"{SES_1}/restore", json={"at": at}),
            "snapshots": lambda: api.post(f"{SES_1}/snapshots"),
            "import": lambda body=document: api.post("/agents/snapshot/restore", content=body),
        }
        was_done, written, deleted = await send_during_write(
            store, requests[action](), api.delete(SES_1)
        )
        assert not was_done, action
        assert written.status_code in (200, 201)
        expect_ok(deleted, 204)
        expect_problem(await api.get(SES_1), 404)
        async with Session.open(store, agent_id="research-bot", session_id="ses_1") as session:
            session.add_message("user", "hello again")
        assert (await (await open_session(store)).verify()).damage == []
        expect_ok(await api.delete(SES_1), 204)


@async_test
async def test_delete_waits_for_a_write_by_another_agent_of_the_session():
    store = HeldStore()
    await fill_store(store)
    api = connect(store)
    restore = api.post("/agents/bob/sessions/ses_shared/restore", json={"at": "1"})
    was_done, written, deleted = await send_during_write(store, restore, api.delete(SHARED))
    assert not was_done
    expect_ok(written)
    expect_ok(deleted, 204)
    expect_problem(await api.get("/agents/bob/sessions/ses_shared"), 404)
    assert store._keys
    assert not [key for key in store._keys if key.startswith("sessions/ses_shared/")]


class BlockedStore(MemoryStateStore):
    """Blocks the thread of a write until it is released."""

    is_blocked = False

    def __init__(self):
        super().__init__()
        self.reached, self.released = threading.Event(), threading.Event()

    async def put_many(self, puts, **conditions):
        if self.is_blocked:
            self.reached.set()
            self.released.wait(30)
        return await super().put_many(puts, **conditions)


@async_test
async def test_import_that_timed_out_holds_the_lock_until_it_ends():
    store = BlockedStore()
    await fill_store(store)
    api = connect(store)
    document = (await api.get("/agents/ses_1/snapshot")).content
    store.is_blocked = True
    importing = asyncio.create_task(api.post("/agents/snapshot/restore", content=document))
    await asyncio.to_thread(store.reached.wait, 10)
    importing.cancel()  # as after --timeout
    await asyncio.wait([importing])
    deleting = asyncio.create_task(api.delete(SES_1))
    await asyncio.sleep(0.02)
    assert not deleting.done()
    store.released.set()
    expect_ok(await deleting, 204)
    assert not [key for key in store._keys if key.startswith("sessions/ses_1/")]


@async_test
async def test_delete_of_a_snapshot_waits_for_a_write_to_the_session():
    store = HeldStore()
    first, _ = await fill_store(store)
    api = connect(store)
    restore = api.post(f"{SES_1}/restore", json={"at": first})
    delete = api.delete(f"{SES_1}/snapshots/{first}")
    was_done, written, deleted = await send_during_write(store, restore, delete)
    assert not was_done
    expect_ok(written)
    expect_ok(deleted, 204)


@async_test
async def test_delete_gets_404_if_the_session_is_gone_once_it_has_the_lock(store, api, monkeypatch):
    await fill_store(store)
    catalog = api._transport.app.state.context.catalog
    found = await catalog.locations("ses_shared")
    results = [found, [each for each in found if each.scope_id != "ann"]] * 2

    async def locations(session_id):
        return results.pop(0)

    monkeypatch.setattr(catalog, "locations", locations)
    head = {"If-Match": '"0000"'}
    for query in ("", "?dry_run=true"):
        expect_problem(await api.delete(SHARED + query, headers=head), 404, "ses_shared")
    assert results == []
