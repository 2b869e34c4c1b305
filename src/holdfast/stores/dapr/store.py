"""Dapr: the state API of a sidecar, over gRPC, with the official SDK.

That API lacks three things, which are built here from what it has:

- A write does not return its new etag. So each record has the token of its write, which is the etag
  of our interface; Dapr's etag only detects concurrent writers of one record.
- Records cannot be listed. So the keys are also in an index of pages (``key_index``), which changes
  together with what it lists: new and deleted keys change a page, a new value does not.
- Several records cannot change together on every component; ``records`` provides that.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from contextlib import aclosing
from functools import partial
from urllib.parse import quote, unquote
from weakref import WeakKeyDictionary

from dapr.aio.clients import DaprClient as AsyncDaprClient

from holdfast.errors import StateStoreError, short_repr
from holdfast.stores.backend import check_condition, etag_mismatch_error, new_etag
from holdfast.stores.base import Condition, Entry, Etags, Put
from holdfast.stores.dapr.index_pages import IndexPages
from holdfast.stores.dapr.key_index import (
    Root,
    find_leaves,
    iterate_leaves,
    plan_insert,
    plan_removal,
)
from holdfast.stores.dapr.names import new_page_name, record_name, validate_namespace
from holdfast.stores.dapr.records import Change, Record, Records, RecordView
from holdfast.stores.dapr.sidecar import FAILURES, Client, Sidecar, open_client
from holdfast.stores.remote import PATIENCE, TIMEOUT, RemoteStateStore
from holdfast.stores.urls import StoreURL
from holdfast.stores.validation import KeyRange

COMPONENT = "statestore"
NAMESPACE = "holdfast"
MAX_QUEUED = 256
MAX_REFUSALS = 5


class DaprStateStore(RemoteStateStore[Records]):
    """A store in a Dapr state component with etags.

    ``dapr_client`` is ``dapr.clients.DaprClient`` or the one of ``dapr.aio.clients``; the store
    does not close it. Without one the store creates and closes its own, for the sidecar at
    ``address``, or at that of the SDK's settings.

    ``put_many`` is atomic on every such component. Writes are as durable as the component. Several
    programs may share a namespace of a component.

    Raises:
        StateStoreError: The namespace or the name of the component is invalid.

    """

    atomic_put_many = True
    failures = FAILURES

    def __init__(
        self,
        dapr_client: Client | None,
        namespace: str = NAMESPACE,
        *,
        store_name: str = COMPONENT,
        address: str | None = None,
        timeout: float = TIMEOUT,
        patience: float = PATIENCE,
        url: StoreURL | None = None,
    ) -> None:
        if not isinstance(store_name, str) or not store_name.strip():
            raise StateStoreError(
                f"store_name must be the name of a Dapr component, got {short_repr(store_name)}"
            )
        self.namespace = validate_namespace(namespace)
        self.store_name = store_name
        self.address = address
        default_url = f"dapr://{quote(store_name, safe='')}?namespace={quote(namespace)}"
        super().__init__(url or StoreURL(default_url), timeout=timeout, patience=patience)
        self._given_client = dapr_client
        self._known_root: Root | None = None
        self._queues: WeakKeyDictionary[asyncio.AbstractEventLoop, WriteQueue] = WeakKeyDictionary()

    # ---- the sidecar ---------------------------------------------------------------------------

    async def _connect(self) -> Records:
        client = self._given_client or await open_client(self.address, self.display_url)
        sidecar = Sidecar(client, self.store_name, self.display_url)
        try:
            component = await sidecar.describe()
            if component is not None and "ETAG" not in component.capabilities:
                raise sidecar.no_etags_error()
        except BaseException:
            await self._close_client(client)
            raise
        return Records(sidecar, self.namespace, component)

    async def _disconnect(self, client: Records) -> None:
        await self._close_client(client.sidecar.client)

    async def _close_client(self, client: Client) -> None:
        if isinstance(client, AsyncDaprClient) and client is not self._given_client:
            await client.close()  # type: ignore[no-untyped-call]

    def _explain_error(self, error: Exception) -> StateStoreError:
        return StateStoreError(f"{self.display_url}: cannot create the Dapr client: {error}")

    # ---- reading -------------------------------------------------------------------------------

    async def _get(self, key: str) -> Entry | None:
        return (await self._get_many([key])).get(key)

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        async def call(records: Records, unsure: bool) -> dict[str, Entry]:  # noqa: ARG001, FBT001
            views = await self._read(records, keys)
            return {
                key: Entry(view.body, view.record.token)
                for key, view in views.items()
                if view.body is not None
            }

        return await self._run(call)

    async def _page(self, key_range: KeyRange, count: int) -> Sequence[str]:
        high = key_range.high

        async def call(records: Records, unsure: bool) -> list[str]:  # noqa: ARG001, FBT001
            pages = IndexPages(records, self.namespace, self._known_root)
            keys: list[str] = []
            async with aclosing(iterate_leaves(pages, key_range.low)) as leaves:
                async for leaf in leaves:
                    keys += [key for key in leaf.keys if key_range.contains(key)]
                    is_last = high is not None and leaf.high is not None and leaf.high >= high
                    if is_last or len(keys) >= count:
                        break
            self._known_root = pages.known_root
            return keys[:count]

        return await self._run(call)

    async def _read(self, records: Records, keys: Sequence[str]) -> dict[str, RecordView]:
        names = {key: record_name(self.namespace, key) for key in keys}
        found = await records.read(list(names.values()))
        for key, name in names.items():
            view = found[name]
            if view.body is not None and view.record.key != key:
                raise StateStoreError(
                    f"{self.display_url}: the component treats the keys "
                    f"{short_repr(view.record.key)} and {short_repr(key)} as equal; configure its "
                    "table to compare text by bytes"
                )
        return {key: found[name] for key, name in names.items()}

    # ---- writing -------------------------------------------------------------------------------

    async def _put(self, put: Put) -> str:
        return (await self._put_many([put]))[0]

    async def _put_many(
        self,
        puts: Sequence[Put],
        conditions: Sequence[Condition] = (),  # noqa: ARG002 - not supported
    ) -> Etags:
        tokens = [new_etag() for _ in puts]
        conditional = any(put.if_absent or put.if_match is not None for put in puts)
        views: dict[str, RecordView] = {}
        queue = self._queue()

        async def overwrite(records: Records, unsure: bool) -> bool:  # noqa: ARG001, FBT001
            return await self._write(records, puts, tokens, views, create=False)

        async def create(records: Records, unsure: bool) -> bool:  # noqa: ARG001, FBT001
            async with queue.lock:
                return await self._write(records, puts, tokens, views, create=True)

        written = False
        if not any(put.if_absent for put in puts):
            written = await self._run(overwrite, writes=True, matches=conditional)
        if not written:
            async with queue.slots:
                await self._run(create, writes=True, matches=conditional)
        return tokens

    async def _write(
        self,
        records: Records,
        puts: Sequence[Put],
        tokens: Sequence[str],
        views: dict[str, RecordView],
        *,
        create: bool,
    ) -> bool:
        """Write all puts over the given views of their records, which are read if there are none.

        If a key is new and ``create`` is False, it writes nothing, returns False, and leaves the
        views for the next call.
        """
        pauses = RetryPauses(self.display_url)
        while True:
            if not views:
                views |= await self._read(records, [put.key for put in puts])
            current = views.copy()
            views.clear()
            written = [current[put.key].token for put in puts]
            if any(old == token for old, token in zip(written, tokens, strict=True)):
                return True  # an earlier attempt succeeded, and its response was lost
            for put in puts:
                check_condition(put, current[put.key].token)
            new = [put.key for put in puts if current[put.key].body is None]
            if new and not create:
                views |= current
                return False
            changes = [
                Change(current[put.key], Record(put.key, token, put.value))
                for put, token in zip(puts, tokens, strict=True)
            ]
            if new:
                index_changes = await self._add_to_index(records, new, tokens[0])
                if isinstance(index_changes, str):
                    await pauses.wait(index_changes, [])
                    continue
                changes += index_changes
            refusal = await records.commit(changes)
            if refusal is None:
                return True
            await pauses.wait(refusal, changes)

    async def _add_to_index(
        self, records: Records, new: Sequence[str], token: str
    ) -> list[Change] | str:
        """Return the changes of the index for new keys, or why everything must be read again."""
        pages = IndexPages(records, self.namespace, self._known_root)
        leaves = await find_leaves(pages, new)
        listed = [key for key in new if any(leaf.contains(key) for leaf in leaves.values())]
        if listed:
            views = await self._read(records, listed)
            if any(view.body is not None for view in views.values()):
                return ""  # created by another writer since it was read
        edit = await pages.edit(partial(plan_insert, leaves, new, new_page_name))
        refusal = "" if edit is None else await pages.create_missing(edit, token)
        changes = [] if edit is None else pages.changes(edit, token)
        self._known_root = pages.known_root
        return changes if refusal is None else refusal

    async def _delete(self, key: str, if_match: str | None) -> bool:
        token = new_etag()
        queue = self._queue()

        async def delete(records: Records, unsure: bool) -> bool:  # noqa: FBT001
            async with queue.lock:
                return await self._delete_record(records, key, if_match, token, unsure=unsure)

        async with queue.slots:
            return await self._run(delete, writes=True, matches=if_match is not None)

    async def _delete_record(
        self, records: Records, key: str, if_match: str | None, token: str, *, unsure: bool
    ) -> bool:
        pauses = RetryPauses(self.display_url)
        while True:
            pages = IndexPages(records, self.namespace, self._known_root)
            view = (await self._read(records, [key]))[key]
            if view.body is None and unsure and token != view.record.token and if_match is not None:
                unsure = await pages.were_written_by(token, key)
            if view.body is None and unsure:
                return True  # an earlier attempt succeeded, and its response was lost
            if if_match is not None and view.token != if_match:
                raise etag_mismatch_error(key, if_match, view.token)
            if view.body is None:
                return False
            ((page, leaf),) = (await find_leaves(pages, [key])).items()
            edit = await pages.edit(partial(plan_removal, page, leaf, key))
            refusal: str | None = ""
            changes: list[Change] = []
            if edit is not None:
                changes = [Change(view, Record(key, token)), *pages.changes(edit, token)]
                refusal = await records.commit(changes)
            self._known_root = pages.known_root
            if refusal is None:
                return True
            await pauses.wait(refusal, changes)

    def _queue(self) -> WriteQueue:
        for loop in [loop for loop in self._queues if loop.is_closed()]:
            del self._queues[loop]  # a queue may hold its loop, which keeps the weak key alive
        return self._queues.setdefault(asyncio.get_running_loop(), WriteQueue())


class WriteQueue:
    """Lets one task of this program change the index at a time, which saves it refusals.

    A task without a slot has not started its attempt, so its timeout does not run while it waits
    behind many others for the lock.
    """

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(MAX_QUEUED)
        self.lock = asyncio.Lock()


class RetryPauses:
    """The pauses of a write that is refused because of other writers.

    If it is refused repeatedly although nothing changed, the component is at fault.
    """

    def __init__(self, display_url: str) -> None:
        self._display_url = display_url
        self._count = 0
        self._unchanged = 0
        self._last: list[tuple[str, str]] | None = None

    async def wait(self, refusal: str, changes: Sequence[Change]) -> None:
        """Wait before everything is read again.

        Raises:
            StateStoreError: The component keeps refusing unchanged records.

        """
        etags = [(change.view.name, change.view.etag) for change in changes]
        self._unchanged = self._unchanged + 1 if refusal and etags == self._last else 0
        self._last = etags
        self._count += 1
        if self._unchanged >= MAX_REFUSALS:
            raise StateStoreError(
                f"{self._display_url}: the component refuses to write although no other writer "
                f"changed the record ({refusal}); check the sidecar's log",
                transient=True,
            )
        await asyncio.sleep(random.uniform(0, min(0.05, 0.001 * 2**self._count)))  # noqa: S311


def open_url(url: StoreURL) -> DaprStateStore:
    """Open ``dapr://component``, with ``namespace``, ``address``, ``timeout`` and ``patience``."""
    component = unquote(url.parts.netloc)
    if not component or url.parts.path not in ("", "/") or "@" in component or url.port is not None:
        raise StateStoreError(
            f"{url} does not name a state component; write dapr://statestore, and pass the address "
            "of the sidecar as an option, as in address=127.0.0.1:50001"
        )
    namespace = url.take("namespace", NAMESPACE) or ""
    address = url.take("address")
    timeout = url.take_number("timeout", TIMEOUT, least=0.001)
    patience = url.take_number("patience", PATIENCE)
    url.reject_unknown_options(("namespace", "address", "timeout", "patience"))
    return DaprStateStore(
        None,
        namespace,
        store_name=component,
        address=address,
        timeout=timeout,
        patience=patience,
        url=url,
    )
