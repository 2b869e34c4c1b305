"""A store whose writes can fail, each in every way in which a write can.

    error      refused: ``StateStoreError``, and nothing of this write is there
    unknown    no answer: ``StateStoreError(unknown=True)``, the write was done or was not
    cancelled  the task was cancelled meanwhile: ``CancelledError``, done or not
    crash      the process ended: ``Crash``, done or not, and this object does nothing any more

Writes are counted as they reach the home of the bytes: a ``put_many`` is one write where it is
atomic, and as many as it has puts where it is not. So a fault before the third write of a batch
leaves the first two of it.

The bytes are in the store inside. A process that starts again, or another process, is another
`FaultyStateStore` around the same one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from holdfast import ConflictError, StateStoreError
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.base import WrappedStateStore

Kind = Literal["error", "unknown", "cancelled", "crash"]


class Crash(BaseException):
    """The process ended here. Only a test that plays the operating system catches it."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of one write, counted from 1; ``done`` says whether it is there afterwards."""

    at: int
    kind: Kind
    done: bool = False

    def __post_init__(self):
        assert not (self.kind == "error" and self.done), "what is refused is not done"

    def error(self) -> BaseException:
        """What the caller of the write gets."""
        what = f"write {self.at} of this test, {'done' if self.done else 'not done'}"
        if self.kind == "crash":
            return Crash(what)
        if self.kind == "cancelled":
            return asyncio.CancelledError(what)
        return StateStoreError(what, transient=True, unknown=self.kind == "unknown")

    def __str__(self) -> str:
        return f"{self.kind} {'after' if self.done else 'before'} write {self.at}"


WAYS: list[tuple[Kind, bool]] = [
    ("error", False),
    ("unknown", False),
    ("unknown", True),
    ("cancelled", False),
    ("cancelled", True),
    ("crash", False),
    ("crash", True),
]
"""Every kind of fault, not done and done."""

RAISED = (StateStoreError, asyncio.CancelledError, Crash)
"""What comes of them."""


class FaultyStateStore(WrappedStateStore):
    """Counts the writes that reach the store inside, and lets one of them fail.

    ``atomic=False`` makes it one whose ``put_many`` is put after put.
    """

    def __init__(self, inner: MemoryStateStore, *, atomic: bool = True) -> None:
        super().__init__(inner)
        self.atomic_put_many = atomic
        self.writes = 0
        self.happened: Fault | None = None
        self.meanwhile: Callable[[], None] | None = None
        """Done while the next write is under way, as another task would."""
        self._fault: Fault | None = None
        self._dead = False

    def plan(self, fault: Fault | None) -> None:
        """Count from here, and let this happen."""
        self.writes = 0
        self.happened = None
        self._fault = fault

    async def get(self, key):
        self._check_alive()
        return await self.inner.get(key)

    async def get_many(self, keys):
        self._check_alive()
        return await self.inner.get_many(keys)

    def list(self, prefix="", *, start_after="", limit=None):
        self._check_alive()
        return self.inner.list(prefix, start_after=start_after, limit=limit)

    async def put(self, key, value, *, if_match=None, if_absent=False):
        return await self._write(
            lambda: self.inner.put(key, value, if_match=if_match, if_absent=if_absent)
        )

    async def put_many(self, puts):
        if self.atomic_put_many:
            return await self._write(lambda: self.inner.put_many(puts))
        return [
            await self.put(put.key, put.value, if_match=put.if_match, if_absent=put.if_absent)
            for put in puts
        ]

    async def delete(self, key, *, if_match=None):
        return await self._write(lambda: self.inner.delete(key, if_match=if_match))

    async def _write(self, do):
        self._check_alive()
        self.writes += 1
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        fault = self._fault
        if fault is None or fault.at != self.writes:
            return await do()
        self.happened = fault
        try:
            if fault.done:
                await do()
        except ConflictError:
            # That its condition did not hold is what the caller does not hear.
            raise fault.error() from None
        finally:
            self._dead = fault.kind == "crash"
        raise fault.error()

    def _check_alive(self) -> None:
        if self._dead:
            raise Crash("this process has ended, and does nothing any more")
