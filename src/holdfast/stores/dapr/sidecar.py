"""The calls that the store makes to a Dapr sidecar, and what their failures mean.

Both clients of the SDK work: the asyncio one, and the blocking one in threads.

Dapr reports little about a failed write: an etag mismatch is ABORTED or INTERNAL, depending on
the component and the call, and so is a lost connection to the database. So a write here is either
done or refused, and a refused writer reads again to learn why. A write that may have been applied
is an error with ``unknown``.
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

IF_UNCHANGED = StateOptions(consistency=Consistency.strong, concurrency=Concurrency.first_write)
"""With an etag: only replace the record that has it. Without: only create."""

MAX_MESSAGE = 64 * 1024 * 1024
"""The largest message of our own client. The sidecar has its own limit, 4 MB by default."""

START_TIMEOUT = 3.0
"""Seconds to wait for a sidecar that is starting."""

READ_BATCH = 100

REFUSALS = (Code.ABORTED, Code.INTERNAL, Code.UNKNOWN)
# By text, because Dapr has the same status for an etag mismatch and a lost database.
LOST_DATABASE = re.compile(
    r"connect|connection|timeout|timed out|deadline|\beof\b|broken pipe|reset by|refused|"
    r"\bi/o\b|unavailable|closed|cancell?ed|no route|loading",
    re.IGNORECASE,
)
"""In the message of a component that lost its database, so that the outcome is unknown."""

# By text, because gRPC has one status for a failed connection and for one lost during a call.
NEVER_SENT = re.compile(r"failed to connect|connection refused|dns resolution", re.IGNORECASE)

SUPPORTED = (
    "use a component with etags, such as state.redis, state.postgresql, state.mysql, state.sqlite, "
    "state.mongodb, state.azure.cosmosdb or state.in-memory"
)


@dataclass(frozen=True, slots=True)
class Component:
    """A component, as the sidecar describes it."""

    type: str
    capabilities: frozenset[str]


@dataclass(frozen=True, slots=True)
class Write:
    """One write of a transaction. Without a value it deletes; without an etag it always writes."""

    name: str
    value: bytes | None
    etag: str


class SharedRecord:
    """A record that several tasks of this program use at the same time.

    They share one read that starts after they asked. When one has written, the others, which read
    the previous version, are refused here without asking the sidecar.
    """

    def __init__(self) -> None:
        self.reading = asyncio.Lock()
        self.writing = asyncio.Lock()
        self.users = 0
        self.read_at = 0
        self.content = (b"", "")
        self.replaced_etag: str | None = None


class Sidecar:
    """One component of a sidecar."""

    def __init__(self, client: Client, component: str, display_url: str) -> None:
        self.client = client
        self.component = component
        self.display_url = display_url
        self._blocking = not inspect.iscoroutinefunction(client.get_state)
        self._shared: dict[str, SharedRecord] = {}
        self._clock = itertools.count(1)

    async def describe(self) -> Component | None:
        """Return the component, or None if the sidecar does not describe it.

        Raises:
            StateStoreError: There is no such component, or the sidecar failed.

        """
        try:
            answer = await self._call("get_metadata")
        except FAILURES as error:
            if status_code(error) in (Code.PERMISSION_DENIED, Code.UNIMPLEMENTED):
                return None
            raise self.explain_error(error) from error
        components = {one.name: one for one in answer.registered_components}
        if self.component not in components:
            raise self._unknown_component(
                sorted(name for name, one in components.items() if one.type.startswith("state."))
            )
        component = components[self.component]
        return Component(component.type, frozenset(component.capabilities))

    async def read(self, names: Sequence[str]) -> dict[str, tuple[bytes, str]]:
        """Return the bytes and the etag of each record, both empty if it does not exist.

        Raises:
            StateStoreError: The sidecar or the component failed.

        """
        found: dict[str, tuple[bytes, str]] = {}
        for start in range(0, len(names), READ_BATCH):
            found |= await self._read(names[start : start + READ_BATCH])
        return found

    async def _read(self, names: Sequence[str]) -> dict[str, tuple[bytes, str]]:
        try:
            if len(names) == 1:
                return {names[0]: await self._read_one(names[0])}
            answer = await self._call("get_bulk_state", keys=list(names), parallelism=16)
        except FAILURES as error:
            if status_code(error) == Code.RESOURCE_EXHAUSTED and len(names) > 1:
                # Too much for one message: read the halves.
                half = len(names) // 2
                return await self._read(names[:half]) | await self._read(names[half:])
            raise self.explain_error(error) from error
        found = dict.fromkeys(names, (b"", ""))
        for item in answer.items:
            if item.error:
                raise self._error(f"cannot read a record: {item.error}", transient=True)
            self._note_etag(item.key, item.etag)
            found[item.key] = (item.data, item.etag)
        return found

    async def _read_one(self, name: str) -> tuple[bytes, str]:
        asked = next(self._clock)
        with self._share(name) as record:
            async with record.reading:
                if record.read_at < asked:
                    began = next(self._clock)
                    answer = await self._call("get_state", key=name)
                    record.read_at, record.content = began, (answer.data, answer.etag)
                    self._note_etag(name, answer.etag)
                return record.content

    def _note_etag(self, name: str, etag: str) -> None:
        record = self._shared.get(name)
        if record is not None and record.replaced_etag == etag:
            # The etag is in use again, or was read before the write: either way, allow a try.
            record.replaced_etag = None

    async def save(self, name: str, value: bytes, etag: str) -> str | None:
        """Replace the record with this etag, or create it if the etag is empty.

        Returns None, or the reason for the refusal.

        Raises:
            StateStoreError: The sidecar or the component failed.

        """
        with self._share(name) as record:
            async with record.writing:
                if record.replaced_etag == etag:
                    return "it was changed concurrently by this program"
                refusal = await self._write(
                    [name],
                    "save_state",
                    key=name,
                    value=value,
                    etag=etag or None,
                    options=IF_UNCHANGED,
                )
                if refusal is None:
                    record.replaced_etag = etag
                return refusal

    async def delete(self, name: str, etag: str = "") -> str | None:
        """Delete the record, if it has this etag unless that is empty.

        Returns None, or the reason for the refusal.

        Raises:
            StateStoreError: The sidecar or the component failed.

        """
        condition = {"etag": etag, "options": IF_UNCHANGED} if etag else {}
        return await self._write([name], "delete_state", key=name, **condition)

    async def transact(self, writes: Sequence[Write]) -> str | None:
        """Apply all writes in one transaction, on a component that can roll back.

        Returns None, or the reason for the refusal.

        Raises:
            StateStoreError: The sidecar or the component failed.

        """
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
            message = details = error_details(error)
            for name in names:
                message = message.replace(name, "")  # its words are not the component's
            if status_code(error) in REFUSALS and not LOST_DATABASE.search(message):
                return details
            raise self.explain_error(error, wrote=True) from error
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
            # The caller was not cancelled: the client was closed during the call.
            raise self._error("the store was closed during the call", unknown=True) from None
        except (grpc.aio.UsageError, ValueError) as error:
            # By text, because the SDK raises these for wrong arguments too.
            if "closed" not in str(error):
                raise
            raise self._error("the Dapr client is closed; open another one") from error

    @contextmanager
    def _share(self, name: str) -> Iterator[SharedRecord]:
        record = self._shared.setdefault(name, SharedRecord())
        record.users += 1
        try:
            yield record
        finally:
            record.users -= 1
            if not record.users:
                del self._shared[name]

    def explain_error(self, error: Exception, *, wrote: bool = False) -> StateStoreError:
        """Classify an error of a call. ``wrote``: the call was a write."""
        code, details = status_code(error), error_details(error)
        if code == Code.UNAVAILABLE:
            return self._error(
                f"the Dapr sidecar cannot be reached: {details}; start the program with dapr run, "
                "or set DAPR_GRPC_ENDPOINT",
                transient=True,
                unknown=wrote and not NEVER_SENT.search(details),
            )
        # By text, because these statuses have other causes too.
        if code in (Code.INVALID_ARGUMENT, Code.FAILED_PRECONDITION) and "state store" in details:
            return self._unknown_component([], details)
        if code in (Code.UNAUTHENTICATED, Code.PERMISSION_DENIED):
            return self._error(
                f"the sidecar denied access: {details}; set DAPR_API_TOKEN to its token, and allow "
                "the state API in its configuration"
            )
        if code == Code.RESOURCE_EXHAUSTED:
            return self._error(
                f"too large for one message: {details}; write less at once, or raise "
                "--max-body-size of the sidecar and max_grpc_message_length of the client"
            )
        if code in (Code.DEADLINE_EXCEEDED, Code.CANCELLED, *REFUSALS):
            return self._error(
                f"the component failed: {details}; check the sidecar's log, and that the "
                "component's database is running",
                transient=True,
                unknown=wrote,
            )
        return self._error(f"the sidecar responded {code.name}: {details}; check its log")

    def no_etags_error(self) -> StateStoreError:
        """Return the error for a component without etags."""
        return self._error(f"the component has no etags; {SUPPORTED}")

    def _unknown_component(self, known: Sequence[str], details: str = "") -> StateStoreError:
        reason = f" ({details})" if details else ""
        names = f"; it has {', '.join(known)}" if known else ""
        return self._error(
            f"the sidecar has no state store named {self.component!r}{reason}{names}; use one of "
            f"its components, or add one: {SUPPORTED}"
        )

    def _error(
        self, text: str, *, transient: bool = False, unknown: bool = False
    ) -> StateStoreError:
        return StateStoreError(f"{self.display_url}: {text}", transient=transient, unknown=unknown)


async def open_client(address: str | None, display_url: str) -> AsyncDaprClient:
    """Return a client for the sidecar at an address, or at that of the SDK's settings.

    Raises:
        StateStoreError: The sidecar is not ready.

    """
    # The SDK's client waits for the sidecar in its constructor, blocking, for up to a minute.
    url = f"{get_api_url()}/healthz/outbound"
    end = time.monotonic() + START_TIMEOUT
    while (problem := await asyncio.to_thread(check_health, url)) is not None:
        if time.monotonic() > end:
            raise StateStoreError(
                f"{display_url}: no Dapr sidecar is ready at {url} ({problem}); start the program "
                "with dapr run, or set DAPR_HTTP_ENDPOINT and DAPR_GRPC_ENDPOINT",
                transient=True,
            )
        await asyncio.sleep(0.1)
    return AsyncDaprClient(address=address, max_grpc_message_length=MAX_MESSAGE)


def check_health(url: str) -> str | None:
    """Return why a sidecar is not ready, or None if it is."""
    try:
        with urlopen(url, timeout=2):  # noqa: S310 - the SDK's own setting
            return None
    except HTTPError as error:
        error.close()
        return str(error)
    except OSError as error:
        return str(error)


def status_code(error: BaseException) -> Any:
    """Return the gRPC status of a failed call."""
    # If the SDK's own error has none, its cause has.
    for one in (error, error.__cause__):
        if isinstance(one, grpc.RpcError) and hasattr(one, "code"):
            return one.code()
    return Code.UNKNOWN


def error_details(error: BaseException) -> str:
    """Return the message of a failed call."""
    details = getattr(error, "details", None)
    return str((details() if callable(details) else None) or error)
