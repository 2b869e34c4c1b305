"""Dapr: the state API of a sidecar, over gRPC, with the official SDK.

Of that API three things are missing here, and made of what there is:

- A write does not tell its new etag. So each record holds a mark of its own write, which is the
  etag of our contract; Dapr's etag only keeps two writers of one record apart.
- Nothing can be listed. So the keys are also in an index of pages (``key_index``), which is changed
  together with what it lists: a new key and a removed one change a page, a new value does not.
- Several records cannot be changed together on every component; ``records.py`` sees to that.

The names of the records are in ``names.py``.
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
ROOM = 256
STUCK = 5


class DaprStateStore(RemoteStateStore[Records]):
    """A ``StateStore`` in a state component of Dapr: one that has etags, as most have.

    ``dapr_client`` is a client of the SDK, ``dapr.clients.DaprClient`` or the one of
    ``dapr.aio.clients``, and stays yours to close. Without one the store makes its own, for the
    sidecar at ``address`` or where the SDK's settings say, and closes it.

    ``put_many`` is all or nothing on every such component. What is acknowledged is as durable as
    the component makes it. Several programs may share a namespace of a component.
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
                f"a Dapr component has a name, which {short_repr(store_name)} is not"
            )
        self.namespace = validate_namespace(namespace)
        self.store_name = store_name
        self.address = address
        place = f"dapr://{quote(store_name, safe='')}?namespace={quote(namespace)}"
        super().__init__(url or StoreURL(place), timeout=timeout, patience=patience)
        self._given = dapr_client
        self._root: Root | None = None
        self._lines: WeakKeyDictionary[asyncio.AbstractEventLoop, WriteQueue] = WeakKeyDictionary()

    # ---- the sidecar ---------------------------------------------------------------------------

    async def _connect(self) -> Records:
        client = self._given or await open_client(self.address, self.place)
        sidecar = Sidecar(client, self.store_name, self.place)
        try:
            component = await sidecar.describe()
            if component is not None and "ETAG" not in component.capabilities:
                raise sidecar.no_etags()
        except BaseException:
            await self._let_go(client)
            raise
        return Records(sidecar, self.namespace, component)

    async def _disconnect(self, client: Records) -> None:
        await self._let_go(client.sidecar.client)

    async def _let_go(self, client: Client) -> None:
        if isinstance(client, AsyncDaprClient) and client is not self._given:
            await client.close()  # type: ignore[no-untyped-call]

    def _explained(self, error: Exception) -> StateStoreError:
        return StateStoreError(f"{self.place}: the client of Dapr cannot be made: {error}")

    # ---- reading -------------------------------------------------------------------------------

    async def _get(self, key: str) -> Entry | None:
        return (await self._get_many([key])).get(key)

    async def _get_many(self, keys: Sequence[str]) -> dict[str, Entry]:
        async def call(records: Records, unsure: bool) -> dict[str, Entry]:  # noqa: ARG001, FBT001
            found = await self._read(records, keys)
            return {
                key: Entry(seen.body, seen.record.token)
                for key, seen in found.items()
                if seen.body is not None
            }

        return await self._run(call)

    async def _page(self, span: KeyRange, count: int) -> Sequence[str]:
        async def call(records: Records, unsure: bool) -> list[str]:  # noqa: ARG001, FBT001
            pages = IndexPages(records, self.namespace, self._root)
            keys: list[str] = []
            async with aclosing(iterate_leaves(pages, span.low)) as leaves:
                async for leaf in leaves:
                    keys += [key for key in leaf.keys if span.holds(key)]
                    over = (
                        span.high is not None and leaf.high is not None and leaf.high >= span.high
                    )
                    if over or len(keys) >= count:
                        break
            self._root = pages.known
            return keys[:count]

        return await self._run(call)

    async def _read(self, records: Records, keys: Sequence[str]) -> dict[str, RecordView]:
        names = {key: record_name(self.namespace, key) for key in keys}
        found = await records.read(list(names.values()))
        for key, name in names.items():
            seen = found[name]
            if seen.body is not None and seen.record.key != key:
                raise StateStoreError(
                    f"{self.place}: the component takes the keys {short_repr(seen.record.key)} and "
                    f"{short_repr(key)} for the same. Give it a table whose text is compared by bytes"
                )
        return {key: found[name] for key, name in names.items()}

    # ---- writing -------------------------------------------------------------------------------

    async def _put(self, put: Put) -> str:
        return (await self._put_many([put]))[0]

    async def _put_many(
        self,
        puts: Sequence[Put],
        conditions: Sequence[Condition] = (),  # noqa: ARG002 - refused
    ) -> Etags:
        tokens = [new_etag() for _ in puts]
        conditional = any(put.if_absent or put.if_match is not None for put in puts)
        found: dict[str, RecordView] = {}
        line = self._line()

        async def overwrite(records: Records, unsure: bool) -> bool:  # noqa: ARG001, FBT001
            return await self._write(records, puts, tokens, found, create=False)

        async def create(records: Records, unsure: bool) -> bool:  # noqa: ARG001, FBT001
            async with line.turn:
                return await self._write(records, puts, tokens, found, create=True)

        written = False
        if not any(put.if_absent for put in puts):
            written = await self._run(overwrite, writes=True, matches=conditional)
        if not written:
            async with line.room:
                await self._run(create, writes=True, matches=conditional)
        return tokens

    async def _write(
        self,
        records: Records,
        puts: Sequence[Put],
        tokens: Sequence[str],
        found: dict[str, RecordView],
        *,
        create: bool,
    ) -> bool:
        """Write all over what was found, or is found if nothing was.

        Where a key is new and not to be created, nothing is written, and it gives False and what it
        found.
        """
        tries = RetryPauses(self.place)
        while True:
            if not found:
                found |= await self._read(records, [put.key for put in puts])
            seen = found.copy()
            found.clear()
            if any(seen[put.key].token == token for put, token in zip(puts, tokens, strict=True)):
                return True  # an earlier attempt did it, whose answer was lost
            for put in puts:
                check_condition(put, seen[put.key].token)
            new = [put.key for put in puts if seen[put.key].body is None]
            if new and not create:
                found |= seen
                return False
            changes = [
                Change(seen[put.key], Record(put.key, token, put.value))
                for put, token in zip(puts, tokens, strict=True)
            ]
            if new:
                more = await self._listing(records, new, tokens[0])
                if isinstance(more, str):
                    await tries.again(more, [])
                    continue
                changes += more
            refusal = await records.commit(changes)
            if refusal is None:
                return True
            await tries.again(refusal, changes)

    async def _listing(self, records: Records, new: Sequence[str], mark: str) -> list[Change] | str:
        """The changes of the index for new keys, or why all is to be read again."""
        pages = IndexPages(records, self.namespace, self._root)
        leaves = await find_leaves(pages, new)
        listed = [key for key in new if any(leaf.holds(key) for leaf in leaves.values())]
        if listed:
            found = await self._read(records, listed)
            if any(seen.body is not None for seen in found.values()):
                return ""  # made by somebody else since we looked
        edit = await pages.edit(partial(plan_insert, leaves, new, new_page_name))
        refusal = "" if edit is None else await pages.begin(edit, mark)
        changes = [] if edit is None else pages.changes(edit, mark)
        self._root = pages.known
        return changes if refusal is None else refusal

    async def _delete(self, key: str, if_match: str | None) -> bool:
        mark = new_etag()
        line = self._line()

        async def remove(records: Records, unsure: bool) -> bool:  # noqa: FBT001
            async with line.turn:
                return await self._remove(records, key, if_match, mark, unsure=unsure)

        async with line.room:
            return await self._run(remove, writes=True, matches=if_match is not None)

    async def _remove(
        self, records: Records, key: str, if_match: str | None, mark: str, *, unsure: bool
    ) -> bool:
        tries = RetryPauses(self.place)
        while True:
            pages = IndexPages(records, self.namespace, self._root)
            seen = (await self._read(records, [key]))[key]
            if seen.body is None and unsure and mark != seen.record.token and if_match is not None:
                unsure = await pages.were_left_by(mark, key)
            if seen.body is None and unsure:
                return True  # an earlier attempt did it, whose answer was lost
            if if_match is not None and seen.token != if_match:
                raise etag_mismatch_error(key, if_match, seen.token)
            if seen.body is None:
                return False
            ((page, leaf),) = (await find_leaves(pages, [key])).items()
            edit = await pages.edit(partial(plan_removal, page, leaf, key))
            refusal: str | None = ""
            changes: list[Change] = []
            if edit is not None:
                changes = [Change(seen, Record(key, mark)), *pages.changes(edit, mark)]
                refusal = await records.commit(changes)
            self._root = pages.known
            if refusal is None:
                return True
            await tries.again(refusal, changes)

    def _line(self) -> WriteQueue:
        for loop in [loop for loop in self._lines if loop.is_closed()]:
            del self._lines[loop]  # a line may hold its loop, so that it would not go by itself
        return self._lines.setdefault(asyncio.get_running_loop(), WriteQueue())


class WriteQueue:
    """Where those of this program stand who change the index: one at a time, as it takes no more.

    It only saves them from being refused. Whoever has no ``room`` yet has not begun, so that its
    time does not run while it waits for its ``turn`` behind very many.
    """

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(ROOM)
        self.turn = asyncio.Lock()


class RetryPauses:
    """The pauses of a write that is refused as others write too, and its end where they do not."""

    def __init__(self, place: str) -> None:
        self._place = place
        self._count = 0
        self._stuck = 0
        self._last: list[tuple[str, str]] | None = None

    async def again(self, refusal: str, changes: Sequence[Change]) -> None:
        """Wait a little before all is read again."""
        etags = [(change.seen.name, change.seen.etag) for change in changes]
        self._stuck = self._stuck + 1 if refusal and etags == self._last else 0
        self._last = etags
        self._count += 1
        if self._stuck >= STUCK:
            raise StateStoreError(
                f"{self._place}: the component refuses to write, though nobody else did "
                f"({refusal}): see the sidecar's log",
                transient=True,
            )
        await asyncio.sleep(random.uniform(0, min(0.05, 0.001 * 2**self._count)))  # noqa: S311


def open_url(url: StoreURL) -> DaprStateStore:
    """``dapr://component``, with ``?namespace=``, ``address=``, ``timeout=`` and ``patience=``."""
    component = unquote(url.parts.netloc)
    if not component or url.parts.path not in ("", "/") or "@" in component or url.port is not None:
        raise StateStoreError(
            f"a Dapr URL names a state component of the sidecar, as dapr://statestore, which {url} "
            "does not: say where the sidecar is with the option address, as address=127.0.0.1:50001"
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
