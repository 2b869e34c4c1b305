"""File operations in threads."""

from __future__ import annotations

import asyncio
import threading

import pytest

from holdfast.stores.portal import run_inline
from holdfast.workspaces.threads import run_all, run_to_end
from support.async_tests import async_test


@async_test
async def test_a_cancelled_caller_waits_for_the_thread():
    started, ended, may_end = threading.Event(), threading.Event(), threading.Event()

    def work():
        started.set()
        may_end.wait(10)
        ended.set()

    task = asyncio.create_task(run_to_end(work))
    await asyncio.to_thread(started.wait, 10)
    task.cancel()
    await asyncio.sleep(0.01)
    assert not task.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


def test_work_runs_inline_where_there_is_no_event_loop():
    assert run_inline(run_to_end(threading.get_ident)) == threading.get_ident()


@async_test
async def test_all_run_to_their_ends_and_the_first_error_is_raised():
    done = []

    async def work(number):
        await asyncio.sleep(0.001 * number)
        done.append(number)
        if number == 1:
            raise ValueError(number)

    with pytest.raises(ValueError, match="1"):
        await run_all(work(number) for number in range(4))
    assert done == [0, 1, 2, 3]
