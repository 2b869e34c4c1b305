"""Calls that are sent in groups."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.stores import call_queue
from holdfast.stores.call_queue import CallQueue
from support.async_tests import async_test


class Wire:
    """Takes groups of at most three requests; a test decides when each is answered."""

    def __init__(self):
        self.groups = []
        self.cancelled = []
        self.sent_more = asyncio.Event()

    async def wait_for_group(self, count):
        while len(self.groups) < count:
            self.sent_more.clear()
            await self.sent_more.wait()

    async def send(self, take):
        room = iter(range(3))
        requests = take(lambda _: next(room, None) is not None)
        answer = asyncio.get_running_loop().create_future()
        self.groups.append((requests, answer))
        self.sent_more.set()
        try:
            return await answer
        except asyncio.CancelledError:
            self.cancelled.append(requests)
            raise

    def answer(self, at, outcomes=None):
        requests, answer = self.groups[at]
        answer.set_result(outcomes or [request.upper() for request in requests])

    @property
    def sent(self):
        return [requests for requests, _ in self.groups]


def submit(queue, *requests):
    return [asyncio.create_task(queue.submit(request)) for request in requests]


async def run_ready_tasks():
    for _ in range(6):
        await asyncio.sleep(0)


@async_test
async def test_calls_that_arrive_while_one_is_on_its_way_are_sent_together():
    wire = Wire()
    queue = CallQueue(wire.send, max_lanes=4)
    first = submit(queue, "a")
    await run_ready_tasks()
    others = submit(queue, "b", "c", "d", "e")
    await run_ready_tasks()
    assert wire.sent == [["a"]]
    wire.answer(0)
    await run_ready_tasks()
    assert wire.sent == [["a"], ["b", "c", "d"]]
    wire.answer(1, ["B", ValueError("c"), "D"])
    await run_ready_tasks()
    wire.answer(2)
    found = await asyncio.gather(*first, *others, return_exceptions=True)
    assert [str(outcome) for outcome in found] == ["A", "B", "c", "D", "E"]


@async_test
async def test_a_failure_fails_the_group_and_no_other_call():
    wire = Wire()
    queue = CallQueue(wire.send, max_lanes=1)
    calls = submit(queue, "a", "b", "c", "d", "e")
    await run_ready_tasks()
    wire.groups[0][1].set_exception(OSError("lost"))
    await run_ready_tasks()
    wire.groups[1][1].set_exception(OSError("cut"))
    await run_ready_tasks()
    wire.answer(2)
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(outcome) for outcome in found] == ["lost", "cut", "cut", "cut", "E"]


@async_test
async def test_all_calls_that_wait_learn_that_nothing_can_be_sent():
    async def send(_take):
        await asyncio.sleep(0)
        attempts.append(1)
        raise OSError("unreachable")

    attempts = []
    queue = CallQueue(send, max_lanes=1)
    found = await asyncio.gather(*submit(queue, "a", "b", "c"), return_exceptions=True)
    assert [str(outcome) for outcome in found] == ["unreachable"] * 3
    assert len(attempts) == 2


@async_test
async def test_a_cancelled_call_is_not_sent_or_is_over():
    wire = Wire()
    queue = CallQueue(wire.send, max_lanes=1)
    first, one, two = submit(queue, "a", "b", "c")
    await run_ready_tasks()
    wire.answer(0)
    await run_ready_tasks()
    (waiting,) = submit(queue, "d")
    await run_ready_tasks()
    waiting.cancel()
    one.cancel()
    await run_ready_tasks()
    assert waiting.cancelled()
    assert not one.done()  # the group may still be applied
    wire.answer(1)
    with pytest.raises(asyncio.CancelledError):
        await one
    assert await asyncio.gather(first, two) == ["A", "C"]
    assert wire.sent == [["a"], ["b", "c"]]


@async_test
async def test_a_timeout_tells_whether_the_call_was_sent():
    async def submit_briefly(request):
        async with asyncio.timeout(0.02):
            await queue.submit(request)

    queue = CallQueue(Wire().send, max_lanes=1)
    first = asyncio.create_task(submit_briefly("a"))
    await asyncio.sleep(0.001)
    with pytest.raises(TimeoutError) as waiting:
        async with asyncio.timeout(0.001):
            await queue.submit("b")
    assert call_queue.was_not_sent(waiting.value)
    with pytest.raises(TimeoutError) as sent:
        await first
    assert not call_queue.was_not_sent(sent.value)


@async_test
async def test_a_group_that_nobody_waits_for_is_cancelled():
    wire = Wire()
    queue = CallQueue(wire.send, max_lanes=1)
    first, *calls = submit(queue, "a", "b", "c")
    await run_ready_tasks()
    first.cancel()
    await run_ready_tasks()
    assert wire.cancelled == [["a"]]
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    assert wire.cancelled == [["a"], ["b", "c"]]
    (later,) = submit(queue, "d")
    await run_ready_tasks()
    wire.answer(2)
    assert await later == "D"


@async_test
async def test_a_group_that_hangs_does_not_block_the_next(monkeypatch):
    monkeypatch.setattr(call_queue, "STALL", 0.01)
    wire = Wire()
    queue = CallQueue(wire.send, max_lanes=2)
    calls = submit(queue, "a")
    await run_ready_tasks()
    calls += submit(queue, "b")
    await wire.wait_for_group(2)
    wire.answer(1)
    assert await calls[1] == "B"
    calls += submit(queue, "c")
    await wire.wait_for_group(3)
    calls += submit(queue, "d")
    await asyncio.sleep(0.03)
    assert len(wire.groups) == 3  # no more lanes
    wire.answer(0)
    wire.answer(2)
    await run_ready_tasks()
    wire.answer(3)
    assert await asyncio.gather(*calls) == ["A", "B", "C", "D"]
