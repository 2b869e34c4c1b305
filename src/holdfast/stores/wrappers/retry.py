"""Retries after transient failures, for stores that do not retry by themselves.

A wrapper cannot add a token to a write in order to recognize it. So it only repeats calls that may
run twice: reads, writes without a condition, and writes that the store reports as not applied. A
conditional write whose response was lost is not repeated: it would conflict with itself.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TypeVar

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

ATTEMPTS = 5
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 2.0


class RetryingStateStore(WrappedStateStore):
    """A store that retries calls that failed with a transient ``StateStoreError``.

    ``attempts`` includes the first one. The pauses double from ``first_pause`` to
    ``longest_pause``, in seconds, with random jitter. A listing has this many attempts per key.
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
            raise TypeError(f"attempts must be an int, got {short_repr(attempts)}")
        if attempts < 1:
            raise ValueError(f"attempts must be 1 or more, got {attempts}")
        if not 0 <= first_pause <= longest_pause < float("inf"):
            raise ValueError(
                "first_pause must be at least 0 and at most longest_pause, got "
                f"{short_repr(first_pause)} and {short_repr(longest_pause)}"
            )
        self.attempts = attempts
        self.first_pause = first_pause
        self.longest_pause = longest_pause

    async def get(self, key: str) -> Entry | None:
        """Return the entry of a key, or None if there is none."""
        key = validate_key(key)
        return await self._retry(lambda _: self.inner.get(key))

    async def get_many(self, keys: Iterable[str]) -> dict[str, Entry]:
        """Return the existing entries of several keys, in the given order."""
        wanted = validate_keys(keys)
        return await self._retry(lambda _: self.inner.get_many(wanted))

    async def put(
        self, key: str, value: bytes, *, if_match: str | None = None, if_absent: bool = False
    ) -> str:
        """Write a value and return its etag."""
        put = validate_put(key, value, if_match, if_absent)
        return await self._retry(
            lambda _: self.inner.put(
                put.key, put.value, if_match=put.if_match, if_absent=put.if_absent
            ),
            writes=True,
            repeatable=not is_conditional(put),
        )

    async def put_many(self, puts: Iterable[Put], *, conditions: Iterable[Condition] = ()) -> Etags:
        """Write several values, each key once, and return their etags in the given order."""
        writes, needed = validate_batch(puts, conditions)
        if writes and not self.inner.atomic_put_many:
            # A batch that failed may be partly written, and would conflict with itself.
            return await StateStore.put_many(self, writes, conditions=needed)
        return await self._retry(
            lambda _: self.inner.put_many(writes, conditions=needed),
            writes=True,
            # The keys of conditions may have changed since the write whose response was lost.
            repeatable=not needed and not any(is_conditional(put) for put in writes),
        )

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """Delete a key and return whether it existed.

        If a response was lost and a retry does not find the key, it returns True. With
        ``if_match``, another writer may have deleted it, so it raises an error with ``unknown``.
        """
        key, etag = validate_key(key), validate_etag(if_match)

        async def attempt(lost: StateStoreError | None) -> bool:
            try:
                return await self.inner.delete(key, if_match=etag) or lost is not None
            except ConflictError as conflict:
                if lost is None:
                    raise
                raise StateStoreError(
                    f"the response to a delete was lost ({lost}), and the next attempt found a "
                    f"conflict: {conflict}; the key may or may not have been deleted by this call",
                    unknown=True,
                ) from conflict

        return await self._retry(attempt, writes=True)

    def list(
        self, prefix: str = "", *, start_after: str = "", limit: int | None = None
    ) -> AsyncIterator[str]:
        """Yield the keys that start with a prefix, in code point order."""
        return self._list(validate_range(prefix, start_after), validate_limit(limit))

    async def _list(self, key_range: KeyRange, limit: int | None) -> AsyncIterator[str]:
        left = limit
        failures = 0
        keys: AsyncIterator[str] | None = None
        while left is None or left > 0:
            try:
                if keys is None:
                    keys = self.inner.list(
                        key_range.prefix, start_after=key_range.after, limit=left
                    )
                key = await anext(keys)
            except StopAsyncIteration:
                return
            except StateStoreError as failure:
                failures += 1
                if not failure.transient or failures == self.attempts:
                    raise
                await pause(self._pause(failures))
                keys = None
                continue
            failures = 0
            key_range = key_range.rest_after(key)
            left = None if left is None else left - 1
            yield key

    async def _retry(
        self,
        call: Callable[[StateStoreError | None], Awaitable[Answer]],
        *,
        writes: bool = False,
        repeatable: bool = True,
    ) -> Answer:
        """Call until it succeeds, or its failure is not transient, or the attempts are used up.

        Args:
            call: The call. Its argument is the failure of an earlier attempt that may have been
                applied, or None.
            writes: Whether it writes.
            repeatable: Whether it may run again after such an attempt.

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
                again = failure.transient and (repeatable or lost is None)
                if not again or failures == self.attempts:
                    if lost is None or failure.unknown:
                        raise
                    raise unknown_outcome_error(failure) from failure
            await pause(self._pause(failures))

    def _pause(self, failures: int) -> float:
        """Return the seconds to wait after this many failures in a row."""
        longest = min(self.first_pause * 2.0 ** min(failures - 1, 60), self.longest_pause)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - not a secret


def is_conditional(put: Put) -> bool:
    """Return whether a write has a condition."""
    return put.if_absent or put.if_match is not None


def unknown_outcome_error(failure: StateStoreError) -> StateStoreError:
    """Return the last failure of a write, with ``unknown`` because of an earlier attempt."""
    return StateStoreError(
        f"{failure}; an earlier attempt may or may not have been applied: read before retrying",
        transient=failure.transient,
        unknown=True,
    )
