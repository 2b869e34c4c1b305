"""One batch of operations: reads first, then embeddings, then writes, one commit per namespace.

As in LangGraph's in-memory store, reads do not see the puts of their batch, and of several puts of
one key the last counts. Embedding is left to the caller, who may be async or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

from langgraph.store.base import GetOp, ListNamespacesOp, Op, PutOp, Result, SearchOp

from holdfast.adapters.langgraph.memory.changes import NamespaceChanges, Put
from holdfast.adapters.langgraph.memory.discovery import (
    MAX_CONCURRENT,
    find_namespaces,
    read_flags,
    run_all,
)
from holdfast.adapters.langgraph.memory.filters import (
    literal_prefix,
    matches_condition,
    matches_filter,
    validate_filter,
)
from holdfast.adapters.langgraph.memory.layout import (
    VECTORS,
    Expiry,
    Namespace,
    StoredItem,
    get_item,
    list_items,
    locate_namespace,
    name_session,
    read_clock,
    validate_labels,
)
from holdfast.adapters.langgraph.memory.vectors import (
    FLOAT_SIZE,
    IndexedText,
    TextIndex,
    build_entry,
    read_vectors,
    score_vectors,
)
from holdfast.adapters.shared_session import SessionPool
from holdfast.errors import UnsupportedValueError, short_repr
from holdfast.state.snapshot import Snapshot

Vectors: TypeAlias = Mapping[str, Sequence[float]]


@dataclass(frozen=True, slots=True)
class Candidates:
    """The items that a search by meaning ranks, with their vectors."""

    op: SearchOp
    items: list[tuple[StoredItem, list[bytes]]]


class Batch:
    """The operations of one call.

    Await `read`, embed `texts` and `queries`, and await `write` with the vectors.
    """

    def __init__(
        self, pool: SessionPool, agent_id: str, index: TextIndex | None, ops: Iterable[Op]
    ) -> None:
        self.pool = pool
        self.agent_id = agent_id
        self.index = index
        self.ops = [validate_op(op) for op in ops]
        self.results: list[Result] = [None] * len(self.ops)
        self.texts: list[str] = []
        """The texts of puts that have no vector yet."""
        self.queries: list[str] = []
        """The queries of searches by meaning."""
        self._states: dict[Namespace, Snapshot] = {}
        self._candidates: dict[int, Candidates] = {}
        self._changes: dict[Namespace, NamespaceChanges] = {}
        self._indexed: list[tuple[Put, list[IndexedText], dict[bytes, bytes]]] = []

    # ---------------------------------------------------------------------------------- reading

    async def read(self) -> None:
        """Do all reads, and find out what has to be embedded.

        Raises:
            InvalidNamespaceError: A namespace is invalid.
            IntegrityError: Stored data is damaged.
            StateStoreError: The store failed.

        """
        self._collect_puts()
        wanted = dict.fromkeys(
            [op.namespace for op in self.ops if isinstance(op, GetOp) and op.namespace]
            + [put.op.namespace for put, *_ in self._indexed]
        )
        await self._load(list(wanted))
        for number, op in enumerate(self.ops):
            if isinstance(op, GetOp):
                self.results[number] = self._get(op)
            elif isinstance(op, SearchOp):
                await self._search(number, op)
            elif isinstance(op, ListNamespacesOp):
                self.results[number] = await self._list_namespaces(op)
        self._find_texts()

    def _collect_puts(self) -> None:
        for op in self.ops:
            if isinstance(op, PutOp):
                locate_namespace(op.namespace, self.agent_id)
                changes = self._changes.setdefault(op.namespace, NamespaceChanges())
                changes.puts[op.key] = Put(op)
        if self.index is not None:
            for changes in self._changes.values():
                for put in changes.puts.values():
                    texts = self.index.list_texts(put.op)
                    if texts:
                        self._indexed.append((put, texts, {}))

    async def _load(self, namespaces: Sequence[Namespace]) -> None:
        """Read the states of namespaces that are not read yet."""
        missing = [each for each in namespaces if each not in self._states]
        states = await run_all(self._load_one, missing)
        self._states.update(zip(missing, states, strict=True))

    async def _load_one(self, namespace: Namespace) -> Snapshot:
        location = locate_namespace(namespace, self.agent_id)
        return await self.pool.read(location, lambda session: session.snapshot())

    def _get(self, op: GetOp) -> Result:
        if not op.namespace:
            return None
        with name_session(op.namespace):
            item = get_item(self._states[op.namespace], op.namespace, op.key, read_clock())
        if item is None:
            return None
        self._note_read([item], refresh_ttl=op.refresh_ttl)
        return item.to_item()

    async def _search(self, number: int, op: SearchOp) -> None:
        """Search a page of items, or collect those that are ranked after embedding."""
        is_ranked = bool(op.query) and self.index is not None
        end = None if is_ranked else op.offset + op.limit
        found: list[tuple[StoredItem, list[bytes]]] = []
        names = await find_namespaces(self.pool.state_store, self.agent_id, op.namespace_prefix)
        for start in range(0, len(names), MAX_CONCURRENT):
            if end is not None and len(found) >= end:
                break
            part = names[start : start + MAX_CONCURRENT]
            known = self._states.keys()
            new = set(part) - known
            await self._load(part)
            for namespace in part:
                with name_session(namespace):
                    found += self._list_matches(namespace, op, with_vectors=is_ranked)
                if namespace in new:  # a search over many namespaces does not keep them all
                    del self._states[namespace]
        if is_ranked:
            self._candidates[number] = Candidates(op, found)
            if op.query and op.query not in self.queries:
                self.queries.append(op.query)
            return
        page = [item for item, _ in found[op.offset : end]]
        self._note_read(page, refresh_ttl=op.refresh_ttl)
        self.results[number] = [item.to_search_item() for item in page]

    def _list_matches(
        self, namespace: Namespace, op: SearchOp, *, with_vectors: bool
    ) -> list[tuple[StoredItem, list[bytes]]]:
        state = self._states[namespace]
        found = [
            item
            for item in list_items(state, namespace, read_clock())
            if matches_filter(item.value, op.filter)
        ]
        if not with_vectors:
            return [(item, []) for item in found]
        vectors = {
            key: [part["vector"] for part in read_vectors(entry, key)]
            for _, key, entry in state.items(VECTORS)
        }
        return [(item, vectors.get(item.key, [])) for item in found]

    def _note_read(self, items: Sequence[StoredItem], *, refresh_ttl: bool) -> None:
        """Note which items were read, if that keeps them longer."""
        if not (refresh_ttl and self.pool.state_store.writable):
            return
        now = read_clock()
        for item in items:
            if item.expiry is not None and item.expiry.is_refresh_due(now):
                changes = self._changes.setdefault(item.namespace, NamespaceChanges())
                changes.refreshed.add(item.key)

    # ------------------------------------------------------------------------------- namespaces

    async def _list_namespaces(self, op: ListNamespacesOp) -> list[Namespace]:
        conditions = op.match_conditions or ()
        names = [
            each
            for each in await find_namespaces(
                self.pool.state_store, self.agent_id, literal_prefix(conditions)
            )
            if all(matches_condition(each, condition) for condition in conditions)
        ]
        groups = [
            (group, list(members))
            for group, members in groupby(names, key=lambda each: each[: op.max_depth])
        ]
        found: list[Namespace] = []
        for start in range(0, len(groups), MAX_CONCURRENT):
            if len(found) >= op.offset + op.limit:
                break
            part = groups[start : start + MAX_CONCURRENT]
            flags = await run_all(self._has_any_items, [members for _, members in part])
            found += [group for (group, _), flag in zip(part, flags, strict=True) if flag]
        return found[op.offset : op.offset + op.limit]

    async def _has_any_items(self, namespaces: Sequence[Namespace]) -> bool:
        """Tell whether one of some namespaces has items."""
        for namespace in namespaces:
            flags = await read_flags(self.pool.state_store, namespace, self.agent_id)
            if flags is None or flags == (True, True):
                state = await self._load_one(namespace)
                with name_session(namespace):
                    if list_items(state, namespace, read_clock()):
                        return True
            elif flags[0]:
                return True
        return False

    # -------------------------------------------------------------------------------- embedding

    def _find_texts(self) -> None:
        """Find the texts without a vector, and take over those that the items have already."""
        if self.index is None:
            return
        wanted: dict[str, None] = {}
        for put, texts, vectors in self._indexed:
            entry = self._states[put.op.namespace].get(VECTORS, put.op.key)
            with name_session(put.op.namespace):
                vectors.update(self.index.find_vectors(entry, put.op.key))
            wanted.update((each.text, None) for each in texts if each.digest not in vectors)
        self.texts = list(wanted)

    # ---------------------------------------------------------------------------------- writing

    @property
    def is_read_only(self) -> bool:
        """Whether all results are known after `read`."""
        return not self._changes and not self._candidates

    async def write(self, vectors: Vectors, queries: Vectors) -> None:
        """Rank the results of searches, and commit the changes of each namespace.

        If one namespace cannot be written, the others are.

        Raises:
            ConflictError: Other writers of a namespace committed first in all attempts.
            UnsupportedValueError: A value cannot be stored.
            ValueError: A vector does not have the dimensions of the index, or a TTL is invalid.
            StateStoreError: The store failed.

        """
        for number, candidates in self._candidates.items():
            query = queries[candidates.op.query or ""]
            if self.index is not None:
                self.index.pack(query)  # checks it
            page = rank(candidates, query)
            self._note_read([item for item, _ in page], refresh_ttl=candidates.op.refresh_ttl)
            self.results[number] = [item.to_search_item(score) for item, score in page]
        if self.index is not None:
            packed = {text: self.index.pack(vector) for text, vector in vectors.items()}
            for put, texts, known in self._indexed:
                known.update(
                    (each.digest, packed[each.text]) for each in texts if each.text in packed
                )
                put.vectors = build_entry(texts, known)
        await run_all(self._write_one, list(self._changes.items()))

    async def _write_one(self, item: tuple[Namespace, NamespaceChanges]) -> None:
        namespace, changes = item
        await self.pool.update(
            locate_namespace(namespace, self.agent_id),
            changes.record,
            must_refresh=changes.must_refresh,
        )


def rank(candidates: Candidates, query: Sequence[float]) -> list[tuple[StoredItem, float | None]]:
    """Return a page of the items by the best score of their vectors; those without one follow."""
    size = len(query) * FLOAT_SIZE
    flat: list[bytes] = []
    owners: list[int] = []
    for number, (_, vectors) in enumerate(candidates.items):
        for vector in vectors:
            if len(vector) == size:
                flat.append(vector)
                owners.append(number)
    best: dict[int, float] = {}
    for number, score in zip(owners, score_vectors(query, flat), strict=True):
        best[number] = max(score, best.get(number, score))
    ranked = sorted(best, key=lambda number: -best[number])
    ranked += [number for number in range(len(candidates.items)) if number not in best]
    op = candidates.op
    return [
        (candidates.items[number][0], best.get(number))
        for number in ranked[op.offset : op.offset + op.limit]
    ]


def validate_op(op: Op) -> Op:
    """Return an operation with its namespace as a tuple, after validating it.

    Raises:
        InvalidNamespaceError: A namespace is invalid.
        TypeError: A key is not a str, or a value not a mapping.
        ValueError: The operation, a filter, a limit or an offset is invalid.

    """
    if isinstance(op, GetOp | PutOp):
        if not isinstance(op.key, str):
            raise TypeError(f"key must be a str, got {short_repr(op.key)}")
        if isinstance(op, PutOp) and not isinstance(op.value, Mapping | None):
            raise UnsupportedValueError(
                f"value of {op.key!r} must be a mapping, got {short_repr(op.value)}"
            )
        if isinstance(op, PutOp) and op.ttl is not None:
            Expiry.after(read_clock(), op.ttl)  # an invalid TTL is refused before any write
        return op._replace(namespace=validate_labels(op.namespace))
    if isinstance(op, SearchOp | ListNamespacesOp):
        for name, number in (("limit", op.limit), ("offset", op.offset)):
            if not isinstance(number, int) or number < 0:
                raise ValueError(f"{name} must be an int of at least 0, got {short_repr(number)}")
        if isinstance(op, ListNamespacesOp):
            if not isinstance(op.max_depth, int | None) or (op.max_depth or 0) < 0:
                raise ValueError(
                    f"max_depth must be None or an int of at least 0, got {op.max_depth!r}"
                )
            for condition in op.match_conditions or ():
                validate_labels(condition.path)
                matches_condition((), condition)
            return op
        if op.filter is not None:
            validate_filter(op.filter)
        return op._replace(namespace_prefix=validate_labels(op.namespace_prefix))
    raise ValueError(
        f"unknown operation {short_repr(op)}; use GetOp, PutOp, SearchOp or ListNamespacesOp"
    )
