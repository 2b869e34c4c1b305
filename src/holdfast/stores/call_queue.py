"""Send calls in groups: those that arrive while others are on their way go together.

A server does the work of several calls in one round trip, often in one transaction with one sync of
the disk, and the client handles one request and one response. A call that arrives when nothing is
on its way is sent at once, so a single caller never waits for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeAlias, TypeVar

from holdfast.stores.local import RUN_INLINE

Request = TypeVar("Request")
Outcome = TypeVar("Outcome")
Take: TypeAlias = Callable[[Callable[[Request], bool]], list[Request]]

STALL = 0.1
"""Seconds that a call waits for a group that hangs, say on a lock, before the next one is sent."""


NOT_SENT = object()
"""In the ``CancelledError`` of a call that was cancelled while it waited."""


def get_outcome(outcomes: Sequence[Outcome | Exception]) -> Outcome:
    """Return the outcome of the only call of a group, or raise it."""
    (outcome,) = outcomes
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def was_not_sent(error: TimeoutError) -> bool:
    """Tell whether a call ran into its ``asyncio.timeout`` while it waited in a queue."""
    cause = error.__cause__
    return isinstance(cause, asyncio.CancelledError) and NOT_SENT in cause.args


class Group(Generic[Request, Outcome]):
    """Calls that are sent together, by one task."""

    def __init__(self) -> None:
        self.calls: list[QueuedCall[Request, Outcome]] = []
        self.task: asyncio.Task[None] | None = None


class QueuedCall(Generic[Request, Outcome]):
    """A call that waits, or is on its way with a group."""

    def __init__(self, request: Request, loop: asyncio.AbstractEventLoop) -> None:
        self.request = request
        self.since = loop.time()
        self.future: asyncio.Future[Outcome] = loop.create_future()
        self.group: Group[Request, Outcome] | None = None


class CallQueue(Generic[Request, Outcome]):
    """The calls of one event loop.

    ``send`` sends a group. When it is ready to, it calls ``take`` with a function that tells
    whether a request may join the group, and it returns their outcomes in the same order. An
    outcome that is an exception is raised to its caller. If ``send`` itself raises, all calls of
    the group fail, or all that wait if none was taken yet.

    One group is on its way at a time, and up to ``max_lanes`` if calls stall.
    """

    def __init__(
        self,
        send: Callable[[Take[Request]], Awaitable[Sequence[Outcome | Exception]]],
        *,
        max_lanes: int,
    ) -> None:
        self._send = send
        self._max_lanes = max_lanes
        self._waiting: list[QueuedCall[Request, Outcome]] = []
        self._groups: set[Group[Request, Outcome]] = set()
        self._timer: asyncio.TimerHandle | None = None

    async def submit(self, request: Request) -> Outcome:
        """Send a request and return its outcome. Raises what ``send`` returns or raises.

        A call that is cancelled while it waits is not sent. If it is on its way, it is over, done
        or not, when this raises ``CancelledError``; the server is asked to cancel a request that
        no other call shares. Calls that run inline are sent at once, each alone.
        """
        if RUN_INLINE.get():
            return get_outcome(await self._send(lambda _: [request]))
        loop = asyncio.get_running_loop()
        if not self._groups and not self._waiting:
            return await self._send_alone(request, loop)
        call = QueuedCall[Request, Outcome](request, loop)
        self._waiting.append(call)
        self._start(loop)
        try:
            return await call.future
        except asyncio.CancelledError:
            if call in self._waiting:
                self._waiting.remove(call)
                raise asyncio.CancelledError(NOT_SENT) from None
            await self._abandon(call)
            raise

    async def _send_alone(self, request: Request, loop: asyncio.AbstractEventLoop) -> Outcome:
        """Send a request at once, in the task of its caller."""
        group = Group[Request, Outcome]()
        self._groups.add(group)
        try:
            return get_outcome(await self._send(lambda _: [request]))
        finally:
            self._groups.discard(group)
            self._start(loop)

    async def _abandon(self, call: QueuedCall[Request, Outcome]) -> None:
        group = call.group
        if group is not None and group.task is not None and not group.task.done():
            if all(each.future.done() for each in group.calls):
                group.task.cancel()
            await asyncio.wait([group.task])

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send the queued calls if a lane is free, or when the oldest one has stalled."""
        if not self._waiting:
            return
        patience = self._waiting[0].since + STALL - loop.time()
        if len(self._groups) < (1 if patience > 0 else self._max_lanes):
            group = Group[Request, Outcome]()
            self._groups.add(group)
            group.task = loop.create_task(self._run(group, loop))
        elif self._timer is None:
            self._timer = loop.call_later(max(patience, STALL / 10), self._relieve, loop)

    def _relieve(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._start(loop)

    async def _run(self, group: Group[Request, Outcome], loop: asyncio.AbstractEventLoop) -> None:
        def take(accepts: Callable[[Request], bool]) -> list[Request]:
            waiting, self._waiting = self._waiting, []
            for call in waiting:
                if accepts(call.request):
                    call.group = group
                    group.calls.append(call)
                else:
                    self._waiting.append(call)
            return [call.request for call in group.calls]

        outcomes: Sequence[Outcome | Exception]
        try:
            outcomes = await self._send(take)
        except asyncio.CancelledError:
            for call in group.calls:
                call.future.cancel()
            raise
        except Exception as error:  # noqa: BLE001 - raised to the callers
            if not group.calls:
                take(lambda _: True)
            outcomes = [error] * len(group.calls)
        finally:
            self._groups.discard(group)
            self._start(loop)
        for call, outcome in zip(group.calls, outcomes, strict=True):
            if call.future.done():
                continue
            if isinstance(outcome, Exception):
                call.future.set_exception(outcome)
            else:
                call.future.set_result(outcome)
