"""A conditional write to one subject, applied once in as many attempts as it takes."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from holdfast.stores.nats.connection import NatsConnection
from holdfast.stores.nats.subjects import ABSENT, Etag
from holdfast.stores.notification import get_process_id

FIRST_PAUSE = 0.002
MAX_PAUSE = 0.25
"""Bounds, in seconds, of the pauses of a writer that lost to others: see ``backoff_pauses``."""


@dataclass(slots=True)
class ConditionalWrite:
    """A message that replaces another one."""

    subject: str
    token: str
    headers: Mapping[str, str]
    value: bytes
    replaces: Etag | None
    """What it replaces, or None to read it first."""

    allow: Callable[[str | None], bool]
    """Whether to write over an etag, which is None if absent. May raise ConflictError."""

    tried: Etag = ABSENT
    """What the last attempt wanted to replace."""

    async def run(self, connection: NatsConnection, *, unsure: bool) -> tuple[int, Etag]:
        """Write, and return the message's sequence and what it replaced; 0 if not allowed."""
        old = None if unsure else self.replaces
        pauses = backoff_pauses()
        while True:
            if old is None:
                last = await connection.last(self.subject)
                if last is not None and last.write_token == self.token:
                    return last.revision, self.tried  # an earlier attempt succeeded
                if not self.allow(None if last is None or not last.is_entry else str(last.etag)):
                    return 0, ABSENT
                old = ABSENT if last is None else last.etag
            self.tried = old
            revision = await connection.write(self.subject, self.value, self.headers, old.revision)
            if revision is not None:
                return revision, old
            # Another writer was first. Retrying at once would lose again to writers nearby.
            await asyncio.sleep(next(pauses))
            old = None


def backoff_pauses() -> Iterator[float]:
    """Yield the seconds to wait before each retry: none, then growing, with jitter."""
    yield 0.0
    longest = FIRST_PAUSE
    while True:
        yield random.uniform(0, longest)  # noqa: S311 - not a secret
        longest = min(longest * 2, MAX_PAUSE)


def new_write_token() -> str:
    """Return a token that no other write has; it starts with the id of this process."""
    return get_process_id() + secrets.token_hex(8)
