"""The index of keys: compared with a sorted list, with writers that know an outdated root."""

from __future__ import annotations

import itertools
from contextlib import aclosing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import IntegrityError
from holdfast.stores.dapr import key_index
from holdfast.stores.dapr.key_index import (
    FIRST,
    LEAF_BYTES,
    MIN_KEY_BYTES,
    Edit,
    Leaf,
    Root,
    decode_page,
    encode_page,
    find_leaves,
    iterate_leaves,
    plan_insert,
    plan_removal,
)

PER_LEAF = LEAF_BYTES // MIN_KEY_BYTES


def run(work):
    """Return the result of a coroutine that never waits."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waited")


class SharedPages:
    """The pages, shared by all writers."""

    def __init__(self) -> None:
        self.root = Root()
        self.leaves: dict[str, Leaf] = {FIRST: Leaf()}
        self.numbers = itertools.count(1)

    def new_page(self) -> str:
        return f"page {next(self.numbers)}"

    def write(self, edit: Edit) -> None:
        for page, leaf in edit.leaves.items():
            if leaf is None:
                del self.leaves[page]
            else:
                self.leaves[page] = leaf
        if edit.root is not None:
            self.root = edit.root


class Writer:
    """A writer, which may know an outdated root."""

    def __init__(self, shared: SharedPages) -> None:
        self.shared = shared
        self.known = shared.root
        self.read = 0

    async def root(self, *, again: bool = False) -> Root:
        if again:
            self.known = self.shared.root
        return self.known

    async def leaves(self, pages):
        self.read += len(pages)
        return {page: self.shared.leaves.get(page) for page in pages}

    def insert(self, keys: list[str]) -> None:
        async def work() -> None:
            leaves = await find_leaves(self, keys)
            root = await self.root(again=True)
            self.shared.write(plan_insert(leaves, keys, self.shared.new_page, root))

        run(work())

    def remove(self, key: str) -> None:
        async def work() -> None:
            ((page, leaf),) = (await find_leaves(self, [key])).items()
            self.shared.write(plan_removal(page, leaf, key, await self.root(again=True)))

        run(work())

    def list_keys(self, start: str = "") -> list[str]:
        async def work() -> list[str]:
            async with aclosing(iterate_leaves(self, start)) as leaves:
                return [key async for leaf in leaves for key in leaf.keys if key >= start]

        return run(work())


@pytest.fixture
def small_leaves(monkeypatch):
    """Four keys fill a leaf."""
    monkeypatch.setattr(key_index, "LEAF_BYTES", 4 * MIN_KEY_BYTES)


KEYS = st.text("abc\ue000\U0010ffff", min_size=1, max_size=4)
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.one_of(st.lists(KEYS, min_size=1, max_size=7, unique=True), KEYS),
    ),
    max_size=60,
)


@given(steps=STEPS, start=st.text("abc", max_size=2))
def test_the_index_behaves_like_a_sorted_list(steps, start):
    original = key_index.LEAF_BYTES
    key_index.LEAF_BYTES = 4 * MIN_KEY_BYTES
    try:
        shared = SharedPages()
        # Each writer knows the root as of its last read.
        writers = [Writer(shared) for _ in range(3)]
        model: set[str] = set()
        for number, what in steps:
            if isinstance(what, str):
                writers[number].remove(what)
                model.discard(what)
            else:
                writers[number].insert(what)
                model.update(what)
            check(shared)
        for writer in writers:
            assert writer.list_keys() == sorted(model)
            assert writer.list_keys(start) == sorted(key for key in model if key >= start)
    finally:
        key_index.LEAF_BYTES = original


def check(shared: SharedPages) -> None:
    """Check that leaves are in order, disjoint, as in the root, and not too full."""
    root = shared.root
    assert list(root.lows) == sorted(set(root.lows))
    assert root.lows[0] == ""
    assert set(root.pages) == set(shared.leaves)
    for at, (low, page) in enumerate(zip(root.lows, root.pages, strict=True)):
        leaf = shared.leaves[page]
        after = root.lows[at + 1] if at + 1 < len(root.lows) else None
        assert leaf.low == low
        assert after is None or (leaf.high is not None and leaf.high <= after)
        assert list(leaf.keys) == sorted(set(leaf.keys))
        assert all(leaf.covers(key) for key in leaf.keys)
        assert len(leaf.keys) <= 5
        assert leaf.keys or page == FIRST or after == leaf.high or leaf.high is None


class Pause:
    """Let other writers run first."""

    def __await__(self):
        yield


class CarefulWriter(Writer):
    """A writer that pauses before every step, and fails if a page that it read has changed."""

    def __init__(self, shared: SharedPages) -> None:
        super().__init__(shared)
        self.seen: dict[str, Leaf | Root | None] = {}

    async def root(self, *, again: bool = False) -> Root:
        await Pause()
        if again:
            self.seen["root"] = self.shared.root
        return await super().root(again=again)

    async def leaves(self, pages):
        found = {}
        for page in pages:
            await Pause()
            found |= await super().leaves([page])
        self.seen.update(found)
        return found

    async def list_again_and_again(self, times: int, stay: set[str]) -> None:
        for _ in range(times):
            async with aclosing(iterate_leaves(self, "")) as leaves:
                keys = [key async for leaf in leaves for key in leaf.keys]
            assert keys == sorted(set(keys))
            assert stay <= set(keys)

    async def do(self, what) -> None:
        while not await self.tried(what):
            pass

    async def tried(self, what) -> bool:
        self.seen.clear()
        if isinstance(what, str):
            ((page, leaf),) = (await find_leaves(self, [what])).items()
            root = await self.root(again=True)
            if page not in root.pages:
                return False
            edit = plan_removal(page, leaf, what, root)
        else:
            leaves = await find_leaves(self, what)
            root = await self.root(again=True)
            if not set(leaves) <= set(root.pages):
                return False
            edit = plan_insert(leaves, what, self.shared.new_page, root)
        await Pause()
        now = {**self.shared.leaves, "root": self.shared.root}
        written = [*(page for page in edit.leaves if page in self.seen)]
        written += ["root"] if edit.root is not None else []
        if any(now.get(page) is not self.seen[page] for page in written):
            return False
        self.shared.write(edit)
        check(self.shared)
        return True


@given(
    works=st.lists(
        st.lists(st.one_of(st.lists(KEYS, min_size=1, max_size=4, unique=True), KEYS), max_size=12),
        min_size=2,
        max_size=3,
    ),
    turns=st.lists(st.integers(0, 3), max_size=300),
)
def test_concurrent_writers_keep_the_index_consistent(works, turns):
    original = key_index.LEAF_BYTES
    key_index.LEAF_BYTES = 3 * MIN_KEY_BYTES
    try:
        shared = SharedPages()
        stay = {"a-", "aa-", "b-", "bb-", "c-"}
        Writer(shared).insert(sorted(stay))

        async def one_after_another(writer: CarefulWriter, work, own: str) -> None:
            for what in work:
                # Separate keys, so that the result does not depend on the order.
                mine = what + own if isinstance(what, str) else [key + own for key in what]
                await writer.do(mine)

        running = {
            number: one_after_another(CarefulWriter(shared), work, str(number))
            for number, work in enumerate(works)
        }
        running[3] = CarefulWriter(shared).list_again_and_again(6, stay)
        for number in itertools.chain(turns, itertools.cycle(range(4))):
            if not running:
                break
            if number in running:
                try:
                    running[number].send(None)
                except StopIteration:
                    del running[number]
        expected = set(stay)
        for number, work in enumerate(works):
            for what in work:
                if isinstance(what, str):
                    expected.discard(what + str(number))
                else:
                    expected.update(key + str(number) for key in what)
        assert Writer(shared).list_keys() == sorted(expected)
    finally:
        key_index.LEAF_BYTES = original


def test_keys_in_order_fill_their_leaves():
    shared = SharedPages()
    writer = Writer(shared)
    keys = [f"{number:05}" for number in range(10 * PER_LEAF)]
    for start in range(0, len(keys), 7):
        writer.insert(keys[start : start + 7])
    assert writer.list_keys() == keys
    assert [len(shared.leaves[page].keys) for page in shared.root.pages] == [PER_LEAF] * 10


def test_a_key_in_the_middle_halves_a_full_leaf():
    leaf = Leaf("", None, tuple(f"{number:03}" for number in range(PER_LEAF)))
    left, right = leaf.insert(["050x"])
    assert abs(len(left.keys) - len(right.keys)) <= 1
    assert (left.low, left.high, right.low, right.high) == ("", right.keys[0], right.keys[0], None)
    assert sorted([*leaf.keys, "050x"]) == [*left.keys, *right.keys]


def test_many_keys_at_once_are_split_into_several_leaves():
    keys = [f"{number:05}" for number in range(1000)]
    leaves = Leaf("", "x", ("5",)).insert(keys)
    assert [key for leaf in leaves for key in leaf.keys] == sorted([*keys, "5"])
    assert all(len(leaf.keys) <= PER_LEAF + 1 for leaf in leaves)
    assert len(leaves) == 8
    assert [leaf.high for leaf in leaves] == [*(leaf.low for leaf in leaves[1:]), "x"]


def test_long_keys_fill_a_leaf_sooner():
    keys = [f"{number:03}".ljust(8192, "x") for number in range(40)]
    leaves = Leaf().insert(keys)
    assert all(len(encode_page(leaf)) < 2 * LEAF_BYTES for leaf in leaves)
    assert [key for leaf in leaves for key in leaf.keys] == keys


def test_an_existing_key_changes_nothing():
    leaf = Leaf("", None, ("a", "b"))
    assert leaf.insert(["b"]) == [leaf]
    assert leaf.remove(["c"]) == leaf
    assert leaf.contains("a")
    assert not leaf.contains("c")


def test_an_outdated_root_costs_a_second_read(small_leaves):
    shared = SharedPages()
    old, other = Writer(shared), Writer(shared)
    other.insert([f"{number}" for number in range(9)])
    assert len(shared.root.pages) > 1
    assert old.known == Root()
    old.insert(["5x"])
    assert old.known.pages != (FIRST,)
    assert other.list_keys() == sorted([*map(str, range(9)), "5x"])
    check(shared)


def test_the_range_of_an_empty_leaf_goes_to_the_leaf_before_it(small_leaves):
    shared = SharedPages()
    writer, old = Writer(shared), Writer(shared)
    writer.insert([f"{number}" for number in range(9)])
    old.list_keys()
    pages = len(shared.root.pages)
    for key in "456":
        writer.remove(key)
    for key in "7":
        writer.remove(key)
    assert len(shared.root.pages) == pages - 1
    assert old.list_keys() == writer.list_keys() == ["0", "1", "2", "3", "8"]
    for one in (old, writer):
        one.insert(["55" if one is old else "66"])
        check(shared)
    assert old.list_keys() == ["0", "1", "2", "3", "55", "66", "8"]


def test_the_last_leaf_can_be_removed(small_leaves):
    shared = SharedPages()
    writer = Writer(shared)
    writer.insert([*"abcdefg"])
    for key in "gfedcba":
        writer.remove(key)
    assert shared.root.pages == (FIRST,)
    assert writer.list_keys() == []
    assert writer.list_keys("zzz") == []
    writer.insert(["z"])
    assert writer.list_keys() == ["z"]


def test_a_short_listing_reads_few_leaves():
    shared = SharedPages()
    writer = Writer(shared)
    writer.insert([f"{number:05}" for number in range(20 * PER_LEAF)])
    writer.list_keys()
    writer.read = 0

    async def first() -> str:
        async with aclosing(iterate_leaves(writer, "00500")) as leaves:
            async for leaf in leaves:
                return next(key for key in leaf.keys if key >= "00500")
        raise AssertionError

    assert run(first()) == "00500"
    assert writer.read == 1


def test_pages_round_trip():
    leaf = Leaf("a", None, ("a", "\U0010ffff", "\ue000"))
    root = Root(("", "é"), (FIRST, "2"))
    assert decode_page(encode_page(leaf), Leaf) == leaf
    assert decode_page(encode_page(root), Root) == root
    for kind in (Leaf, Root):
        with pytest.raises(IntegrityError, match="damaged"):
            decode_page(b"\xc1 not a page", kind)


def test_inconsistent_pages_are_reported_after_a_bounded_number_of_reads():
    shared = SharedPages()
    writer = Writer(shared)
    shared.root = writer.known = Root(("", "m"), (FIRST, "lost"))
    shared.leaves[FIRST] = Leaf("", "m")
    with pytest.raises(IntegrityError, match="damaged"):
        writer.insert(["n"])
    with pytest.raises(IntegrityError, match="damaged"):
        writer.list_keys()
