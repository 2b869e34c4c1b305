"""The Dapr store: the suite, its records, its index of keys.

Most tests use a stand-in for the sidecar. The suite also runs on the real one if ``daprd`` is
installed.
"""

from __future__ import annotations

import asyncio
import shutil
from urllib.parse import urlencode

import pytest

from servers.daprd import needs_daprd
from servers.process import needs
from support.async_tests import async_test

needs("dapr")

from dapr.aio.clients import DaprClient as AsyncDaprClient  # noqa: E402

from holdfast.errors import IntegrityError, StateStoreError  # noqa: E402
from holdfast.stores.base import Put  # noqa: E402
from holdfast.stores.dapr import DaprStateStore, key_index  # noqa: E402
from holdfast.stores.dapr.names import record_name  # noqa: E402
from holdfast.stores.dapr.records import Record, encode_record  # noqa: E402
from holdfast.stores.registry import open_state_store  # noqa: E402
from holdfast.testing import StateStoreSuite  # noqa: E402
from holdfast.testing.state_store_suite import collect_keys, read_all  # noqa: E402


class TestWithTransactions(StateStoreSuite):
    examples = 4
    increments = 5

    @pytest.fixture
    def new_store(self, open_store):
        return open_store


class TestWithClaims(StateStoreSuite):
    """A component that cannot roll back transactions."""

    examples = 4
    increments = 5
    many = 300

    @pytest.fixture
    def new_store(self, open_store):
        return lambda: open_store("redisstore")


if shutil.which("daprd") is None:

    def test_the_suite_passes_on_a_real_sidecar():
        needs_daprd()

else:

    class OnDaprd(StateStoreSuite):
        component = ""

        @pytest.fixture
        def new_store(self, daprd, monkeypatch, namespace):
            for name, value in daprd.environment.items():
                monkeypatch.setenv(name, value)
            url = f"dapr://{self.component}?{urlencode({'namespace': namespace})}"
            return lambda: open_state_store(url)

    class TestOnDaprdInMemory(OnDaprd):
        component = "statestore"

    class TestOnDaprdWithRedis(OnDaprd):
        component = "redisstore"


def test_names_are_readable_and_accepted_by_dapr(open_store, sidecar, namespace, component):
    keys = {
        "plain/key.json": "plain/key.json",
        "a||b": "a%7c%7cb",
        "100%": "100%25",
        "\x00\n\x7f": "%00%0a%7f",
        "é ~": "é ~",
    }
    long = "x" * 200

    async def work() -> None:
        async with open_store(component) as store:
            await store.put_many([Put(key, b"1") for key in [*keys, long]])
            assert await collect_keys(store.list()) == sorted([*keys, long])

    asyncio.run(work())
    names = [name.removeprefix(f"{namespace}/") for name in sidecar.keys(component)]
    mine = {name for name in names if name.startswith("keys/")}
    assert {f"keys/{name}" for name in keys.values()} <= mine
    (hashed,) = (name for name in mine if name.startswith("keys/%~"))
    assert len(f"{namespace}/{hashed}") <= 150


@async_test
async def test_keys_that_the_component_treats_as_equal_are_reported(open_store, namespace):
    async with open_store() as store, AsyncDaprClient() as client:
        record = encode_record(Record("CASE", "token", b"1"))
        await client.save_state("statestore", record_name(namespace, "case"), record)
        for call in (store.get("case"), store.put("case", b"2"), store.delete("case")):
            with pytest.raises(StateStoreError, match="'CASE' and 'case' as equal"):
                await call


@pytest.mark.parametrize("data", [b"something else", b"holdfast1\nnot one", b"holdfast1\n\x93"])
@async_test
async def test_a_record_of_another_program_is_reported(open_store, namespace, data):
    async with open_store(patience=0) as store, AsyncDaprClient() as client:
        await client.save_state("statestore", record_name(namespace, "a"), data)
        for call in (store.get("a"), store.put("a", b"1"), store.delete("a")):
            with pytest.raises(StateStoreError, match="not a record of Holdfast") as caught:
                await call
            assert not caught.value.transient


@async_test
async def test_values_too_large_for_one_message_are_read_one_by_one(sidecar, namespace):
    large = b"x" * 3_000_000
    async with AsyncDaprClient() as client, DaprStateStore(client, namespace) as store:
        for key in "abc":
            await store.put(key, large)
        assert {key: len(value) for key, value in (await read_all(store)).items()} == {
            "a": 3_000_000,
            "b": 3_000_000,
            "c": 3_000_000,
        }
        with pytest.raises(StateStoreError, match="too large for one message"):
            await store.put("d", large + large)
        assert await collect_keys(store.list()) == ["a", "b", "c"]


@async_test
async def test_the_cost_of_a_new_key_does_not_grow(open_store, sidecar, component):
    async with open_store(component) as store:

        async def cost(number: int) -> int:
            before = sum(sidecar.calls().values())
            await store.put(f"{number:06}", b"1", if_absent=True)
            return sum(sidecar.calls().values()) - before

        await store.put_many([Put(f"{number:06}", b"1") for number in range(10)])
        few = await cost(10)
        assert few == {"statestore": 3, "redisstore": 9}[component]
        await store.put_many([Put(f"{number:06}", b"1") for number in range(11, 400)])
        assert await cost(400) == few
        before = sum(sidecar.calls().values())
        await store.put("000200", b"2")
        assert sum(sidecar.calls().values()) - before == 2


def test_keys_in_order_fill_their_pages(open_store, sidecar, namespace):
    async def work() -> None:
        async with open_store() as store:
            for start in range(0, 1024, 64):
                await store.put_many([Put(f"{start + n:06}", b"1") for n in range(64)])

    asyncio.run(work())
    pages = [name for name in sidecar.keys("statestore") if name.startswith(f"{namespace}/index/")]
    assert len(pages) == 1024 // 128 + 1


def test_several_programs_may_change_the_index_at_once(open_store, monkeypatch, component):
    monkeypatch.setattr(key_index, "LEAF_BYTES", 4 * key_index.MIN_KEY_BYTES)

    async def work() -> None:
        # Each store has its own lock and its own copy of the root, as another program would.
        stores = [open_store(component) for _ in range(3)]

        async def fill(number: int) -> None:
            store = stores[number]
            for step in range(12):
                await store.put(f"{step:02}/{number}", b"1", if_absent=True)
                if step % 3 == 2:
                    assert await store.delete(f"{step - 1:02}/{number}")

        await asyncio.gather(*(fill(number) for number in range(3)))
        expected = sorted(
            f"{step:02}/{number}" for step in range(12) for number in range(3) if step % 3 != 1
        )
        for store in stores:
            assert await collect_keys(store.list()) == expected
            assert list(await read_all(store)) == expected
        keys = expected
        await asyncio.gather(*(stores[n % 3].delete(key) for n, key in enumerate(keys)))
        assert await collect_keys(stores[0].list()) == []
        for store in stores:
            await store.close()

    asyncio.run(work())


@async_test
async def test_a_key_that_is_listed_but_missing_can_be_written(open_store, namespace):
    async with open_store() as store, AsyncDaprClient() as client:
        await store.put("a", b"1")
        await client.delete_state("statestore", record_name(namespace, "a"))
        assert await store.get("a") is None
        assert not await store.delete("a")
        await store.put("a", b"2", if_absent=True)
        assert await read_all(store) == {"a": b"2"}


def test_a_damaged_index_is_reported(open_store, sidecar, namespace, monkeypatch):
    monkeypatch.setattr(key_index, "LEAF_BYTES", 4 * key_index.MIN_KEY_BYTES)

    async def work() -> None:
        async with open_store() as store, AsyncDaprClient() as client:
            await store.put_many([Put(f"{number}", b"1") for number in range(9)])
            prefix = f"{namespace}/index/"
            for name in sidecar.keys("statestore"):
                if name.startswith(prefix) and name.removeprefix(prefix) not in ("root", "first"):
                    await client.delete_state("statestore", name)
            with pytest.raises(IntegrityError, match="damaged"):
                await collect_keys(store.list())
            with pytest.raises(IntegrityError, match="damaged"):
                await store.put("7x", b"1")
            found = await store.get("7")
            assert found is not None

    asyncio.run(work())
