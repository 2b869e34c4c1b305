"""A state store that injects faults, planned at a call number or random.

    error      refused: ``StateStoreError``, nothing was written
    unknown    no response: ``StateStoreError(unknown=True)``; the write was done (a lost
               acknowledgement) or not
    delay      a slow call or a slow response
    stale      a read returns the data of some writes ago, like a replica or a cache
    cancelled  the task was cancelled: ``CancelledError``, done or not
    crash      the process died: ``Crash``, done or not; all later calls raise it too

An atomic ``put_many`` counts as one write, others as one write per put, so a fault at the third
write tears the batch. Conditions are always checked against current data, even after a stale
read, as every state store must.

The data is in the inner store. Another process is another `FaultyStateStore` around it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, TypeVar, get_args

from holdfast.errors import ConflictError, StateStoreError, short_repr
from holdfast.stores.base import Condition, Entry, Etags, Put, StateStore
from holdfast.stores.local import pause
from holdfast.stores.validation import (
    KeyRange,
    validate_batch,
    validate_etag,
    validate_key,
    validate_keys,
    validate_limit,
    validate_put,
    validate_range,
)
from holdfast.stores.wrappers.base import WrappedStateStore

Answer = TypeVar("Answer")
Kind: TypeAlias = Literal["error", "unknown", "delay", "stale", "cancelled", "crash"]
Calls: TypeAlias = Literal["writes", "reads"]
Before: TypeAlias = dict[str, Entry | None]
"""Earlier entries by key; None for a missing key."""

KINDS: tuple[Kind, ...] = get_args(Kind)
USUAL: tuple[Kind, ...] = ("error", "unknown", "delay")
"""Default kinds of random faults: those of any network."""

BEHIND = 8
"""How many writes a random stale read may be behind."""


class Crash(BaseException):
    """The simulated process died. A ``BaseException``, so that agents do not catch it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at one call, counted from 1.

    With ``done`` a write is complete before it fails, and a listing yields its keys first. ``of``
    is what is counted: ``"writes"``, or ``"reads"`` (``get``, ``get_many`` and ``list``).
    ``behind`` is the number of writes a stale read is behind, ``seconds`` the length of a delay.

    Raises:
        ValueError: An argument is invalid.

    """

    at: int
    kind: Kind
    done: bool = False
    of: Calls = "writes"
    behind: int = 1
    seconds: float = 0.01

    def __post_init__(self) -> None:
        if self.at < 1:
            raise ValueError(f"at must be 1 or more, got {short_repr(self.at)}")
        if self.kind not in KINDS:
            raise ValueError(f"kind must be one of {', '.join(KINDS)}, got {short_repr(self.kind)}")
        if self.of not in get_args(Calls):
            raise ValueError(f'of must be "writes" or "reads", got {short_repr(self.of)}')
        if self.kind == "error" and self.done and self.of == "writes":
            raise ValueError('an "error" cannot be done; use kind="unknown"')
        if self.kind == "stale" and self.of != "reads":
            raise ValueError('only reads can be stale; pass of="reads"')
        if self.behind < 1:
            raise ValueError(f"behind must be 1 or more, got {short_repr(self.behind)}")

    def error(self) -> BaseException:
        """Return the error that the caller gets."""
        if self.kind == "crash":
            return Crash(str(self))
        if self.kind == "cancelled":
            return asyncio.CancelledError(str(self))
        # The effect of a read is never unknown.
        unknown = self.kind == "unknown" and self.of == "writes"
        return StateStoreError(f"injected fault: {self}", transient=True, unknown=unknown)

    def __str__(self) -> str:
        when = "after" if self.done else "before"
        return f"{self.kind} {when} {self.of.removesuffix('s')} {self.at}"


class FaultyStateStore(WrappedStateStore):
    """Inject planned faults, and random ones at a ``rate`` from 0 to 1.

    The same calls with the same ``seed`` fail in the same way. ``kinds`` are the kinds of random
    faults. ``atomic=False`` makes ``put_many`` write one entry after another, so it can be torn.
    ``longest_delay`` limits random delays, in seconds.

    ``remember`` is the number of writes that stale reads can go back; each write then costs a read
    of the inner store. Default: as many as the plan or ``kinds`` need.

    Raises:
        ValueError: An argument is invalid.

    """

    def __init__(
        self,
        inner: StateStore,
        plan: Iterable[Fault] = (),
        *,
        rate: float = 0.0,
        seed: int | str = 0,
        kinds: Sequence[Kind] = USUAL,
        atomic: bool | None = None,
        longest_delay: float = 0.01,
        remember: int | None = None,
    ) -> None:
        super().__init__(inner)
        if atomic and not inner.atomic_put_many:
            raise ValueError(f"put_many of {inner!r} is not atomic; pass atomic=False or None")
        if unknown := set(kinds) - set(KINDS):
            raise ValueError(
                f"kinds must be of {', '.join(KINDS)}, got {short_repr(unknown.pop())}"
            )
        if not 0 <= rate <= 1:
            raise ValueError(f"rate must be from 0 to 1, got {short_repr(rate)}")
        planned = list(plan)
        if remember is None:
            remember = max((each.behind for each in planned if each.kind == "stale"), default=0)
            if rate and "stale" in kinds:
                remember = max(remember, BEHIND)
        self.atomic_put_many = inner.atomic_put_many if atomic is None else atomic
        self.conditional_put_many = inner.conditional_put_many and self.atomic_put_many
        self.rate = rate
        """May be changed at any time; 0 stops random faults."""
        self.kinds = tuple(kinds)
        self.longest_delay = longest_delay
        self.reads = 0
        self.writes = 0
        self.faults: list[Fault] = []
        """The faults that happened, in order."""
        self._random = random.Random(seed)  # noqa: S311 - not a secret
        self._past: deque[Before] = deque(maxlen=remember)
        self._planned: dict[tuple[Calls, int], Fault] = {}
        self._dead = False
        self.plan(*planned)

    def plan(self, *faults: Fault | None) -> None:
        """Reset the counters and replace the planned faults. None is ignored.

        Raises:
            ValueError: A stale read is further behind than the store remembers.

        """
        self.reads = self.writes = 0
        self.faults = []
        self._planned = {(each.of, each.at): each for each in faults if each is not None}
        for each in self._planned.values():
            if each.kind == "stale" and each.behind > (self._past.maxlen or 0):
                raise ValueError(
                    f"a read {each.behind} writes behind exceeds remember={self._past.maxlen}; "
                    f"pass remember={each.behind}"
                )

    @property
    def counts(self) -> dict[str, int]:
        """The number of faults that happened, by kind."""
        return dict(Counter(each.kind for each in self.faults))

    # ----------------------------------------------------------------------------------- reads

    async def get(self, key: str) -> Entry | None:
        """Return the entry of a key, or None."""
        key = validate_key(key)

        async def stale(behind: int) -> Entry | None:
            before = self._before(behind)
            return before[key] if key in before else await self.inner.get(key)

        return await self._call("reads", lambda: self.inner.get(key), stale)

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Return the entries of existing keys, in the requested order."""
        wanted = validate_keys(keys)

        async def stale(behind: int) -> dict[str, Entry]:
            found = {**await self.inner.get_many(wanted), **self._before(behind)}
            return {key: entry for key in wanted if (entry := found.get(key)) is not None}

        return await self._call("reads", lambda: self.inner.get_many(wanted), stale)

    def list(
        self, prefix: str = "", *, start_after: str = "", limit: int | None = None
    ) -> AsyncIterator[str]:
        """List the keys with a prefix, in order, after another key, at most ``limit``."""
        self._check_alive()
        return self._list(validate_range(prefix, start_after), validate_limit(limit))

    async def _list(self, span: KeyRange, limit: int | None) -> AsyncIterator[str]:
        async def stale(behind: int) -> AsyncIterator[str]:
            return iterate_keys(await self._keys_before(behind, span, limit))

        async def fresh() -> AsyncIterator[str]:
            return self.inner.list(span.prefix, start_after=span.after, limit=limit)

        late = self._next("reads")
        if late is not None and not (late.done and late.kind not in ("delay", "stale")):
            keys = await self._inject(late, fresh, stale)
            late = None
        else:
            keys = await fresh()
        async for key in keys:
            yield key
        if late is not None:
            await self._inject(late, fresh, stale)

    async def _keys_before(self, behind: int, span: KeyRange, limit: int | None) -> Sequence[str]:
        """Return a listing as of some writes ago."""
        before = self._before(behind)
        most = None if limit is None else limit + len(before)
        now = self.inner.list(span.prefix, start_after=span.after, limit=most)
        keys = {key async for key in now if before.get(key, key) is not None}
        keys.update(
            key for key, entry in before.items() if entry is not None and span.contains(key)
        )
        return sorted(keys)[:limit]

    # ---------------------------------------------------------------------------------- writes

    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Write a value under a condition; return the new etag."""
        put = validate_put(key, value, if_match, if_absent)
        return await self._write(
            [put.key],
            lambda: self.inner.put(
                put.key, put.value, if_match=put.if_match, if_absent=put.if_absent
            ),
        )

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several values if the conditions hold; return their etags in order."""
        writes, needed = validate_batch(puts, conditions)
        if not self.atomic_put_many and (writes or needed):
            return await StateStore.put_many(self, writes, conditions=needed)
        keys = [put.key for put in writes]
        return await self._write(keys, lambda: self.inner.put_many(writes, conditions=needed))

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Delete a key under a condition; return whether it existed."""
        key, match = validate_key(key), validate_etag(if_match)
        return await self._write([key], lambda: self.inner.delete(key, if_match=match))

    async def _write(self, keys: Sequence[str], act: Callable[[], Awaitable[Answer]]) -> Answer:
        async def write_and_remember() -> Answer:
            found = await self.inner.get_many(keys)
            answer = await act()
            self._past.append({key: found.get(key) for key in keys})
            return answer

        return await self._call("writes", write_and_remember if self._past.maxlen else act)

    def _before(self, behind: int) -> Before:
        """Return the earlier entries of the keys written in the last ``behind`` writes."""
        before: Before = {}
        for each in itertools.islice(reversed(self._past), behind):
            before.update(each)
        return before

    # ---------------------------------------------------------------------------------- faults

    async def _call(
        self,
        of: Calls,
        act: Callable[[], Awaitable[Answer]],
        stale: Callable[[int], Awaitable[Answer]] | None = None,
    ) -> Answer:
        fault = self._next(of)
        return await act() if fault is None else await self._inject(fault, act, stale)

    def _next(self, of: Calls) -> Fault | None:
        """Count a call and return its fault, if any."""
        self._check_alive()
        if of == "reads":
            self.reads += 1
            at = self.reads
        else:
            self.writes += 1
            at = self.writes
        planned = self._planned.get((of, at))
        if planned is not None or not self.rate or self._random.random() >= self.rate:
            return planned
        return self._draw(of, at)

    def _draw(self, of: Calls, at: int) -> Fault | None:
        """Return a random fault; None if no kind applies to such a call."""
        kinds = [kind for kind in self.kinds if kind != "stale" or (of == "reads" and self._past)]
        if not kinds:
            return None
        kind = self._random.choice(kinds)
        done = kind not in ("error", "stale") and self._random.random() < 0.5
        behind = self._random.randint(1, max(1, len(self._past)))
        seconds = self._random.uniform(0, self.longest_delay)
        return Fault(at, kind, done, of, behind, seconds)

    async def _inject(
        self,
        fault: Fault,
        act: Callable[[], Awaitable[Answer]],
        stale: Callable[[int], Awaitable[Answer]] | None,
    ) -> Answer:
        """Apply a fault to a call."""
        self.faults.append(fault)
        if fault.kind == "stale" and stale is not None:
            return await stale(fault.behind)
        if fault.kind == "delay":
            return await call_delayed(act, fault)
        try:
            if fault.done:
                await act()
        except ConflictError:
            # The caller does not learn that its condition failed.
            raise fault.error() from None
        finally:
            self._dead = fault.kind == "crash"
        raise fault.error()

    def _check_alive(self) -> None:
        if self._dead:
            raise Crash("this process has crashed")


async def call_delayed(act: Callable[[], Awaitable[Answer]], fault: Fault) -> Answer:
    """Call late, or respond late."""
    if not fault.done:
        await pause(fault.seconds)
        return await act()
    answer = await act()
    await pause(fault.seconds)
    return answer


async def iterate_keys(keys: Iterable[str]) -> AsyncIterator[str]:
    """Yield known keys as a listing."""
    for key in keys:
        yield key
