"""The suite that every ``StateStore`` passes, ours and others'.

    from holdfast.testing import StateStoreSuite

    class TestMyStore(StateStoreSuite):
        @pytest.fixture
        def new_store(self, tmp_path):
            return lambda: MyStore(tmp_path)

``new_store`` is a function that opens the store, on one place that is empty when the test begins:
called twice, it gives two stores that share their content (unless the store is not ``durable``).
"""

from __future__ import annotations

import asyncio
import enum
import functools
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import pytest

from holdfast.errors import ConflictError, HoldfastError, StateStoreError
from holdfast.stores.contract import Entry, Put, StateStore
from holdfast.testing.state_machine import compare_with_memory

Suite = TypeVar("Suite")
NewStore = Callable[[], StateStore]

STRANGE_KEYS = (
    "..",
    ".",
    "...",
    "../../outside",
    "/",
    "//",
    "/etc/passwd",
    "a/",
    "a//b",
    "a/./b",
    "a/../b",
    "a",
    "a/b",
    "a.json",
    "a.json/b",
    "a-b",
    "a!b",
    "nul\x00nul",
    "\x00",
    "line\nline\r\n\tend",
    " ",
    " lead and trail ",
    "%",
    "%2F%2e%00",
    "100%_sure",
    "*",
    ">",
    "a.*.>",
    "star*?[x]",
    "back\\slash",
    "a||b",
    "{brace}:colon;semi",
    "'; DROP TABLE entries; --",
    '"quoted"',
    "~tilde~~",
    "case",
    "CASE",
    "Case",
    "\u00e9",  # one character
    "e\u0301",  # the same to the eye, in two
    "\U0001f419 emoji",
    "\ud7ff",
    "\ue000",
    "\ufeff",
    "\uffff",
    "\U0010ffff",
    "x" * 1000,
    "x" * 1001,
    "\U0001f419" * 1000,
    "d/" * 500 + "deep",
    "long/" + "y" * 300 + "/" + "z" * 300 + "/end.json",
    "k" * 8192,
    "k" * 8191 + "j",
)


def in_loop(
    test: Callable[[Suite, NewStore], Awaitable[None]],
) -> Callable[[Suite, NewStore], None]:
    """A coroutine as a test that pytest can run by itself."""

    @functools.wraps(test)
    def run(self: Suite, new_store: NewStore) -> None:
        async def whole() -> None:
            await test(self, new_store)

        asyncio.run(whole())

    return run


async def listed(keys: AsyncIterator[str]) -> list[str]:
    """A listing as a list."""
    return [key async for key in keys]


async def content(store: StateStore) -> dict[str, bytes]:
    """Everything in a store."""
    entries = await store.get_many(await listed(store.list()))
    return {key: entry.value for key, entry in entries.items()}


class StateStoreSuite:
    """Subclass it, and give the fixture ``new_store``."""

    many = 1100
    """How many keys the test of long listings writes: more than a page."""

    increments = 50
    """How often each of 16 writers adds one to the same number."""

    examples = 15
    """How many random runs the comparison with the store in memory makes."""

    keys: tuple[str, ...] = STRANGE_KEYS
    """The keys that must be kept as they are. A store with less room takes some out."""

    # ---- one key -----------------------------------------------------------------------------

    @in_loop
    async def test_what_was_put_comes_back(self, new_store: NewStore) -> None:
        async with new_store() as store:
            assert await store.get("a") is None
            for value in (b"", b"plain", bytes(range(256)), b'{"json": [1, 2]}', b"\x00" * 100):
                etag = await store.put("a", value)
                assert await store.get("a") == Entry(value, etag)
                assert isinstance(etag, str)
                assert etag

    @in_loop
    async def test_a_large_value_comes_back(self, new_store: NewStore) -> None:
        value = bytes(range(251)) * 13_000  # 3.2 MB
        async with new_store() as store:
            etag = await store.put("large", value)
            found = await store.get("large")
            assert found == Entry(value, etag)
            etag = await store.put("large", value[::-1], if_match=etag)
            found = await store.get("large")
            assert found == Entry(value[::-1], etag)
            await store.put("large", b"small now", if_match=etag)
            assert await content(store) == {"large": b"small now"}
            assert await store.delete("large")
            assert await content(store) == {}

    @in_loop
    async def test_another_value_has_another_etag(self, new_store: NewStore) -> None:
        async with new_store() as store:
            etags = [await store.put("a", bytes([number])) for number in range(5)]
            assert len(set(etags)) == 5

    @in_loop
    async def test_if_absent_writes_once(self, new_store: NewStore) -> None:
        async with new_store() as store:
            etag = await store.put("a", b"first", if_absent=True)
            with pytest.raises(ConflictError) as caught:
                await store.put("a", b"second", if_absent=True)
            assert caught.value.key == "a"
            assert "'a'" in str(caught.value)
            assert await store.get("a") == Entry(b"first", etag)
            assert await store.delete("a")
            await store.put("a", b"third", if_absent=True)
            assert await content(store) == {"a": b"third"}

    @in_loop
    async def test_if_match_writes_over_what_was_read_and_nothing_else(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            first = await store.put("a", b"1")
            second = await store.put("a", b"2", if_match=first)
            for wrong in (first, "no-such-etag", "", "0", '"', "é", "*", "\n", "\ud800"):
                with pytest.raises(ConflictError):
                    await store.put("a", b"3", if_match=wrong)
            assert await store.get("a") == Entry(b"2", second)
            with pytest.raises(ConflictError) as caught:
                await store.put("b", b"3", if_match=second)
            assert caught.value.key == "b"
            assert await content(store) == {"a": b"2"}

    @in_loop
    async def test_an_etag_does_not_outlive_its_entry(self, new_store: NewStore) -> None:
        async with new_store() as store:
            etag = await store.put("a", b"1")
            await store.delete("a")
            with pytest.raises(ConflictError):
                await store.put("a", b"2", if_match=etag)
            await store.put("a", b"3")
            with pytest.raises(ConflictError):
                await store.put("a", b"4", if_match=etag)
            with pytest.raises(ConflictError):
                await store.delete("a", if_match=etag)
            assert await content(store) == {"a": b"3"}

    @in_loop
    async def test_delete_tells_whether_there_was_one(self, new_store: NewStore) -> None:
        async with new_store() as store:
            assert not await store.delete("a")
            etag = await store.put("a", b"1")
            with pytest.raises(ConflictError):
                await store.delete("a", if_match="no-such-etag")
            assert await content(store) == {"a": b"1"}
            assert await store.delete("a", if_match=etag)
            assert await store.get("a") is None
            assert not await store.delete("a")
            with pytest.raises(ConflictError):
                await store.delete("a", if_match=etag)
            assert await listed(store.list()) == []

    # ---- many keys ---------------------------------------------------------------------------

    @in_loop
    async def test_get_many_gives_those_that_exist_in_the_order_asked(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            assert await store.get_many([]) == {}
            etags = {key: await store.put(key, key.encode()) for key in ("b", "a", "c")}
            found = await store.get_many(["c", "missing", "a", "c"])
            assert list(found.items()) == [
                ("c", Entry(b"c", etags["c"])),
                ("a", Entry(b"a", etags["a"])),
            ]
            assert len(await store.get_many(key for key in "abc")) == 3

    @in_loop
    async def test_put_many_gives_etags_in_order(self, new_store: NewStore) -> None:
        async with new_store() as store:
            assert await store.put_many([]) == []
            old = await store.put("b", b"old")
            etags = await store.put_many(
                [Put("c", b"3"), Put("b", b"2", if_match=old), Put("a", b"1", if_absent=True)]
            )
            for key, value, etag in zip("cba", (b"3", b"2", b"1"), etags, strict=True):
                assert await store.get(key) == Entry(value, etag)

    @in_loop
    async def test_put_many_that_fails_writes_nothing_or_what_came_before(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            await store.put("held", b"0")
            for bad in (
                Put("held", b"9", if_absent=True),
                Put("held", b"9", if_match="no-such-etag"),
                Put("missing", b"9", if_match="no-such-etag"),
            ):
                with pytest.raises(ConflictError) as caught:
                    await store.put_many([Put("a", b"1"), bad, Put("z", b"1")])
                assert caught.value.key == bad.key
                expected = {"held": b"0"} if store.atomic_put_many else {"a": b"1", "held": b"0"}
                assert await content(store) == expected

    @in_loop
    async def test_a_batch_of_hundreds_is_written(self, new_store: NewStore) -> None:
        async with new_store() as store:
            puts = [Put(f"batch/{number:04}", str(number).encode()) for number in range(300)]
            assert len(set(await store.put_many(puts))) == 300
            assert await content(store) == {put.key: put.value for put in puts}
            assert len(await store.get_many([put.key for put in puts])) == 300

    @in_loop
    async def test_a_batch_is_never_seen_half_where_the_store_says_so(
        self, new_store: NewStore
    ) -> None:
        keys = [f"version/{number:04}" for number in range(700)]
        async with new_store() as store:
            if not (store.atomic_put_many and store.atomic_get_many):
                pytest.skip("a batch may be seen half, and the store says so")

            async def write() -> None:
                for version in range(12):
                    await store.put_many([Put(key, b"%d" % version) for key in keys])

            writing = asyncio.create_task(write())
            while not writing.done():
                found = await store.get_many(keys)
                assert len(found) in (0, len(keys))
                assert len({entry.value for entry in found.values()}) <= 1
                await asyncio.sleep(0)  # a store in memory never waits
            await writing

    # ---- listing -----------------------------------------------------------------------------

    @in_loop
    async def test_keys_are_listed_in_order(self, new_store: NewStore) -> None:
        keys = ["b", "a", "a/b", "a.b", "ab", "a/", "a!", "B", "é", "z", "zz", "\U0001f419"]
        async with new_store() as store:
            assert await listed(store.list("")) == []
            for key in keys:
                await store.put(key, b"1")
            ordered = sorted(keys)
            assert await listed(store.list()) == ordered
            for at, key in enumerate(ordered):
                assert await listed(store.list("", start_after=key)) == ordered[at + 1 :]
                assert (
                    await listed(store.list("", start_after=key, limit=2)) == ordered[at + 1 :][:2]
                )
            assert await listed(store.list("", start_after="a0")) == [
                k for k in ordered if k > "a0"
            ]

    @in_loop
    async def test_a_prefix_is_text_and_not_a_pattern(self, new_store: NewStore) -> None:
        keys = ["a%b", "a_b", "aXb", "a*b", "a/b", "a/c/d", "a/c/e", "ab", "A/b", "a/cc", "a["]
        async with new_store() as store:
            for key in keys:
                await store.put(key, b"1")
            for prefix in (
                "a",
                "a%",
                "a_",
                "a*",
                "a/",
                "a/c",
                "a/c/",
                "a/c/d",
                "b",
                "A",
                "a[",
                "[",
            ):
                expected = sorted(key for key in keys if key.startswith(prefix))
                assert await listed(store.list(prefix)) == expected
                assert await listed(store.list(prefix, limit=1)) == expected[:1]
            assert await listed(store.list("a/", start_after="a/c/d")) == ["a/c/e", "a/cc"]
            assert await listed(store.list("a/", start_after="Z")) == [
                "a/b",
                "a/c/d",
                "a/c/e",
                "a/cc",
            ]
            assert await listed(store.list("a/", start_after="b")) == []
            assert await listed(store.list("a/", limit=0)) == []

    @in_loop
    async def test_a_listing_longer_than_a_page_is_whole(self, new_store: NewStore) -> None:
        async with new_store() as store:
            keys = [f"page/{number:06}" for number in range(self.many)]
            for start in range(0, self.many, 100):
                await store.put_many([Put(key, b"1") for key in keys[start : start + 100]])
            assert await listed(store.list("page/")) == keys
            assert await listed(store.list("page/", limit=self.many - 1)) == keys[:-1]
            assert await listed(store.list("page/", start_after=keys[-3])) == keys[-2:]

    @in_loop
    async def test_keys_may_be_removed_while_they_are_listed(self, new_store: NewStore) -> None:
        async with new_store() as store:
            await store.put_many([Put(f"gone/{number}", b"1") for number in range(30)])
            await store.put("stays", b"1")
            async for key in store.list("gone/"):
                assert await store.delete(key)
            assert await listed(store.list()) == ["stays"]

    # ---- any key -----------------------------------------------------------------------------

    @in_loop
    async def test_any_text_is_a_key_and_kept_as_it_is(self, new_store: NewStore) -> None:
        async with new_store() as store:
            etags = {}
            for number, key in enumerate(self.keys):
                etags[key] = await store.put(key, b"%d" % number, if_absent=True)
            assert await listed(store.list()) == sorted(self.keys)
            assert set(await store.get_many(self.keys)) == set(self.keys)
            for number, key in enumerate(self.keys):
                assert await store.get(key) == Entry(b"%d" % number, etags[key])
                assert key in await listed(store.list(key))
                assert key not in await listed(store.list("", start_after=key))
            for key in self.keys:
                assert await store.delete(key, if_match=etags[key])
            assert await listed(store.list()) == []

    @in_loop
    async def test_a_key_of_another_class_is_the_text_that_it_is(self, new_store: NewStore) -> None:
        class Colour(str, enum.Enum):  # noqa: UP042 - whose str() is another text
            RED = "red"

        async with new_store() as store:
            await store.put(Colour.RED, b"1")
            assert await listed(store.list(Colour.RED)) == ["red"]
            assert list(await store.get_many([Colour.RED, "red"])) == ["red"]
            with pytest.raises(ValueError, match="twice"):
                await store.put_many([Put(Colour.RED, b"2"), Put("red", b"2")])
            assert await store.delete("red")

    @in_loop
    async def test_bad_input_is_refused_before_anything_is_written(
        self, new_store: NewStore
    ) -> None:
        wrong: Any = 7
        async with new_store() as store:
            for key in ("", "x" * 8193, "é" * 4097, wrong, 7, b"bytes", "\ud800", "a\udfffb"):
                for call in (
                    lambda key=key: store.get(key),
                    lambda key=key: store.get_many(["good", key]),
                    lambda key=key: store.put(key, b"1"),
                    lambda key=key: store.put_many([Put("good", b"1"), Put(key, b"1")]),
                    lambda key=key: store.delete(key),
                ):
                    with pytest.raises((TypeError, ValueError)):
                        await call()
            values: list[Any] = ["text", 7, None, [b"1"]]
            for value in values:
                with pytest.raises(TypeError):
                    await store.put("good", value)
                with pytest.raises(TypeError):
                    await store.put_many([Put("good", b"1"), Put("bad", value)])
            with pytest.raises(ValueError, match="both"):
                await store.put("good", b"1", if_match="etag", if_absent=True)
            with pytest.raises(ValueError, match="twice"):
                await store.put_many([Put("good", b"1"), Put("good", b"2")])
            with pytest.raises(TypeError):
                await store.put_many([("good", b"1")])  # type: ignore[list-item]
            with pytest.raises(TypeError):
                await store.put("good", b"1", if_match=wrong)
            with pytest.raises(TypeError, match="several"):
                await store.get_many("good")
            for arguments in ({"limit": -1}, {"limit": "1"}, {"start_after": 7}, {"prefix": wrong}):
                with pytest.raises((TypeError, ValueError)):
                    await listed(store.list(**{"prefix": "", **arguments}))
            assert await content(store) == {}

    # ---- several at once ---------------------------------------------------------------------

    @in_loop
    async def test_no_conditional_increment_is_lost(self, new_store: NewStore) -> None:
        async with new_store() as store:

            async def count(times: int) -> None:
                for _ in range(times):
                    await increment(store, "counter")

            await asyncio.gather(*(count(self.increments) for _ in range(16)))
            assert await content(store) == {"counter": b"%d" % (16 * self.increments)}

    @in_loop
    async def test_of_many_who_want_a_key_absent_one_wins(self, new_store: NewStore) -> None:
        async with new_store() as store:
            for round_ in range(5):
                answers = await asyncio.gather(
                    *(store.put(f"race/{round_}", b"%d" % n, if_absent=True) for n in range(16)),
                    return_exceptions=True,
                )
                won = [n for n, answer in enumerate(answers) if isinstance(answer, str)]
                assert len(won) == 1
                assert all(isinstance(a, str | ConflictError) for a in answers)
                found = await store.get(f"race/{round_}")
                assert found == Entry(b"%d" % won[0], str(answers[won[0]]))

    @in_loop
    async def test_writes_to_different_keys_do_not_meet(self, new_store: NewStore) -> None:
        async with new_store() as store:
            keys = [f"side by side/{number:03}" for number in range(100)]
            await asyncio.gather(*(store.put(key, key.encode(), if_absent=True) for key in keys))
            assert await content(store) == {key: key.encode() for key in keys}
            await asyncio.gather(*(store.delete(key) for key in keys))
            assert await content(store) == {}

    @in_loop
    async def test_batches_that_overlap_do_not_lock_each_other_out(
        self, new_store: NewStore
    ) -> None:
        async with new_store() as store:
            keys = [f"overlap/{number}" for number in range(8)]

            async def write(turn: int) -> None:
                order = keys[turn:] + keys[:turn]
                await store.put_many([Put(key, b"%d" % turn) for key in order])

            await asyncio.gather(*(write(turn) for turn in range(8)))
            values = set((await content(store)).values())
            assert len(values) == 1 if store.atomic_put_many else values

    # ---- its life ----------------------------------------------------------------------------

    @in_loop
    async def test_what_was_written_is_there_when_opened_again(self, new_store: NewStore) -> None:
        async with new_store() as store:
            if not store.durable:
                pytest.skip("not durable, and says so")
            etag = await store.put("a", b"1")
            await store.put("b", b"2")
            await store.delete("b")
        async with new_store() as store:
            assert await store.get("a") == Entry(b"1", etag)
            await store.put("a", b"2", if_match=etag)
            assert await content(store) == {"a": b"2"}

    @in_loop
    async def test_two_stores_on_one_place_see_each_other(self, new_store: NewStore) -> None:
        async with new_store() as one, new_store() as two:
            if not one.shared:
                pytest.skip("not shared, and says so")
            etag = await one.put("a", b"1", if_absent=True)
            with pytest.raises(ConflictError):
                await two.put("a", b"2", if_absent=True)
            newer = await two.put("a", b"2", if_match=etag)
            with pytest.raises(ConflictError):
                await one.put("a", b"3", if_match=etag)
            assert await one.get("a") == Entry(b"2", newer)
            assert await two.delete("a", if_match=newer)
            assert await one.get("a") is None
            assert await listed(one.list()) == []

    @in_loop
    async def test_a_closed_store_refuses_everything(self, new_store: NewStore) -> None:
        store = new_store()
        await store.put("a", b"1")
        await store.close()
        await store.close()
        for call in (
            lambda: store.get("a"),
            lambda: store.get_many(["a"]),
            lambda: store.put("a", b"2"),
            lambda: store.put_many([Put("a", b"2")]),
            lambda: store.delete("a"),
            lambda: listed(store.list()),
        ):
            with pytest.raises(StateStoreError, match="closed"):
                await call()
        await new_store().close()  # never used

    def test_one_store_serves_one_event_loop_after_another(self, new_store: NewStore) -> None:
        store = new_store()
        asyncio.run(use(store, b"1"))
        asyncio.run(use(store, b"2"))
        asyncio.run(store.close())

    @in_loop
    async def test_it_says_what_it_can_do(self, new_store: NewStore) -> None:
        async with new_store() as store:
            for ability in ("atomic_put_many", "atomic_get_many", "durable", "shared", "writable"):
                assert isinstance(getattr(store, ability), bool)
            assert type(store).__name__ in repr(store)
            assert issubclass(StateStoreError, HoldfastError)

    def test_it_behaves_as_the_store_in_memory(self, new_store: NewStore) -> None:
        compare_with_memory(new_store, examples=self.examples)


async def use(store: StateStore, value: bytes) -> None:
    """Write and read in one event loop."""
    await store.put("a", value)
    found = await store.get("a")
    assert found is not None
    assert found.value == value


async def increment(store: StateStore, key: str) -> None:
    """Add one to a number, however many others do."""
    for attempt in itertools.count():
        entry = await store.get(key)
        try:
            if entry is None:
                await store.put(key, b"1", if_absent=True)
            else:
                await store.put(key, b"%d" % (int(entry.value) + 1), if_match=entry.etag)
            return
        except ConflictError:
            # Or else of many who read at once all but one will have read in vain, again and again.
            await asyncio.sleep(random.uniform(0, 0.001) * 2 ** min(attempt, 6))  # noqa: S311
