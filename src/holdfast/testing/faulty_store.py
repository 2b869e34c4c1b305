"""A store that fails as it is told to: at a call of a certain number, or now and then by chance.

    error      refused: ``StateStoreError``, and nothing of this write is there
    unknown    no answer in time: ``StateStoreError(unknown=True)``; the write was done, which is a
               lost acknowledgement, or was not
    delay      it takes its time, before it is done or before the answer comes
    stale      a read answers with what was there some writes ago, as a replica or a cache may
    cancelled  the task was cancelled meanwhile: ``CancelledError``, done or not
    crash      the process ended: ``Crash``, done or not, and this object does nothing any more

Writes are counted as they reach the home of the bytes: a ``put_many`` is one write where it is
atomic, and as many as it has puts where it is not. So a fault at the third write of a batch tears
it, and leaves the first two. Conditions are always checked against the truth, also after a read
that was stale: that is what a store has to promise, whatever stands in front of it.

The bytes are in the store inside. A process that starts again, or another process, is another
`FaultyStateStore` around the same one.
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
"""What keys held once; None for one that held nothing."""

KINDS: tuple[Kind, ...] = get_args(Kind)
USUAL: tuple[Kind, ...] = ("error", "unknown", "delay")
"""What happens by chance where nothing else is said: what any network does."""

BEHIND = 8
"""How many writes a read by chance may be behind."""


class Crash(BaseException):
    """The process ended here. Only what plays the operating system catches it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of one call, counted from 1.

    ``done`` says of a write whether it is there afterwards, and of a listing whether its keys come
    before it fails. ``of`` says what is counted: ``"writes"``, or ``"reads"``, which are ``get``,
    ``get_many`` and ``list``. ``behind`` is for stale reads: by how many writes. ``seconds`` is how
    long a delay takes.
    """

    at: int
    kind: Kind
    done: bool = False
    of: Calls = "writes"
    behind: int = 1
    seconds: float = 0.01

    def __post_init__(self) -> None:
        if self.at < 1:
            raise ValueError(f"calls are counted from 1, and {short_repr(self.at)} is none of them")
        if self.kind not in KINDS:
            raise ValueError(f"a fault is one of {', '.join(KINDS)}, not {short_repr(self.kind)}")
        if self.of not in get_args(Calls):
            raise ValueError(f'a fault is of "writes" or of "reads", not {short_repr(self.of)}')
        if self.kind == "error" and self.done and self.of == "writes":
            raise ValueError('what is refused is not done: "unknown" is what may be done')
        if self.kind == "stale" and self.of != "reads":
            raise ValueError('a read is stale, and not a write: give of="reads"')
        if self.behind < 1:
            raise ValueError(
                f"a stale read is 1 write behind or more, not {short_repr(self.behind)}"
            )

    def error(self) -> BaseException:
        """What the caller gets."""
        if self.kind == "crash":
            return Crash(str(self))
        if self.kind == "cancelled":
            return asyncio.CancelledError(str(self))
        # Of a read there is nothing to be unsure of.
        unknown = self.kind == "unknown" and self.of == "writes"
        return StateStoreError(f"a fault on purpose: {self}", transient=True, unknown=unknown)

    def __str__(self) -> str:
        when = "after" if self.done else "before"
        return f"{self.kind} {when} {self.of.removesuffix('s')} {self.at}"


class FaultyStateStore(WrappedStateStore):
    """Lets planned calls fail, and of the others a part, ``rate``, by chance.

    The same calls with the same ``seed`` fail in the same way. ``kinds`` are those that happen by
    chance. ``atomic=False`` makes it a store whose ``put_many`` is put after put, and so can tear.
    ``longest_delay`` is in seconds, for delays by chance.

    ``remember`` says of how many writes it keeps what was there before, for stale reads; each costs
    a read of the store inside. Without it they are as many as the plan or ``kinds`` need.
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
            raise ValueError(f"put_many of {inner!r} is not atomic, and cannot be made so")
        if unknown := set(kinds) - set(KINDS):
            raise ValueError(
                f"a fault is one of {', '.join(KINDS)}, not {short_repr(unknown.pop())}"
            )
        if not 0 <= rate <= 1:
            raise ValueError(f"rate is a part of all calls, from 0 to 1, not {short_repr(rate)}")
        planned = list(plan)
        if remember is None:
            remember = max((each.behind for each in planned if each.kind == "stale"), default=0)
            if rate and "stale" in kinds:
                remember = max(remember, BEHIND)
        self.atomic_put_many = inner.atomic_put_many if atomic is None else atomic
        self.conditional_put_many = inner.conditional_put_many and self.atomic_put_many
        self.rate = rate
        """May be changed at any time: 0 ends the faults that come by chance."""
        self.kinds = tuple(kinds)
        self.longest_delay = longest_delay
        self.reads = 0
        self.writes = 0
        self.faults: list[Fault] = []
        """Those that happened, in order."""
        self._random = random.Random(seed)  # noqa: S311 - no secret
        self._past: deque[Before] = deque(maxlen=remember)
        self._planned: dict[tuple[Calls, int], Fault] = {}
        self._dead = False
        self.plan(*planned)

    def plan(self, *faults: Fault | None) -> None:
        """Count from here, and let these happen. None is no fault."""
        self.reads = self.writes = 0
        self.faults = []
        self._planned = {(each.of, each.at): each for each in faults if each is not None}
        for each in self._planned.values():
            if each.kind == "stale" and each.behind > (self._past.maxlen or 0):
                raise ValueError(
                    f"it remembers {self._past.maxlen} writes, and a read that is {each.behind} "
                    f"behind was planned: give remember={each.behind}"
                )

    @property
    def counts(self) -> dict[str, int]:
        """How many faults of each kind happened."""
        return dict(Counter(each.kind for each in self.faults))

    # ----------------------------------------------------------------------------------- reads

    async def get(self, key: str) -> Entry | None:
        """What the key holds, or None."""
        key = validate_key(key)

        async def stale(behind: int) -> Entry | None:
            before = self._before(behind)
            return before[key] if key in before else await self.inner.get(key)

        return await self._call("reads", lambda: self.inner.get(key), stale)

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """What the keys hold, in the order asked, without those that hold nothing."""
        wanted = validate_keys(keys)

        async def stale(behind: int) -> dict[str, Entry]:
            found = {**await self.inner.get_many(wanted), **self._before(behind)}
            return {key: entry for key in wanted if (entry := found.get(key)) is not None}

        return await self._call("reads", lambda: self.inner.get_many(wanted), stale)

    def list(
        self, prefix: str = "", *, start_after: str = "", limit: int | None = None
    ) -> AsyncIterator[str]:
        """The keys that start with the prefix and come after another, in order, at most so many."""
        self._check_alive()
        return self._list(validate_range(prefix, start_after), validate_limit(limit))

    async def _list(self, span: KeyRange, limit: int | None) -> AsyncIterator[str]:
        async def stale(behind: int) -> AsyncIterator[str]:
            return each_of(await self._keys_before(behind, span, limit))

        async def fresh() -> AsyncIterator[str]:
            return self.inner.list(span.prefix, start_after=span.after, limit=limit)

        late = self._next("reads")
        if late is not None and not (late.done and late.kind not in ("delay", "stale")):
            keys = await self._happen(late, fresh, stale)
            late = None
        else:
            keys = await fresh()
        async for key in keys:
            yield key
        if late is not None:
            await self._happen(late, fresh, stale)

    async def _keys_before(self, behind: int, span: KeyRange, limit: int | None) -> Sequence[str]:
        """A listing as it was so many writes ago."""
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
        """Write, where the key still has this etag or is absent if so asked; gives the new etag."""
        put = validate_put(key, value, if_match, if_absent)
        return await self._write(
            [put.key],
            lambda: self.inner.put(
                put.key, put.value, if_match=put.if_match, if_absent=put.if_absent
            ),
        )

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several, each key once, where the conditions hold; gives the new etags in order."""
        writes, needed = validate_batch(puts, conditions)
        if not self.atomic_put_many and (writes or needed):
            return await StateStore.put_many(self, writes, conditions=needed)
        keys = [put.key for put in writes]
        return await self._write(keys, lambda: self.inner.put_many(writes, conditions=needed))

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Remove, where the key still has this etag if so asked; whether there was one."""
        key, match = validate_key(key), validate_etag(if_match)
        return await self._write([key], lambda: self.inner.delete(key, if_match=match))

    async def _write(self, keys: Sequence[str], act: Callable[[], Awaitable[Answer]]) -> Answer:
        async def remembered() -> Answer:
            found = await self.inner.get_many(keys)
            answer = await act()
            self._past.append({key: found.get(key) for key in keys})
            return answer

        return await self._call("writes", remembered if self._past.maxlen else act)

    def _before(self, behind: int) -> Before:
        """What those keys held that were written since, so many writes ago."""
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
        return await act() if fault is None else await self._happen(fault, act, stale)

    def _next(self, of: Calls) -> Fault | None:
        """Count a call; what is to become of it."""
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
        return self._drawn(of, at)

    def _drawn(self, of: Calls, at: int) -> Fault | None:
        """A fault by chance; None where none of the kinds can happen to such a call."""
        kinds = [kind for kind in self.kinds if kind != "stale" or (of == "reads" and self._past)]
        if not kinds:
            return None
        kind = self._random.choice(kinds)
        done = kind not in ("error", "stale") and self._random.random() < 0.5
        behind = self._random.randint(1, max(1, len(self._past)))
        seconds = self._random.uniform(0, self.longest_delay)
        return Fault(at, kind, done, of, behind, seconds)

    async def _happen(
        self,
        fault: Fault,
        act: Callable[[], Awaitable[Answer]],
        stale: Callable[[int], Awaitable[Answer]] | None,
    ) -> Answer:
        """What becomes of a call that a fault befalls."""
        self.faults.append(fault)
        if fault.kind == "stale" and stale is not None:
            return await stale(fault.behind)
        if fault.kind == "delay":
            return await delayed(act, fault)
        try:
            if fault.done:
                await act()
        except ConflictError:
            # That its condition did not hold is what the caller does not hear.
            raise fault.error() from None
        finally:
            self._dead = fault.kind == "crash"
        raise fault.error()

    def _check_alive(self) -> None:
        if self._dead:
            raise Crash("this process has ended, and does nothing any more")


async def delayed(act: Callable[[], Awaitable[Answer]], fault: Fault) -> Answer:
    """Do it late, or answer late."""
    if not fault.done:
        await asyncio.sleep(fault.seconds)
        return await act()
    answer = await act()
    await asyncio.sleep(fault.seconds)
    return answer


async def each_of(keys: Iterable[str]) -> AsyncIterator[str]:
    """Keys that are known, as a listing."""
    for key in keys:
        yield key
