"""The contents of blobs as a mapping, which reads a blob when its value is needed."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from holdfast.blobs.reader import BlobReader
from holdfast.errors import IntegrityError, NotFoundError
from holdfast.process_fork import ForkSafeLock
from holdfast.stores.base import StateStore
from holdfast.stores.local import RUN_INLINE
from holdfast.stores.portal import get_portal, run_inline
from holdfast.values.references import BlobReference

T = TypeVar("T")

logger = logging.getLogger(__name__)

_lock = ForkSafeLock("the contents of blobs", wait_on_fork=False)

CACHE_BYTES = 1 << 26
"""How many bytes of contents are kept in memory, besides those in use."""


class BlobContents(Mapping[str, bytes]):
    """The contents of the blobs of a session by digest.

    A lookup blocks while it reads a blob that is not in memory; `load` reads ahead without blocking
    the event loop. The contents that were used last are kept.
    """

    def __init__(self, state_store: StateStore, location_prefix: str) -> None:
        self.reader = BlobReader(state_store, location_prefix)
        self._cache: OrderedDict[str, bytes] = OrderedDict()
        self._size = 0

    def __getitem__(self, digest: str) -> bytes:
        content = self._find(digest)
        if content is None:
            content = run_blocking(self.reader.state_store, self.reader.read(digest))
            self._keep(digest, content)
        return content

    async def load(self, references: Iterable[BlobReference]) -> None:
        """Read blobs ahead, as far as they fit into the memory for contents.

        One that is missing or damaged is skipped: the error is raised where its value is read.

        Raises:
            StateStoreError: The store failed.

        """
        left = CACHE_BYTES
        for each in references:
            left -= each.size
            if left < 0:
                return
            if self._find(each.digest) is None:
                try:
                    content = await self.reader.read(each.digest, each.size)
                except (NotFoundError, IntegrityError) as error:
                    logger.info("blob was not read ahead: %s", error)
                else:
                    self._keep(each.digest, content)

    def _find(self, digest: str) -> bytes | None:
        with _lock:
            content = self._cache.get(digest)
            if content is not None:
                self._cache.move_to_end(digest)
            return content

    def _keep(self, digest: str, content: bytes) -> None:
        with _lock:
            if digest not in self._cache:
                self._cache[digest] = content
                self._size += len(content)
                while self._size > CACHE_BYTES and len(self._cache) > 1:
                    _, dropped = self._cache.popitem(last=False)
                    self._size -= len(dropped)

    __hash__ = object.__hash__
    __eq__ = object.__eq__

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._cache))

    def __len__(self) -> int:
        return len(self._cache)


def run_blocking(state_store: StateStore, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that reads a store, and block until it is done."""
    if state_store.runs_inline or RUN_INLINE.get():
        return run_inline(work)
    # A loop of its own: the caller may be running in the portal of blocking calls.
    return get_portal("blobs").call(work)
