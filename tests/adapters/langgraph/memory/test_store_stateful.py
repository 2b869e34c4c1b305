"""HoldfastStore behaves as LangGraph's InMemoryStore under random operations.

Differences are intended: a namespace without items is not listed, namespaces are searched in sorted
order, a put replaces all vectors of its item, ``created_at`` is kept, and pages of items without a
score do not overlap.
"""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from adapters.langgraph.memory.embedding import LETTERS, LetterCounts
from holdfast.adapters.langgraph import HoldfastStore
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.backends import SharedMemory

ALL = 10**6
LABELS = st.sampled_from(["a", "b", "é /", "a-b"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
PATHS = st.lists(st.one_of(LABELS, st.just("*")), max_size=3).map(tuple)
KEYS = st.sampled_from(["k", "K", "odd/key é", ""])
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from(["1", "x", 0.5]))
VALUES = st.dictionaries(
    st.sampled_from(["n", "m", "deep"]),
    st.recursive(
        SCALARS,
        lambda inner: st.one_of(
            st.lists(inner, max_size=2), st.dictionaries(st.sampled_from("nm"), inner, max_size=2)
        ),
        max_leaves=4,
    ),
    max_size=3,
)
TEXTS = st.text(alphabet=LETTERS, min_size=1, max_size=6)
OPERATORS = st.sampled_from(["$eq", "$ne", "$gt", "$gte", "$lt", "$lte"])
FILTERS = st.one_of(
    st.none(),
    VALUES,
    st.dictionaries(
        st.sampled_from("nm"),
        st.dictionaries(OPERATORS, st.integers(-2, 2), min_size=1),
        max_size=2,
    ),
)
PAGES = st.tuples(st.integers(0, 4), st.integers(0, 3))
CONDITIONS = st.lists(
    st.builds(MatchCondition, st.sampled_from(["prefix", "suffix"]), PATHS), max_size=2
).map(tuple)


def row(item):
    return None if item is None else (item.namespace, item.key, item.value)


class Model(InMemoryStore):
    """The in-memory store without leftovers of what was deleted or replaced."""

    def batch(self, ops):
        ops = list(ops)
        for op in ops:
            if isinstance(op, PutOp):
                self._vectors[op.namespace].pop(op.key, None)
        results = super().batch(ops)
        for namespace in [each for each, items in self._data.items() if not items]:
            del self._data[namespace]
        return results


class Stores(RuleBasedStateMachine):
    """Two stores that get the same calls."""

    @initialize(is_indexed=st.booleans())
    def begin(self, is_indexed):
        self.content = MemoryStateStore()
        self.index = {"dims": len(LETTERS), "embed": LetterCounts(), "fields": ["text", "texts[*]"]}
        self.index = self.index if is_indexed else None
        self.theirs = Model(index=self.index)
        self.reopen()

    @rule()
    def reopen(self):
        self.ours = HoldfastStore(SharedMemory(self.content), index=self.index)

    def run(self, ops, *, is_async=False):
        return run_async(self.ours.abatch(ops)) if is_async else self.ours.batch(ops)

    @rule(
        puts=st.lists(
            st.tuples(NAMESPACES, KEYS, st.one_of(st.none(), VALUES)), min_size=1, max_size=4
        ),
        is_async=st.booleans(),
    )
    def put(self, puts, is_async):
        ops = [PutOp(*each) for each in puts]
        assert self.run(ops, is_async=is_async) == self.theirs.batch(ops)

    @rule(
        namespace=NAMESPACES,
        key=KEYS,
        value=VALUES,
        texts=st.lists(TEXTS, unique=True, max_size=3),
        index=st.sampled_from([None, None, False, ["text"], ["texts[0]"]]),
    )
    def put_texts(self, namespace, key, value, texts, index):
        value = {**value, "text": "".join(texts) + "h", "texts": texts}
        ops = [PutOp(namespace, key, value, index)]
        assert self.run(ops) == self.theirs.batch(ops)

    @rule(namespace=NAMESPACES, key=KEYS, is_async=st.booleans())
    def get(self, namespace, key, is_async):
        (ours,) = self.run([GetOp(namespace, key)], is_async=is_async)
        (theirs,) = self.theirs.batch([GetOp(namespace, key)])
        assert row(ours) == row(theirs)

    @rule(prefix=st.lists(LABELS, max_size=2).map(tuple), wanted=FILTERS, page=PAGES)
    def search(self, prefix, wanted, page):
        limit, offset = page
        try:
            (theirs,) = self.theirs.batch([SearchOp(prefix, wanted, ALL)])
        except (TypeError, ValueError):
            return  # it compared a number with something else; for us, that does not match
        (ours,) = self.run([SearchOp(prefix, wanted, limit, offset)])
        expected = sorted(map(row, theirs), key=lambda each: each[0])
        assert list(map(row, ours)) == expected[offset : offset + limit]
        assert all(each.score is None for each in ours)

    @rule(
        prefix=st.lists(LABELS, max_size=2).map(tuple),
        query=TEXTS,
        page=PAGES,
        is_async=st.booleans(),
    )
    def search_by_meaning(self, prefix, query, page, is_async):
        limit, offset = page
        everything, part = self.run(
            [SearchOp(prefix, None, ALL, 0, query), SearchOp(prefix, None, limit, offset, query)],
            is_async=is_async,
        )
        (theirs,) = self.theirs.batch([SearchOp(prefix, None, ALL, 0, query)])
        assert rank(everything) == rank(theirs)
        scores = [each.score for each in everything if each.score is not None]
        assert scores == sorted(scores, reverse=True)
        assert list(map(row, part)) == list(map(row, everything))[offset : offset + limit]

    @rule(conditions=CONDITIONS, depth=st.sampled_from([None, 1, 2]), page=PAGES)
    def list_namespaces(self, conditions, depth, page):
        op = ListNamespacesOp(conditions, depth, *page)
        assert self.run([op]) == self.theirs.batch([op])


def rank(items):
    """The items of each score, and the scores, highest first; those without one are last."""
    groups = {}
    for each in items:
        score = None if each.score is None else round(each.score, 5)
        groups.setdefault(score, []).append(row(each))
    ordered = sorted(groups, key=lambda score: (score is None, -(score or 0)))
    return [(score, sorted(groups[score], key=lambda each: each[:2])) for score in ordered]


TestStores = Stores.TestCase
