"""Work of requests in threads, and what a request reads."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar
from functools import partial

import pytest

from holdfast.server.request_threads import THREADS, RequestThreads
from holdfast.stores.local import gather, pause, run_in_thread
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.rest_api import connect, expect_ok, expect_problem, fill_store

NAME: ContextVar[str] = ContextVar("name", default="")
SESSION = "/agents/research-bot/sessions/ses_1"


class CountedStore(MemoryStateStore):
    """Counts what is asked of it."""

    def __init__(self):
        super().__init__()
        self.forget()

    def forget(self):
        self.read, self.listings = [], 0

    async def _get(self, key):
        self.read.append(key)
        return await super()._get(key)

    async def _get_many(self, keys):
        self.read += keys
        return await super()._get_many(keys)

    def list(self, prefix="", **bounds):
        self.listings += 1
        return super().list(prefix, **bounds)


@pytest.fixture
def threads():
    return RequestThreads(MemoryStateStore())


@async_test
async def test_work_runs_in_one_thread_with_the_context_of_its_caller(threads):
    async def work():
        first = threading.current_thread()
        await pause(0.001)
        second = await run_in_thread(threading.current_thread)
        third = await gather([run_in_thread(threading.current_thread)])
        return {first, second, *third, threading.current_thread()}, NAME.get()

    NAME.set("here")
    found, name = await threads.run(work)
    assert len(found) == 1
    assert threading.current_thread() not in found
    assert name == "here"


@async_test
async def test_error_is_raised_in_the_caller(threads):
    async def work():
        return await run_in_thread(int, "x")

    with pytest.raises(ValueError, match="invalid literal"):
        await threads.run(work)
    with pytest.raises(RuntimeError, match="needs an event loop"):
        await threads.run(partial(asyncio.sleep, 0))


@async_test
async def test_cancelled_work_holds_its_lock_to_its_end(threads):
    started, released, ended = threading.Event(), threading.Event(), []

    async def work():
        started.set()
        released.wait(30)
        ended.append(True)

    async def follow():
        assert ended

    lock = asyncio.Lock()
    task = asyncio.create_task(threads.run(work, lock=lock))
    await asyncio.to_thread(started.wait, 10)
    following = asyncio.create_task(threads.run(follow, lock=lock))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert lock.locked()
    assert not following.done()
    released.set()
    await following
    await threads.wait_until_idle(10)
    assert not lock.locked()


@async_test
async def test_cancelled_work_that_waits_for_a_thread_is_not_done(threads):
    busy, done = threading.Event(), []

    async def block():
        busy.wait(30)

    async def work():
        done.append(True)

    lock = asyncio.Lock()
    blocking = [asyncio.create_task(threads.run(block)) for _ in range(THREADS)]
    await asyncio.sleep(0)
    task = asyncio.create_task(threads.run(work, lock=lock))
    await asyncio.sleep(0)
    task.cancel()
    busy.set()
    await asyncio.gather(*blocking)
    with pytest.raises(asyncio.CancelledError):
        await task
    await threads.wait_until_idle(10)
    assert not done
    assert not lock.locked()


@async_test
async def test_store_that_belongs_to_a_loop_is_used_in_it():
    store = MemoryStateStore()
    store.runs_inline = False

    async def work():
        return threading.current_thread()

    assert await RequestThreads(store).run(work) is threading.current_thread()


@async_test
async def test_long_request_does_not_delay_others():
    class Slow(MemoryStateStore):
        async def _page(self, key_range, count):
            if threading.current_thread() is not here and not released.is_set():
                reached.set()
                released.wait(30)
            return await super()._page(key_range, count)

    here, reached, released = threading.current_thread(), threading.Event(), threading.Event()
    store = Slow()
    await fill_store(store)
    api = connect(store)
    long = asyncio.create_task(api.get("/agents"))
    await asyncio.to_thread(reached.wait, 10)
    expect_ok(await api.get("/health/live"))
    assert not long.done()
    released.set()
    expect_ok(await long)


# -------------------------------------------------------------------------- what a request reads


@async_test
async def test_unchanged_session_is_exported_from_memory():
    store = CountedStore()
    await fill_store(store)
    api = connect(store)
    first = await api.get("/agents/ses_1/snapshot")
    store.forget()
    again = await api.get("/agents/ses_1/snapshot")
    assert again.content == first.content
    assert len(store.read) == len(set(store.read)) == 5
    assert store.listings <= 3
    assert first.headers["content-length"] == str(len(first.content))
    tag = first.headers["etag"]
    assert tag.startswith('W/"')
    for known in (tag, tag.removeprefix("W/")):
        unchanged = await api.get("/agents/ses_1/snapshot", headers={"If-None-Match": known})
        assert (unchanged.status_code, unchanged.content) == (304, b"")
    saved = expect_ok(await api.post(f"{SESSION}/snapshots"), 201)
    other = await api.get("/agents/ses_1/snapshot", headers={"If-None-Match": tag})
    assert expect_ok(other)["parent_id"] == saved["snapshot_id"]
    expect_ok(await api.delete(f"{SESSION}/snapshots/{saved['snapshot_id']}"), 204)
    before = expect_ok(await api.get("/agents/ses_1/snapshot"))
    assert before["parent_id"] == first.json()["parent_id"]


@pytest.mark.parametrize("path", ["state?at=2", "state", "events/2", "diff?from=1&to=2", "events"])
@async_test
async def test_step_of_the_slider_reads_three_keys(path):
    store = CountedStore()
    await fill_store(store)
    api = connect(store)
    first = await api.get(f"{SESSION}/{path}")
    store.forget()
    assert expect_ok(await api.get(f"{SESSION}/{path}")) == first.json()
    assert len(store.read) == 3
    assert store.listings == 0


@async_test
async def test_parameters_that_were_valid_once_do_not_make_others_valid():
    store = CountedStore()
    await fill_store(store)
    api = connect(store)
    expect_ok(await api.get(f"{SESSION}/state?at=2"))
    expect_problem(await api.get(f"{SESSION}/state?at=2&wrong=1"), 422, "wrong")
    expect_problem(await api.get(f"{SESSION}/state?at=x y"), 422)
    expect_problem(await api.get(f"{SESSION}/state?at=999"), 404, "no event 999")
