"""Calls that are done again where a failure may pass, for stores that do not do so themselves.

A wrapper cannot mark a write so as to know it again. So it repeats only what may be done twice:
reads, writes without a condition, and those of which the store says that they were not done. A
conditional write whose answer got lost is not repeated: it would take itself for somebody else.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

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

ATTEMPTS = 5
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0


class RetryingStateStore(WrappedStateStore):
    """Repeats what failed with a ``StateStoreError`` that is ``transient``.

    ``attempts`` counts the first one. The pauses between them double from ``first_pause`` up to
    ``longest_pause``, in seconds, each shortened by chance so that many clients do not keep step.
    A listing has as many attempts for each key that it gives.
    """

    def __init__(
        self,
        inner: StateStore,
        attempts: int = ATTEMPTS,
        first_pause: float = FIRST_PAUSE,
        longest_pause: float = LONGEST_PAUSE,
    ) -> None:
        super().__init__(inner)
        if isinstance(attempts, bool) or not isinstance(attempts, int):
            raise TypeError(f"attempts is an int, not {short_repr(attempts)}")
        if attempts < 1:
            raise ValueError(f"attempts is 1 or more, not {attempts}")
        if not 0 <= first_pause <= longest_pause < float("inf"):
            raise ValueError(
                "first_pause and longest_pause are seconds, the first not longer than the other; "
                f"not {short_repr(first_pause)} and {short_repr(longest_pause)}"
            )
        self.attempts = attempts
        self.first_pause = first_pause
        self.longest_pause = longest_pause

    async def get(self, key: str) -> Entry | None:
        """What the key holds, or None."""
        key = validate_key(key)
        return await self._repeated(lambda _: self.inner.get(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """What the keys hold, in the order asked, without those that hold nothing."""
        wanted = validate_keys(keys)
        return await self._repeated(lambda _: self.inner.get_many(wanted))

    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Write, where the key still has this etag or is absent if so asked; gives the new etag."""
        put = validate_put(key, value, if_match, if_absent)
        return await self._repeated(
            lambda _: self.inner.put(
                put.key, put.value, if_match=put.if_match, if_absent=put.if_absent
            ),
            writes=True,
            twice=not is_conditional(put),
        )

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several, each key once, where the conditions hold; gives the new etags in order."""
        writes, needed = validate_batch(puts, conditions)
        if writes and not self.inner.atomic_put_many:
            # Of a batch that failed, some are written: repeated whole, it would meet itself.
            return await StateStore.put_many(self, writes, conditions=needed)
        return await self._repeated(
            lambda _: self.inner.put_many(writes, conditions=needed),
            writes=True,
            # What a condition is about may have changed after the write that got lost.
            twice=not needed and not any(is_conditional(put) for put in writes),
        )

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Remove, where the key still has this etag if so asked; whether there was one.

        Where an answer got lost and a further attempt finds nothing, it counts as removed. With
        ``if_match`` that would be to claim what another may have done, and the error says that the
        outcome is not known.
        """
        key, match = validate_key(key), validate_etag(if_match)

        async def attempt(lost: StateStoreError | None) -> bool:
            try:
                return await self.inner.delete(key, if_match=match) or lost is not None
            except ConflictError as conflict:
                if lost is None:
                    raise
                raise StateStoreError(
                    f"the answer to a delete got lost ({lost}), and meanwhile: {conflict}. Whether "
                    "this call removed it is not known",
                    unknown=True,
                ) from conflict

        return await self._repeated(attempt, writes=True)

    def list(
        self, prefix: str = "", *, start_after: str = "", limit: int | None = None
    ) -> AsyncIterator[str]:
        """The keys that start with the prefix and come after another, in order, at most so many."""
        return self._list(validate_range(prefix, start_after), validate_limit(limit))

    async def _list(self, span: KeyRange, limit: int | None) -> AsyncIterator[str]:
        left = limit
        failures = 0
        keys: AsyncIterator[str] | None = None
        while left is None or left > 0:
            try:
                if keys is None:
                    keys = self.inner.list(span.prefix, start_after=span.after, limit=left)
                key = await anext(keys)
            except StopAsyncIteration:
                return
            except StateStoreError as failure:
                failures += 1
                if not failure.transient or failures == self.attempts:
                    raise
                await asyncio.sleep(self._pause(failures))
                keys = None
                continue
            failures = 0
            span = span.beyond(key)
            left = None if left is None else left - 1
            yield key

    async def _repeated(
        self,
        call: Callable[[StateStoreError | None], Awaitable[Answer]],
        *,
        writes: bool = False,
        twice: bool = True,
    ) -> Answer:
        """Call until it succeeds, or fails in a way that does not pass.

        ``call`` is given the failure of an earlier attempt that may have been done all the same.
        ``twice``: whether one more may follow such an attempt.
        """
        lost: StateStoreError | None = None
        failures = 0
        while True:
            try:
                return await call(lost)
            except StateStoreError as failure:
                failures += 1
                if writes and failure.unknown:
                    lost = failure
                again = failure.transient and (twice or lost is None)
                if not again or failures == self.attempts:
                    if lost is None or failure.unknown:
                        raise
                    raise unknown_outcome_error(failure) from failure
            await asyncio.sleep(self._pause(failures))

    def _pause(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row."""
        longest = min(self.first_pause * 2.0 ** min(failures - 1, 60), self.longest_pause)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - no secret


def is_conditional(put: Put) -> bool:
    """Whether a write depends on what is there."""
    return put.if_absent or put.if_match is not None


def unknown_outcome_error(failure: StateStoreError) -> StateStoreError:
    """The last failure of a write, after an earlier one whose outcome is not known."""
    return StateStoreError(
        f"{failure}. Whether an earlier attempt was done is not known: read before trying again",
        transient=failure.transient,
        unknown=True,
    )
