"""The portal runs coroutines for callers without an event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from contextvars import ContextVar

import pytest

from holdfast import open_state_store
from holdfast.stores.entries import Put
from holdfast.stores.local import RUN_INLINE, pause
from holdfast.stores.portal import Lanes, Portal, get_portal, run_inline, sync
from holdfast.stores.wrappers.encryption import new_key
from support.subprocesses import run_python

VARIABLE = ContextVar("variable", default="")


async def give(value):
    await asyncio.sleep(0)
    return value


async def get_thread_and_loop():
    return threading.current_thread(), asyncio.get_running_loop()


async def fail(error):
    await asyncio.sleep(0)
    raise error


def test_a_call_returns_the_result_of_the_coroutine():
    assert get_portal().call(give(7)) == 7
    assert get_portal().call(give(None)) is None


@pytest.mark.parametrize("error", [KeyError("x"), RuntimeError("y"), asyncio.CancelledError()])
def test_a_call_raises_the_error_of_the_coroutine(error):
    with pytest.raises(BaseException) as caught:
        get_portal().call(fail(error))
    # concurrent.futures raises its own CancelledError.
    assert type(caught.value).__name__ == type(error).__name__
    assert get_portal().call(give(1)) == 1


def test_a_portal_has_one_loop_in_its_own_thread():
    assert get_portal() is get_portal()
    thread, loop = get_portal().call(get_thread_and_loop())
    assert (thread, loop) == get_portal().call(get_thread_and_loop())
    assert thread is not threading.current_thread()
    assert thread.name == "holdfast-portal"
    assert thread.daemon


def test_threads_call_at_the_same_time():
    portals, waiting = [], threading.Barrier(8)

    def call():
        waiting.wait()
        portals.append(get_portal().call(get_thread_and_loop()))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(portals) == 8
    assert len(set(portals)) == 1


def test_calls_of_several_threads_do_not_wait_for_each_other():
    meet = asyncio.Event()

    async def first():
        await asyncio.wait_for(meet.wait(), 10)
        return "met"

    async def second():
        meet.set()

    found = []
    thread = threading.Thread(target=lambda: found.append(get_portal().call(first())))
    thread.start()
    get_portal().call(second())
    thread.join()
    assert found == ["met"]


def test_a_call_from_another_loop_works():
    async def work():
        return get_portal().call(give("inside"))

    assert asyncio.run(work()) == "inside"


def test_a_call_from_its_own_loop_is_an_error():
    async def work():
        return get_portal().call(give(1))

    with pytest.raises(RuntimeError, match="use the async Session there"):
        get_portal().call(work())
    assert get_portal().call(give(2)) == 2


def test_an_interrupt_cancels_the_work():
    """As Ctrl-C does it, in the main thread."""
    begun, cancelled = threading.Event(), threading.Event()

    async def endless():
        begun.set()
        try:
            await asyncio.sleep(600)
        finally:
            cancelled.set()

    def interrupt():
        begun.wait(10)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt):
            get_portal().call(endless())
    finally:
        signal.signal(signal.SIGINT, before)
    assert cancelled.wait(10)
    assert get_portal().call(give(3)) == 3


def test_portals_have_different_loops():
    other = Portal()
    assert other.call(get_thread_and_loop()) != get_portal().call(get_thread_and_loop())

    async def across():
        return get_portal().call(give("across"))

    assert other.call(across()) == "across"
    other._loop.call_soon_threadsafe(other._loop.stop)
    other._thread.join()
    other._loop.close()


AFTER_A_FORK = """
import asyncio, os, threading
from holdfast.stores.portal import Portal, get_portal
from holdfast.stores.sqlite.store import SqliteStateStore

async def where():
    return threading.current_thread().ident, os.getpid()

before = get_portal()
assert before.call(where())[1] == os.getpid()
child = os.fork()
if child == 0:
    good = get_portal() is not before and get_portal().call(where())[1] == os.getpid()
    os._exit(0 if good else 1)
assert os.waitpid(child, 0)[1] == 0
assert get_portal() is before
assert before.call(where())[1] == os.getpid()
print("done")
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_has_its_own_loop():
    # In a subprocess, because forking a process with threads raises a warning.
    done = run_python(AFTER_A_FORK)
    assert done.stdout == "done\n", done.stderr


@pytest.mark.parametrize("url", ["memory:", "sqlite:///{}/a.db", "file://{}/b"])
@pytest.mark.parametrize("wrapped", ["", "?compress=zstd", "?retry=3&encrypt=PORTAL_KEY&prefix=p/"])
def test_a_local_store_works_on_the_calling_thread(url, wrapped, tmp_path, monkeypatch):
    monkeypatch.setenv("PORTAL_KEY", new_key())
    store = open_state_store(url.format(tmp_path) + wrapped)

    async def used():
        etag = await store.put("a", b"1")
        await store.put_many([Put("b", b"2" * 300_000), Put("a", b"3", if_match=etag)])
        await store.delete("c")
        return [key async for key in store.list()], await store.get_many(["a", "b"])

    threads = threading.active_count()
    keys, found = run_inline(used())
    assert (keys, found["a"].value, len(found["b"].value)) == (["a", "b"], b"3", 300_000)
    assert threading.active_count() == threads
    assert not RUN_INLINE.get()
    sync(store.close())


def test_work_that_needs_an_event_loop_is_refused():
    async def sleeping():
        await Suspension()

    class Suspension:
        def __await__(self):
            yield

    with pytest.raises(RuntimeError, match="needs an event loop"):
        run_inline(sleeping())


def test_closing_a_portal_ends_its_thread():
    here = Portal()
    before = threading.active_count()
    here.close()
    assert threading.active_count() == before - 1


def test_work_for_another_loop_starts_in_order_and_survives_a_cancellation():
    here, begun, ended = Portal(), [], []

    async def work(number):
        begun.append(number)
        await asyncio.sleep(0.01)
        ended.append(number)
        if number % 2:
            raise ValueError(number)
        return number

    async def ask():
        calls = [asyncio.create_task(here.call_from_loop(work(number))) for number in range(6)]
        await asyncio.sleep(0)
        for call in calls[:4]:
            call.cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    try:
        outcomes = asyncio.run(ask())
    finally:
        here.close()
    assert begun == ended == list(range(6))
    assert all(isinstance(each, asyncio.CancelledError) for each in outcomes[:4])
    assert outcomes[4] == 4
    assert isinstance(outcomes[5], ValueError)


def test_a_loop_may_be_closed_before_its_work_ends(capfd):
    here, ended = Portal(), threading.Event()

    async def work():
        await asyncio.sleep(0.05)
        ended.set()

    async def ask():
        asyncio.create_task(here.call_from_loop(work()))  # noqa: RUF006 - cancelled with the loop
        await asyncio.sleep(0)

    asyncio.run(ask())
    assert ended.wait(5)
    here.close()
    assert capfd.readouterr().err == ""


# ------------------------------------------------------------------------------------------ lanes


def test_work_in_a_lane_runs_in_order_and_survives_a_cancellation():
    lanes, begun, ended = Lanes(), [], []

    async def work(number):
        begun.append(number)
        await pause(0.01)
        assert begun == [*ended, number]
        ended.append(number)
        if number % 2:
            raise ValueError(number)
        return number

    async def ask():
        calls = [asyncio.create_task(lanes.call_from_loop("a", work(n))) for n in range(6)]
        await asyncio.sleep(0)
        for call in calls[:4]:
            call.cancel()
        return await asyncio.gather(*calls, return_exceptions=True)

    outcomes = asyncio.run(ask())
    assert ended == list(range(6))
    assert all(isinstance(each, asyncio.CancelledError) for each in outcomes[:4])
    assert outcomes[4] == 4
    assert isinstance(outcomes[5], ValueError)


def test_work_that_is_refused_does_not_run_later(monkeypatch):
    lanes, ran = Lanes(), []

    async def work(number):
        ran.append((number, VARIABLE.get()))

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            lanes.submit("a", work(1))
    token = VARIABLE.set("of the caller")
    lanes.submit("a", work(2)).result(10)
    VARIABLE.reset(token)
    assert ran == [(2, "of the caller")]


def test_lanes_run_at_the_same_time_for_any_loop():
    lanes, barrier = Lanes(), threading.Barrier(3, timeout=5)

    async def meet():
        barrier.wait()
        return threading.current_thread()

    async def ask(*names):
        return await asyncio.gather(*(lanes.call_from_loop(name, meet()) for name in names))

    other = threading.Thread(target=lambda: asyncio.run(ask("c")))
    other.start()
    one, two = asyncio.run(ask("a", "b"))
    other.join()
    assert one is not two


LANES_IN_CHILD = """
import asyncio, os, threading
from holdfast.stores.portal import Lanes

lanes, release = Lanes(), threading.Event()

async def block():
    release.wait(5)

async def give():
    return 7

async def run():
    call = asyncio.create_task(lanes.call_from_loop("a", block()))
    await asyncio.sleep(0.05)
    child = os.fork()
    if not child:
        answer = []
        thread = threading.Thread(
            target=lambda: answer.append(asyncio.run(lanes.call_from_loop("a", give())))
        )
        thread.start()
        thread.join(5)
        os._exit(answer != [7])
    status = os.waitpid(child, 0)[1]
    release.set()
    await call
    return status

assert asyncio.run(run()) == 0
print("done")
"""


def test_a_forked_process_has_its_own_lanes():
    done = run_python(LANES_IN_CHILD)
    assert done.stdout.strip() == "done", done.stderr
