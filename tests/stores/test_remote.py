"""The base class of network stores, with scripted failures."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast import ConflictError, StateStoreError
from holdfast.stores.backend import key_exists_error
from holdfast.stores.remote import RemoteStateStore
from holdfast.stores.urls import StoreURL
from support.async_tests import async_test


class DriverError(Exception):
    """An error of the driver."""


class Client:
    def __init__(self):
        self.loop = asyncio.get_running_loop()
        self.closed = False


class ScriptedStore(RemoteStateStore[Client]):
    """A store that follows a script, call by call."""

    failures = (DriverError,)

    def __init__(self, *script, **options):
        super().__init__(StoreURL("redis://:hunter2@host"), **options)
        self.script = list(script)
        self.clients = []
        self.unsure = []
        self.slow_close = 0.0

    async def _connect(self):
        if self.script and self.script[0] == "unreachable":
            self.script.pop(0)
            raise DriverError("no such server: hunter2")
        self.clients.append(Client())
        return self.clients[-1]

    async def _disconnect(self, client):
        await asyncio.sleep(self.slow_close)
        client.closed = True

    def _explain_error(self, error):
        return StateStoreError(str(error), transient="final" not in str(error), unknown=True)

    async def act(self, **options):
        async def call(_, unsure):
            self.unsure.append(unsure)
            step = self.script.pop(0)
            if isinstance(step, Exception):
                raise step
            if step == "hang":
                await asyncio.sleep(60)
            return step

        return await self._run(call, **options)

    async def _get(self, key):
        return await self.act()

    _put = _delete = _page = _get


@async_test
async def test_transient_failures_are_retried():
    store = ScriptedStore(DriverError("cut"), DriverError("cut"), "done")
    assert await store.act() == "done"
    assert store.unsure == [False, False, False]  # a read is never unsure


@async_test
async def test_a_retried_write_knows_that_it_may_have_been_applied():
    store = ScriptedStore(DriverError("cut"), "done")
    assert await store.act(writes=True) == "done"
    assert store.unsure == [False, True]


@async_test
async def test_a_server_that_was_never_reached_is_not_retried():
    store = ScriptedStore("unreachable")
    with pytest.raises(StateStoreError) as caught:
        await store.act(writes=True)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None  # its text has the password
    store = ScriptedStore("done", "unreachable", "done")
    assert await store.act() == "done"
    store.clients.clear()
    store._connections.clear()
    assert await store.act() == "done"


@async_test
async def test_the_outcome_of_a_write_is_unknown_when_patience_ends():
    store = ScriptedStore(*[DriverError("cut")] * 1000, patience=0.1)
    with pytest.raises(
        StateStoreError, match="may or may not have been applied: read before writing"
    ) as caught:
        await store.act(writes=True)
    assert caught.value.unknown
    assert caught.value.transient
    assert isinstance(caught.value.__cause__, DriverError)


@async_test
async def test_a_permanent_failure_is_raised_at_once():
    store = ScriptedStore("done", DriverError("final"), "never")
    await store.act()
    with pytest.raises(StateStoreError, match="final"):
        await store.act()
    assert store.script == ["never"]


@async_test
async def test_an_attempt_that_takes_too_long_times_out():
    store = ScriptedStore("hang", "done", timeout=0.05)
    assert await store.act(writes=True) == "done"
    assert store.unsure == [False, True]
    store = ScriptedStore(*["hang"] * 50, timeout=0.01, patience=0.05)
    with pytest.raises(StateStoreError, match=r"within 0.01 seconds.*option timeout") as caught:
        await store.act()
    assert not caught.value.unknown


@async_test
async def test_a_conflict_is_raised_unless_the_write_may_conflict_with_itself():
    store = ScriptedStore(key_exists_error("k"))
    with pytest.raises(ConflictError):
        await store.act(writes=True, matches=True)
    store = ScriptedStore(DriverError("cut"), key_exists_error("k"))
    with pytest.raises(ConflictError):
        await store.act(writes=True)
    store = ScriptedStore(DriverError("cut"), key_exists_error("k"))
    with pytest.raises(StateStoreError, match="response to a write was lost") as caught:
        await store.act(writes=True, matches=True)
    assert caught.value.unknown


def test_each_event_loop_has_a_client_and_closed_loops_are_forgotten():
    store = ScriptedStore("one", "two", "three")
    for _ in range(3):
        asyncio.run(store.act())
    assert len(store.clients) == 3
    assert len(store._connections) <= 1


def test_closing_disconnects_the_clients_of_all_loops():
    store = ScriptedStore("here", "there")
    ready, over = threading.Event(), threading.Event()

    async def elsewhere():
        await store.act()
        ready.set()
        while not over.is_set():  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.01)

    other = threading.Thread(target=lambda: asyncio.run(elsewhere()))
    other.start()
    ready.wait(10)

    async def here():
        await store.act()
        await store.close()

    asyncio.run(here())
    over.set()
    other.join()
    assert [client.closed for client in store.clients] == [True, True]


@async_test
async def test_a_cancelled_close_is_finished_by_the_next():
    store = ScriptedStore("done")
    await store.act()
    store.slow_close = 5
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(store.close(), 0.05)
    store.slow_close = 0
    await store.close()
    assert store.clients[0].closed
    with pytest.raises(StateStoreError, match="closed"):
        await store.get("a")
