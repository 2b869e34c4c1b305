"""The few calls that the store makes of a Dapr sidecar, and what their failures mean.

Both clients of the SDK serve: the one for asyncio, and the blocking one, in threads.

Of a write that was not done Dapr tells little: an etag that does not match is ABORTED or INTERNAL,
by component and call, and so is a lost connection to the database. So a write here has two ends,
done and refused, and whoever was refused reads again to learn why. What may have been done all the
same is an error that says so.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.error import HTTPError
from urllib.request import urlopen

import grpc  # type: ignore[import-untyped]
from dapr.aio.clients import DaprClient as AsyncDaprClient
from dapr.clients import DaprClient, DaprInternalError
from dapr.clients.grpc._request import TransactionalStateOperation, TransactionOperationType
from dapr.clients.grpc._state import Concurrency, Consistency, StateOptions
from dapr.clients.http.helpers import get_api_url

from holdfast.errors import StateStoreError

Client: TypeAlias = DaprClient | AsyncDaprClient
Code = grpc.StatusCode

FAILURES: tuple[type[Exception], ...] = (grpc.RpcError, DaprInternalError)

ONLY_IF_SAME = StateOptions(consistency=Consistency.strong, concurrency=Concurrency.first_write)
"""With an etag: only over what has it. Without: only where there is nothing."""

MESSAGE = 64 * 1024 * 1024
"""The largest message of our own client. The sidecar has its own limit, 4 MB by default."""

START = 3.0
"""Seconds to wait for a sidecar that is just being started."""

SEVERAL = 100
"""How many records to ask for at once."""

REFUSALS = (Code.ABORTED, Code.INTERNAL, Code.UNKNOWN)
DISTURBED = re.compile(
    r"connect|connection|timeout|timed out|deadline|\beof\b|broken pipe|reset by|refused|"
    r"\bi/o\b|unavailable|closed|cancell?ed|no route|loading",
    re.IGNORECASE,
)
"""What a component says that lost its database: whether the write was done is not known then."""

NEVER_SENT = re.compile(r"failed to connect|connection refused|dns resolution", re.IGNORECASE)

WORKING = (
    "components with etags work, such as state.redis, state.postgresql, state.mysql, state.sqlite, "
    "state.mongodb, state.azure.cosmosdb and state.in-memory"
)


@dataclass(frozen=True, slots=True)
class Component:
    """What the sidecar says of a component."""

    type: str
    capabilities: frozenset[str]


@dataclass(frozen=True, slots=True)
class Write:
    """One of several writes. No value: a delete. No etag: whatever is there."""

    name: str
    value: bytes | None
    etag: str


class SharedRecord:
    """Those of this program who use one record at the same time.

    They share what one of them reads after they asked, and when one has written, the others who
    saw what was there before are not sent to be refused.
    """

    def __init__(self) -> None:
        self.reading = asyncio.Lock()
        self.writing = asyncio.Lock()
        self.size = 0
        self.read_at = 0
        self.found = (b"", "")
        self.replaced: str | None = None


class Sidecar:
    """One component of a sidecar. Failures are explained, with ``place`` for where."""

    def __init__(self, client: Client, component: str, place: str) -> None:
        self.client = client
        self.component = component
        self.place = place
        self._blocking = not inspect.iscoroutinefunction(client.get_state)
        self._crowds: dict[str, SharedRecord] = {}
        self._clock = itertools.count(1)

    async def describe(self) -> Component | None:
        """The component, or None where the sidecar does not say."""
        try:
            answer = await self._call("get_metadata")
        except FAILURES as error:
            if status_code(error) in (Code.PERMISSION_DENIED, Code.UNIMPLEMENTED):
                return None
            raise self.explained(error) from error
        found = {one.name: one for one in answer.registered_components}
        if self.component not in found:
            raise self._unknown_component(
                sorted(name for name, one in found.items() if one.type.startswith("state."))
            )
        one = found[self.component]
        return Component(one.type, frozenset(one.capabilities))

    async def read(self, names: Sequence[str]) -> dict[str, tuple[bytes, str]]:
        """The bytes and the etag of each; both are empty where there is no such record."""
        found: dict[str, tuple[bytes, str]] = {}
        for start in range(0, len(names), SEVERAL):
            found |= await self._read(names[start : start + SEVERAL])
        return found

    async def _read(self, names: Sequence[str]) -> dict[str, tuple[bytes, str]]:
        try:
            if len(names) == 1:
                return {names[0]: await self._read_one(names[0])}
            answer = await self._call("get_bulk_state", keys=list(names), parallelism=16)
        except FAILURES as error:
            if status_code(error) == Code.RESOURCE_EXHAUSTED and len(names) > 1:
                # More than a message may hold: the halves may not be.
                half = len(names) // 2
                return await self._read(names[:half]) | await self._read(names[half:])
            raise self.explained(error) from error
        found = dict.fromkeys(names, (b"", ""))
        for item in answer.items:
            if item.error:
                raise self._failed(f"cannot read a record ({item.error})", transient=True)
            self._notice(item.key, item.etag)
            found[item.key] = (item.data, item.etag)
        return found

    async def _read_one(self, name: str) -> tuple[bytes, str]:
        asked = next(self._clock)
        with self._crowd(name) as crowd:
            async with crowd.reading:
                if crowd.read_at < asked:
                    began = next(self._clock)
                    one = await self._call("get_state", key=name)
                    crowd.read_at, crowd.found = began, (one.data, one.etag)
                    self._notice(name, one.etag)
                return crowd.found

    def _notice(self, name: str, etag: str) -> None:
        crowd = self._crowds.get(name)
        if crowd is not None and crowd.replaced == etag:
            crowd.replaced = None  # it is there again, or was read before: either way, let it try

    async def save(self, name: str, value: bytes, etag: str) -> str | None:
        """Write over what has this etag, or where there is nothing; else why it was refused."""
        with self._crowd(name) as crowd:
            async with crowd.writing:
                if crowd.replaced == etag:
                    return "it was written by this program meanwhile"
                refusal = await self._write(
                    [name],
                    "save_state",
                    key=name,
                    value=value,
                    etag=etag or None,
                    options=ONLY_IF_SAME,
                )
                if refusal is None:
                    crowd.replaced = etag
                return refusal

    async def delete(self, name: str, etag: str = "") -> str | None:
        """Remove what has this etag, or whatever is there; else why that was refused."""
        same = {"etag": etag, "options": ONLY_IF_SAME} if etag else {}
        return await self._write([name], "delete_state", key=name, **same)

    async def transact(self, writes: Sequence[Write]) -> str | None:
        """Do all, or else why that was refused: only where the component can take back."""
        kinds = TransactionOperationType
        operations = [
            TransactionalStateOperation(
                key=write.name,
                data=write.value,
                etag=write.etag or None,
                operation_type=kinds.delete if write.value is None else kinds.upsert,
            )
            for write in writes
        ]
        names = [write.name for write in writes]
        return await self._write(names, "execute_state_transaction", operations=operations)

    async def _write(self, names: Sequence[str], method: str, **arguments: Any) -> str | None:
        try:
            await self._call(method, **arguments)
        except FAILURES as error:
            said = text = error_details(error)
            for name in names:
                said = said.replace(name, "")  # whose words are not the component's
            if status_code(error) in REFUSALS and not DISTURBED.search(said):
                return text
            raise self.explained(error, wrote=True) from error
        return None

    async def _call(self, method: str, **arguments: Any) -> Any:
        call = getattr(self.client, method)
        if method != "get_metadata":
            arguments["store_name"] = self.component
        try:
            if self._blocking:
                return await asyncio.to_thread(call, **arguments)
            return await call(**arguments)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Nobody cancelled the caller: the client was closed while it was waiting.
            raise self._failed("the store was closed while it was at work", unknown=True) from None
        except (grpc.aio.UsageError, ValueError) as error:
            if "closed" not in str(error):
                raise
            raise self._failed("the client of Dapr is closed: open another") from error

    @contextmanager
    def _crowd(self, name: str) -> Iterator[SharedRecord]:
        crowd = self._crowds.setdefault(name, SharedRecord())
        crowd.size += 1
        try:
            yield crowd
        finally:
            crowd.size -= 1
            if not crowd.size:
                del self._crowds[name]

    def explained(self, error: Exception, *, wrote: bool = False) -> StateStoreError:
        """What an error means. ``wrote``: it was a write that failed so."""
        code, text = status_code(error), error_details(error)
        if code == Code.UNAVAILABLE:
            return self._failed(
                f"the Dapr sidecar cannot be reached ({text}): is it running? Start the program "
                "with dapr run, or say where the sidecar is with DAPR_GRPC_ENDPOINT",
                transient=True,
                unknown=wrote and not NEVER_SENT.search(text),
            )
        if code in (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION) and "state store" in text:
            return self._unknown_component([], text)
        if code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED):
            return self._failed(
                f"the sidecar does not let us in ({text}): set DAPR_API_TOKEN to its token, and "
                "allow the state API in its configuration"
            )
        if code == Code.RESOURCE_EXHAUSTED:
            return self._failed(
                f"too large for one message ({text}): write less at once, or raise the limits, "
                "--max-body-size of the sidecar and max_grpc_message_length of the client"
            )
        if code in (Code.DEADLINE_EXCEEDED, Code.CANCELLED, *REFUSALS):
            return self._failed(
                f"the component did not do it ({text}): see the sidecar's log, and whether the "
                "component's database is up",
                transient=True,
                unknown=wrote,
            )
        return self._failed(f"the sidecar answers {code.name} ({text}): see its log")

    def no_etags(self) -> StateStoreError:
        """The error for a component that cannot keep writers apart."""
        return self._failed(f"the component has no etags: {WORKING}")

    def _unknown_component(self, known: Sequence[str], text: str = "") -> StateStoreError:
        said = f" ({text})" if text else ""
        have = f"; it has {', '.join(known)}" if known else ""
        return self._failed(
            f"the sidecar has no state store of the name {self.component!r}{said}{have}. Name one "
            f"of its components, or give it one: {WORKING}"
        )

    def _failed(
        self, text: str, *, transient: bool = False, unknown: bool = False
    ) -> StateStoreError:
        return StateStoreError(f"{self.place}: {text}", transient=transient, unknown=unknown)


async def open_client(address: str | None, place: str) -> AsyncDaprClient:
    """A client for the sidecar at an address, or where the SDK's settings say."""
    # The SDK's client waits for the sidecar in its constructor, blocking, for up to a minute.
    url = f"{get_api_url()}/healthz/outbound"
    end = time.monotonic() + START
    while (problem := await asyncio.to_thread(check_health, url)) is not None:
        if time.monotonic() > end:
            raise StateStoreError(
                f"{place}: no Dapr sidecar is ready at {url} ({problem}). Start the program with "
                "dapr run, or say where the sidecar is with DAPR_HTTP_ENDPOINT and "
                "DAPR_GRPC_ENDPOINT",
                transient=True,
            )
        await asyncio.sleep(0.1)
    return AsyncDaprClient(address=address, max_grpc_message_length=MESSAGE)


def check_health(url: str) -> str | None:
    """Why a sidecar is not ready to be used, or None."""
    try:
        with urlopen(url, timeout=2):  # noqa: S310 - the SDK's own setting
            return None
    except HTTPError as error:
        error.close()
        return str(error)
    except OSError as error:
        return str(error)


def status_code(error: BaseException) -> Any:
    """The status of a call that failed."""
    # Where the SDK gives its own error without one, the cause is that of gRPC.
    for one in (error, error.__cause__):
        if isinstance(one, grpc.RpcError) and hasattr(one, "code"):
            return one.code()
    return Code.UNKNOWN


def error_details(error: BaseException) -> str:
    """What a call that failed says."""
    details = getattr(error, "details", None)
    return str((details() if callable(details) else None) or error)
