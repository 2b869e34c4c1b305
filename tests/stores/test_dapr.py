"""The store in a state component of Dapr.

Most of it runs against a stand-in for the sidecar. The suite runs against the real one too, where
``daprd`` is on the PATH.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest

from servers.process import free_port, needs

needs("dapr")

from dapr.aio.clients import DaprClient as AsyncDaprClient  # noqa: E402
from dapr.clients import DaprClient, DaprInternalError  # noqa: E402

from holdfast.errors import ConflictError, IntegrityError, StateStoreError  # noqa: E402
from holdfast.stores import dapr_records, dapr_sidecar, key_index  # noqa: E402
from holdfast.stores.contract import Entry, Put  # noqa: E402
from holdfast.stores.dapr import DaprStateStore, open_url  # noqa: E402
from holdfast.stores.dapr_names import name_of  # noqa: E402
from holdfast.stores.dapr_records import Record, encoded  # noqa: E402
from holdfast.stores.opening import open_state_store  # noqa: E402
from holdfast.stores.urls import StoreURL  # noqa: E402
from holdfast.testing import StateStoreSuite  # noqa: E402
from holdfast.testing.state_store_suite import content, listed  # noqa: E402
from servers.cutting_proxy import CuttingProxy  # noqa: E402
from servers.dapr_stand_in import DaprStandIn  # noqa: E402
from servers.daprd import Daprd, needs_daprd  # noqa: E402

BOTH = pytest.mark.parametrize("component", ["statestore", "redisstore"])


@pytest.fixture
def sidecar(dapr_stand_in, monkeypatch):
    """The stand-in, where the SDK looks for a sidecar."""
    for name, value in dapr_stand_in.environment.items():
        monkeypatch.setenv(name, value)
    yield dapr_stand_in
    dapr_stand_in.forget_faults()


@pytest.fixture(scope="module")
def elsewhere(dapr_stand_in):
    """Another sidecar with the same components, whose calls nobody disturbs."""
    with DaprStandIn(dapr_stand_in.folder) as server:
        yield server


@pytest.fixture
def namespace() -> str:
    return f"test {uuid.uuid4()}"


@pytest.fixture
def open_store(sidecar, namespace):
    """Opens stores on one empty namespace."""

    def opened(component: str = "statestore", **options: object) -> DaprStateStore:
        query = urlencode({"namespace": namespace, **options})
        return open_url(StoreURL(f"dapr://{component}?{query}"))

    return opened


# ---- the suite ---------------------------------------------------------------------------------


class TestWithTransactions(StateStoreSuite):
    examples = 8

    @pytest.fixture
    def new_store(self, open_store):
        return open_store


class TestWithClaims(StateStoreSuite):
    """A component whose transactions cannot be taken back."""

    examples = 6

    @pytest.fixture
    def new_store(self, open_store):
        return lambda: open_store("redisstore")


@pytest.fixture(scope="module")
def daprd(request, tmp_path_factory):
    program = needs_daprd()
    redis = request.getfixturevalue("redis_server")
    with Daprd(tmp_path_factory.mktemp("daprd"), program, redis) as server:
        yield server


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


# ---- the client --------------------------------------------------------------------------------


async def use(store: DaprStateStore) -> None:
    """A bit of everything."""
    first = await store.put("a", b"1", if_absent=True)
    await store.put_many([Put("b", b"2"), Put("c/d", b"3")])
    second = await store.put("a", b"4", if_match=first)
    with pytest.raises(ConflictError):
        await store.put("a", b"5", if_match=first)
    assert await store.get("a") == Entry(b"4", second)
    assert await store.delete("b")
    assert await content(store) == {"a": b"4", "c/d": b"3"}
    await asyncio.gather(*(store.put(f"many/{number}", b"1") for number in range(10)))
    assert len(await listed(store.list("many/"))) == 10


def test_a_blocking_client_serves_and_stays_open(sidecar, namespace):
    with DaprClient() as client:

        async def work() -> None:
            async with DaprStateStore(client, namespace) as store:
                await use(store)

        asyncio.run(work())
        name = name_of(namespace, "a")
        assert client.get_state("statestore", name).data.endswith(b"4\xc0")


def test_a_client_for_asyncio_serves_and_stays_open(sidecar, namespace):
    async def work() -> None:
        async with AsyncDaprClient() as client:
            async with DaprStateStore(client, namespace=namespace) as store:
                await use(store)
            found = await client.get_state("statestore", name_of(namespace, "a"))
            assert found.etag

    asyncio.run(work())


def test_a_client_that_was_closed_is_told(sidecar, namespace):
    async def work() -> None:
        async with DaprStateStore(DaprClient(), namespace) as store:
            assert await store.get("a") is None
            store._given.close()
            with pytest.raises(StateStoreError, match="given is closed"):
                await store.get("a")
        client = AsyncDaprClient()
        await client.close()
        async with DaprStateStore(client, namespace) as store:
            with pytest.raises(StateStoreError, match="given is closed"):
                await store.put("a", b"1")

    asyncio.run(work())


def test_its_constructor_is_as_the_design_says(sidecar):
    with DaprClient() as dapr_client:
        store = DaprStateStore(dapr_client, namespace="research")
        assert store.namespace == DaprStateStore(dapr_client).namespace == "research"
        assert store.store_name == "statestore"
        assert repr(store) == "<DaprStateStore dapr://statestore?namespace=research>"
        other = DaprStateStore(dapr_client, "a|b", store_name="other")
        assert (other.namespace, other.store_name) == ("a%7cb", "other")


def test_the_sidecar_is_where_the_url_says(sidecar, namespace, monkeypatch):
    monkeypatch.setenv("DAPR_GRPC_PORT", "1")

    async def work() -> None:
        query = urlencode({"namespace": namespace, "address": sidecar.address})
        async with open_state_store(f"dapr://statestore?{query}") as store:
            await use(store)

    asyncio.run(work())


def test_namespaces_are_apart(sidecar, namespace):
    async def work() -> None:
        stores = [
            DaprStateStore(None, name)
            for name in (namespace, namespace + "/keys", namespace + "%7c")
        ]
        for number, store in enumerate(stores):
            await store.put("a", b"%d" % number)
        for number, store in enumerate(stores):
            assert await content(store) == {"a": b"%d" % number}
            await store.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("dapr:", "names a state component"),
        ("dapr:///statestore", "names a state component"),
        ("dapr://localhost:50001", "option address"),
        ("dapr://me@statestore", "names a state component"),
        ("dapr://statestore/path", "names a state component"),
        ("dapr://statestore?namespaces=a", "nobody knows: .?namespaces"),
        ("dapr://statestore?timeout=0", "timeout"),
        ("dapr://statestore?patience=-1", "patience"),
        ("dapr://%20", "has a name"),
        ("dapr://statestore?namespace=", "1 to 64 bytes"),
    ],
)
def test_a_bad_url_is_refused(url, problem):
    with pytest.raises(StateStoreError, match=problem):
        open_state_store(url)


@pytest.mark.parametrize("namespace", ["", "x" * 65, "|" * 22])
def test_a_namespace_has_a_size(namespace):
    with pytest.raises(StateStoreError, match="1 to 64 bytes"):
        DaprStateStore(None, namespace)
    with pytest.raises(TypeError, match="is a str"):
        DaprStateStore(None, 7)  # type: ignore[arg-type]


def test_a_component_keeps_its_case():
    store = open_state_store("dapr://StateStore?namespace=a")
    assert isinstance(store, DaprStateStore)
    assert store.store_name == "StateStore"


# ---- records -----------------------------------------------------------------------------------


@BOTH
def test_names_are_readable_and_never_what_dapr_refuses(open_store, sidecar, namespace, component):
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
            assert await listed(store.list()) == sorted([*keys, long])

    asyncio.run(work())
    names = [name.removeprefix(f"{namespace}/") for name in sidecar.keys(component)]
    mine = {name for name in names if name.startswith("keys/")}
    assert {f"keys/{name}" for name in keys.values()} <= mine
    (hashed,) = (name for name in mine if name.startswith("keys/%~"))
    assert len(f"{namespace}/{hashed}") <= 150


def test_keys_that_the_component_takes_for_the_same_are_told(open_store, namespace):
    async def work() -> None:
        async with open_store() as store, AsyncDaprClient() as client:
            record = encoded(Record("CASE", "token", b"1"))
            await client.save_state("statestore", name_of(namespace, "case"), record)
            for call in (store.get("case"), store.put("case", b"2"), store.delete("case")):
                with pytest.raises(StateStoreError, match="'CASE' and 'case' for the same"):
                    await call

    asyncio.run(work())


@pytest.mark.parametrize("data", [b"something else", b"holdfast1\nnot one", b"holdfast1\n\x93"])
def test_what_is_not_ours_is_told(open_store, namespace, data):
    async def work() -> None:
        async with open_store(patience=0) as store, AsyncDaprClient() as client:
            await client.save_state("statestore", name_of(namespace, "a"), data)
            for call in (store.get("a"), store.put("a", b"1"), store.delete("a")):
                with pytest.raises(StateStoreError, match="none of ours") as caught:
                    await call
                assert not caught.value.transient

    asyncio.run(work())


def test_values_that_do_not_fit_into_one_message_are_read_one_by_one(sidecar, namespace):
    async def work() -> None:
        large = b"x" * 3_000_000
        async with AsyncDaprClient() as client, DaprStateStore(client, namespace) as store:
            for key in "abc":
                await store.put(key, large)
            assert {key: len(value) for key, value in (await content(store)).items()} == {
                "a": 3_000_000,
                "b": 3_000_000,
                "c": 3_000_000,
            }
            with pytest.raises(StateStoreError, match="too large for one message"):
                await store.put("d", large + large)
            assert await listed(store.list()) == ["a", "b", "c"]

    asyncio.run(work())


# ---- the index ---------------------------------------------------------------------------------


@BOTH
def test_the_cost_of_a_new_key_does_not_grow(open_store, sidecar, component):
    async def work() -> None:
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

    asyncio.run(work())


def test_keys_in_order_fill_their_pages(open_store, sidecar, namespace):
    async def work() -> None:
        async with open_store() as store:
            for start in range(0, 1024, 64):
                await store.put_many([Put(f"{start + n:06}", b"1") for n in range(64)])

    asyncio.run(work())
    pages = [name for name in sidecar.keys("statestore") if name.startswith(f"{namespace}/index/")]
    assert len(pages) == 1024 // 128 + 1


@BOTH
def test_several_programs_may_change_the_index_at_once(open_store, monkeypatch, component):
    monkeypatch.setattr(key_index, "LEAF", 4 * key_index.LEAST)

    async def work() -> None:
        # Each store has its own lock and its own idea of the index, as another program would.
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
            assert await listed(store.list()) == expected
            assert list(await content(store)) == expected
        keys = expected
        await asyncio.gather(*(stores[n % 3].delete(key) for n, key in enumerate(keys)))
        assert await listed(stores[0].list()) == []
        for store in stores:
            await store.close()

    asyncio.run(work())


def test_a_key_that_is_listed_and_gone_can_be_written(open_store, namespace):
    async def work() -> None:
        async with open_store() as store, AsyncDaprClient() as client:
            await store.put("a", b"1")
            await client.delete_state("statestore", name_of(namespace, "a"))
            assert await store.get("a") is None
            assert not await store.delete("a")
            await store.put("a", b"2", if_absent=True)
            assert await content(store) == {"a": b"2"}

    asyncio.run(work())


def test_a_damaged_index_is_told(open_store, sidecar, namespace, monkeypatch):
    monkeypatch.setattr(key_index, "LEAF", 4 * key_index.LEAST)

    async def work() -> None:
        async with open_store() as store, AsyncDaprClient() as client:
            await store.put_many([Put(f"{number}", b"1") for number in range(9)])
            prefix = f"{namespace}/index/"
            for name in sidecar.keys("statestore"):
                if name.startswith(prefix) and name.removeprefix(prefix) not in ("root", "first"):
                    await client.delete_state("statestore", name)
            with pytest.raises(IntegrityError, match="damaged"):
                await listed(store.list())
            with pytest.raises(IntegrityError, match="damaged"):
                await store.put("7x", b"1")
            found = await store.get("7")
            assert found is not None

    asyncio.run(work())


# ---- several at once ---------------------------------------------------------------------------


@BOTH
def test_batches_of_several_programs_are_all_or_nothing(open_store, component):
    """Money is moved between accounts, and none is made or lost."""

    async def work() -> None:
        stores = [open_store(component) for _ in range(3)]
        accounts = [f"account/{number}" for number in range(4)]
        await stores[0].put_many([Put(key, b"100") for key in accounts])

        async def move(store: DaprStateStore, number: int) -> None:
            for step in range(6):
                source, target = (
                    accounts[(number + step) % 4],
                    accounts[(number + 2 * step + 1) % 4],
                )
                while source != target:
                    found = await store.get_many([source, target])
                    values = {key: int(entry.value) for key, entry in found.items()}
                    moved = {source: values[source] - 7, target: values[target] + 7}
                    puts = [
                        Put(key, b"%d" % value, if_match=found[key].etag)
                        for key, value in moved.items()
                    ]
                    try:
                        await store.put_many(puts)
                        break
                    except ConflictError:
                        await asyncio.sleep(0.001 * number)

        await asyncio.gather(*(move(store, n) for n, store in enumerate([*stores, *stores])))
        assert sum(int(value) for value in (await content(stores[0])).values()) == 400
        for store in stores:
            await store.close()

    asyncio.run(work())


def test_a_batch_whose_owner_died_is_in_nobodys_way(open_store, sidecar, monkeypatch):
    monkeypatch.setattr(dapr_records, "HELD", 0.1)

    async def work() -> None:
        async with open_store("redisstore", patience=0) as one, open_store("redisstore") as two:
            await one.put_many([Put("a", b"1"), Put("b", b"1")])
            # Two claims are placed, and then the sidecar is gone for this one.
            sidecar.fault("SaveState", "lose_request", skip=2, times=1)
            with pytest.raises(
                StateStoreError, match="Whether it was written is not known"
            ) as caught:
                await one.put_many([Put("a", b"2"), Put("b", b"2")])
            assert caught.value.unknown
            assert await content(two) == {"a": b"1", "b": b"1"}
            begun = time.monotonic()
            await two.put("a", b"3")
            assert time.monotonic() - begun < 5
            assert await content(one) == {"a": b"3", "b": b"1"}
            await one.put("b", b"4")
            assert await content(two) == {"a": b"3", "b": b"4"}

    asyncio.run(work())


def test_a_batch_that_cannot_be_made_good_is_done_all_the_same(open_store, sidecar):
    async def work() -> None:
        async with open_store("redisstore") as one, open_store("redisstore") as two:
            await one.put_many([Put("a", b"1"), Put("b", b"1")])
            # Its verdict is said to be refused, and was not; then no claim can be made good.
            text = "possible etag mismatch"
            sidecar.fault("SaveState", "do_and_say", skip=2, code="ABORTED", text=text)
            sidecar.fault("SaveState", "say", skip=3, times=20, code="INTERNAL", text="no")
            etags = await one.put_many([Put("a", b"2"), Put("b", b"2")])
            sidecar.forget_faults()
            assert await two.get_many(["a", "b"]) == {
                "a": Entry(b"2", etags[0]),
                "b": Entry(b"2", etags[1]),
            }
            await two.put("b", b"3", if_match=etags[1])
            assert await content(one) == {"a": b"2", "b": b"3"}

    asyncio.run(work())


def test_a_batch_that_was_done_is_seen_before_it_is_made_good(open_store, sidecar):
    async def work() -> None:
        async with open_store("redisstore", patience=0) as one, open_store("redisstore") as two:
            await one.put_many([Put("a", b"1"), Put("b", b"1")])
            # Two claims and the verdict, and then the sidecar is gone for this one.
            sidecar.fault("SaveState", "lose_request", skip=3, times=2)
            etags = await one.put_many([Put("a", b"2"), Put("b", b"2")])
            assert await content(two) == {"a": b"2", "b": b"2"}
            assert await two.get("b") == Entry(b"2", etags[1])
            await two.put("a", b"3", if_match=etags[0])
            assert await two.delete("b", if_match=etags[1])
            assert await content(one) == {"a": b"3"}

    asyncio.run(work())


def test_a_removed_key_leaves_nothing_behind_in_the_end(
    open_store, sidecar, namespace, monkeypatch
):
    async def work() -> None:
        async with open_store("redisstore") as store:
            await store.put_many([Put(key, b"1") for key in "abc"])
            for key in "abc":
                await store.delete(key)
            monkeypatch.setattr(dapr_records, "REST", 0.0)
            await store.put("d", b"1")

    asyncio.run(work())
    names = {
        name.removeprefix(f"{namespace}/")
        for name in sidecar.keys("redisstore")
        if name.startswith(f"{namespace}/")
    }
    assert names == {"index/first", "keys/d"}


# ---- faults ------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("kind", ["lose_answer", "lose_request"])
def test_whatever_call_gets_lost_each_write_is_done_once(open_store, sidecar, component, kind):
    # How many calls of a method to let pass: all that there are, or the first of many.
    cases = {
        "statestore": {
            "SaveState": 1,
            "GetState": 6,
            "GetBulkState": 2,
            "ExecuteStateTransaction": 4,
        },
        "redisstore": {"SaveState": 9, "GetState": 3, "GetBulkState": 3, "DeleteState": 2},
    }

    async def work() -> None:
        async with open_store(component) as store:
            await store.put("other", b"0")
            for method, most in cases[component].items():
                for skip in range(most):
                    sidecar.forget_faults()
                    sidecar.fault(method, kind, skip=skip)
                    first = await store.put("a", b"1", if_absent=True)
                    assert await store.get("a") == Entry(b"1", first)
                    second = await store.put("a", b"2", if_match=first)
                    etags = await store.put_many([Put("a", b"3", if_match=second), Put("b", b"1")])
                    assert await store.get("b") == Entry(b"1", etags[1])
                    assert await content(store) == {"a": b"3", "b": b"1", "other": b"0"}
                    assert await store.delete("a", if_match=etags[0])
                    assert await store.delete("b")
                    assert not await store.delete("b")
                    assert await content(store) == {"other": b"0"}

    asyncio.run(work())


@BOTH
def test_an_answer_that_the_network_lost_is_no_conflict(open_store, sidecar, component):
    async def work() -> None:
        with CuttingProxy(sidecar.port) as proxy:
            address = f"127.0.0.1:{proxy.port}"
            async with open_store(component, address=address) as store:
                await store.put("other", b"0")
                proxy.lose_next_answer(after=b"value one")
                first = await store.put("a", b"value one", if_absent=True)
                proxy.lose_next_answer(after=b"value two")
                second = await store.put("a", b"value two", if_match=first)
                assert await store.get("a") == Entry(b"value two", second)
                assert proxy.lost == 2

    asyncio.run(work())


async def after_a_lost_answer(sidecar, method: str, reads: int, mine, others) -> object:
    """What our write gives whose answer is lost, where somebody else writes before it is retried.

    ``reads`` is how often it reads before it writes.
    """
    sidecar.fault(method, "lose_answer")
    # Until the other one is done, ours cannot read what has become of it.
    sidecar.fault("GetState", "lose_request", skip=reads, times=1000)
    writing = asyncio.create_task(mine())
    await asyncio.sleep(0.1)
    await others()
    sidecar.forget_faults()
    return await writing


@BOTH
def test_a_conflict_after_a_lost_answer_is_in_doubt(
    open_store, sidecar, elsewhere, component, monkeypatch
):
    monkeypatch.setattr(dapr_records, "HELD", 0.1)

    async def work() -> None:
        other = open_store(component, address=elsewhere.address)
        async with open_store(component) as store, other:
            await store.put("other", b"1")
            await other.get("other")
            etag = await store.put("b", b"1")
            created = "ExecuteStateTransaction" if component == "statestore" else "SaveState"
            for method, reads, key, condition in (
                (created, 2, "a", {"if_absent": True}),
                ("SaveState", 1, "b", {"if_match": etag}),
            ):
                with pytest.raises(StateStoreError, match="answer to a write got lost") as caught:
                    await after_a_lost_answer(
                        sidecar,
                        method,
                        reads,
                        lambda key=key, condition=condition: store.put(key, b"2", **condition),
                        lambda key=key: other.put(key, b"another's"),
                    )
                assert caught.value.unknown
                assert (await content(store))[key] == b"another's"

    asyncio.run(work())


def test_a_delete_whose_answer_was_lost_is_known_by_what_it_left(open_store, sidecar, elsewhere):
    async def work() -> None:
        async with open_store() as store, open_store(address=elsewhere.address) as other:
            etags = {key: await store.put(key, b"1") for key in "abcd"}
            await other.get("a")

            async def nothing() -> None:
                return

            def deleting(key: str, **condition):
                return lambda: store.delete(key, **condition)

            method = "ExecuteStateTransaction"
            lost = after_a_lost_answer
            assert await lost(sidecar, method, 2, deleting("a", if_match=etags["a"]), nothing)

            async def write_beside() -> None:
                await other.put("bb", b"1")

            # The page has been written by another since, so that nothing tells whose delete it was.
            assert await lost(sidecar, method, 2, deleting("b"), write_beside)
            await other.delete("bb")
            with pytest.raises(StateStoreError, match="answer to a write got lost"):
                await lost(sidecar, method, 2, deleting("c", if_match=etags["c"]), write_beside)
            assert await content(store) == {"bb": b"1", "d": b"1"}

    asyncio.run(work())


@BOTH
def test_a_write_that_was_done_and_said_to_be_refused_is_done(open_store, sidecar, component):
    async def work() -> None:
        async with open_store(component) as store:
            etag = await store.put("a", b"1")
            for text in ("possible etag mismatch", "dial tcp 127.0.0.1:6379: connection refused"):
                sidecar.fault("SaveState", "do_and_say", code="ABORTED", text=text)
                etag = await store.put("a", text.encode(), if_match=etag)
                assert await store.get("a") == Entry(text.encode(), etag)

    asyncio.run(work())


@BOTH
def test_a_write_that_is_always_refused_says_why(open_store, sidecar, component):
    async def work() -> None:
        async with open_store(component, patience=0) as store:
            await store.put("a", b"1")
            sidecar.fault("SaveState", "say", times=100, code="INTERNAL", text="disk full")
            method = "ExecuteStateTransaction"
            sidecar.fault(method, "say", times=100, code="INTERNAL", text="disk full")
            with pytest.raises(StateStoreError, match="disk full") as caught:
                await store.put("a", b"2")
            assert caught.value.transient
            assert not caught.value.unknown
            for call in (store.put("b", b"2"), store.delete("a")):
                with pytest.raises(StateStoreError, match="disk full"):
                    await call
            sidecar.forget_faults()
            assert await content(store) == {"a": b"1"}

    asyncio.run(work())


def test_a_first_page_that_cannot_be_made_is_told(open_store, sidecar):
    async def work() -> None:
        async with open_store(patience=0) as store:
            sidecar.fault("SaveState", "say", times=100, code="INTERNAL", text="disk full")
            with pytest.raises(StateStoreError, match="disk full"):
                await store.put("a", b"1")

    asyncio.run(work())


@pytest.mark.parametrize(
    ("code", "text", "problem", "transient"),
    [
        ("UNAVAILABLE", "Socket closed", "cannot be reached", True),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", "component's database is up", True),
        ("INTERNAL", "fail to get a: connection refused", "component's database is up", True),
        ("UNAUTHENTICATED", "authentication error", "DAPR_API_TOKEN", False),
        ("FAILED_PRECONDITION", "state store is not configured", "has no state store", False),
        ("UNIMPLEMENTED", "what", "answers UNIMPLEMENTED", False),
    ],
)
def test_errors_say_what_to_do(open_store, sidecar, code, text, problem, transient):
    async def work() -> None:
        async with open_store(patience=0) as store:
            await store.get("a")
            sidecar.fault("GetState", "say", code=code, text=text)
            with pytest.raises(StateStoreError, match=problem) as caught:
                await store.get("a")
            assert text in str(caught.value)
            assert store.place in str(caught.value)
            assert caught.value.transient is transient
            assert not caught.value.unknown

    asyncio.run(work())


def test_a_slow_sidecar_is_not_waited_for(open_store, sidecar):
    async def work() -> None:
        async with open_store(timeout=0.2, patience=0) as store:
            etag = await store.put("a", b"1")
            sidecar.fault("SaveState", "hold", seconds=2)
            with pytest.raises(StateStoreError, match=r"within 0\.2 seconds") as caught:
                await store.put("a", b"2", if_match=etag)
            assert caught.value.transient
            assert caught.value.unknown
            assert await content(store) == {"a": b"2"}

    asyncio.run(work())


def test_a_record_that_cannot_be_read_among_others_is_an_error(open_store, monkeypatch):
    async def work() -> None:
        async with open_store(patience=0) as store:
            await store.put_many([Put("a", b"1"), Put("b", b"1")])
            records = await store._client()
            real = records.sidecar.client.get_bulk_state

            async def broken(**arguments):
                answer = await real(**arguments)
                answer.items[0]._error = "dial tcp: connection refused"
                return answer

            monkeypatch.setattr(records.sidecar.client, "get_bulk_state", broken)
            with pytest.raises(StateStoreError, match="cannot read a record"):
                await store.get_many(["a", "b"])

    asyncio.run(work())


class SlowClient:
    """A client of which a test sees every call, and lets it end."""

    def __init__(self) -> None:
        self.saved: list[tuple[str | None, asyncio.Event]] = []

    async def get_state(self, store_name: str, key: str) -> SimpleNamespace:
        if key == "bad":
            raise ValueError("the SDK does not like it")
        return SimpleNamespace(data=b"", etag="1")

    async def save_state(self, etag: str | None, **_: object) -> None:
        self.saved.append((etag, asyncio.Event()))
        await self.saved[-1][1].wait()

    async def end(self, call: int) -> None:
        while len(self.saved) <= call:
            await asyncio.sleep(0)
        self.saved[call][1].set()


def test_who_would_be_refused_by_our_own_write_is_not_sent():
    async def work() -> None:
        client = SlowClient()
        sidecar = dapr_sidecar.Sidecar(client, "statestore", "dapr://statestore")
        saves = [asyncio.create_task(sidecar.save("a", b"", etag)) for etag in ("1", "1", "9")]
        await client.end(0)
        assert await saves[0] is None
        assert await saves[1] == "it was written by this program meanwhile"
        assert len(client.saved) == 1 or client.saved[1][0] == "9"
        # It is there again, or so it seems: then it may be tried.
        assert await sidecar.read(["a"]) == {"a": (b"", "1")}
        again = asyncio.create_task(sidecar.save("a", b"", "1"))
        await client.end(1)
        await client.end(2)
        assert await asyncio.gather(saves[2], again) == [None, None]
        with pytest.raises(ValueError, match="does not like it"):
            await sidecar.read(["bad"])

    asyncio.run(work())


# ---- components --------------------------------------------------------------------------------


def test_an_error_without_a_status_is_an_unknown_one():
    assert dapr_sidecar.code_of(DaprInternalError("broken")).name == "UNKNOWN"
    assert dapr_sidecar.text_of(DaprInternalError("broken")) == "broken"


def test_an_unknown_component_is_told_with_those_there_are(open_store):
    async def work() -> None:
        async with open_store("stores") as store:
            for call in (store.get("a"), store.put("a", b"1")):
                with pytest.raises(
                    StateStoreError, match="no state store of the name 'stores'"
                ) as no:
                    await call
                assert "redisstore, statestore" in str(no.value)

    asyncio.run(work())


def test_a_component_without_etags_is_refused_with_those_that_work(open_store, sidecar):
    async def work() -> None:
        async with open_store("plainstore") as store:
            with pytest.raises(StateStoreError, match=r"no etags: .*state\.postgresql"):
                await store.put("a", b"1")
        # Where the sidecar does not say what its components can do, it is found out.
        sidecar.fault("GetMetadata", "say", code="PERMISSION_DENIED", text="not allowed")
        async with open_store("plainstore", patience=0) as store:
            with pytest.raises(StateStoreError, match="no etags"):
                await store.put("a", b"1")

    asyncio.run(work())


def test_a_component_without_transactions_serves(open_store, sidecar):
    async def work() -> None:
        before = sidecar.calls().get("ExecuteStateTransaction", 0)
        async with open_store("etagstore") as store:
            await use(store)
        assert sidecar.calls().get("ExecuteStateTransaction", 0) == before

    asyncio.run(work())


def test_a_sidecar_that_does_not_tell_its_components_serves(open_store, sidecar):
    async def work() -> None:
        sidecar.fault("GetMetadata", "say", code="PERMISSION_DENIED", text="not allowed")
        # One does not know what the component can, and the other does: they get along.
        async with open_store() as cautious, open_store() as other:
            await use(cautious)
            await other.put("b", b"again")
            await cautious.put("many/3", b"new")
            assert await content(other) == await content(cautious)

    asyncio.run(work())


def test_a_sidecar_that_fails_to_tell_its_components_is_an_error(open_store, sidecar):
    async def work() -> None:
        sidecar.fault("GetMetadata", "say", code="UNAUTHENTICATED", text="no token")
        async with open_store() as store:
            with pytest.raises(StateStoreError, match="does not let us in"):
                await store.get("a")
            assert await store.get("a") is None

    asyncio.run(work())


# ---- the sidecar's life ------------------------------------------------------------------------


def test_no_sidecar_is_told_within_seconds(monkeypatch):
    monkeypatch.setattr(dapr_sidecar, "START", 0.3)
    monkeypatch.setenv("DAPR_HTTP_PORT", str(free_port()))

    async def work() -> None:
        async with open_state_store("dapr://statestore") as store:
            with pytest.raises(StateStoreError, match="no Dapr sidecar is ready") as caught:
                await store.put("a", b"1")
            assert "dapr run" in str(caught.value)
            assert caught.value.transient
            assert not caught.value.unknown

    begun = time.monotonic()
    asyncio.run(work())
    assert time.monotonic() - begun < 5


def test_a_sidecar_that_is_not_ready_is_told(sidecar, monkeypatch):
    monkeypatch.setattr(dapr_sidecar, "START", 0.1)
    monkeypatch.setenv("DAPR_API_VERSION", "v0")

    async def work() -> None:
        async with open_state_store("dapr://statestore") as store:
            with pytest.raises(StateStoreError, match="404"):
                await store.get("a")

    asyncio.run(work())


def test_an_address_that_is_none_is_told(open_store):
    async def work() -> None:
        async with open_store(address="ftp://127.0.0.1") as store:
            with pytest.raises(StateStoreError, match="client of Dapr cannot be made.*ftp"):
                await store.get("a")

    asyncio.run(work())


def test_a_sidecar_without_grpc_is_told(open_store):
    async def work() -> None:
        async with open_store(address=f"127.0.0.1:{free_port()}") as store:
            with pytest.raises(StateStoreError, match="cannot be reached") as caught:
                await store.put("a", b"1")
            assert caught.value.transient
            assert not caught.value.unknown

    asyncio.run(work())


@BOTH
def test_a_sidecar_that_is_killed_and_comes_back_loses_nothing(
    tmp_path: Path, monkeypatch, component
):
    server = DaprStandIn(tmp_path)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    acknowledged: dict[str, tuple[bytes, str]] = {}
    unknown: set[str] = set()
    counted = {"done": 0, "unknown": 0}
    ends = time.monotonic() + 2.2

    async def create(store: DaprStateStore, task: int) -> None:
        for number in range(10_000):
            if time.monotonic() > ends:
                return
            key = f"made/{task}/{number:04}"
            try:
                # Nobody else writes it: a conflict would be one with itself.
                etag = await store.put(key, key.encode(), if_absent=True)
                etag = await store.put(key, b"twice", if_match=etag)
                acknowledged[key] = (b"twice", etag)
            except StateStoreError:
                unknown.add(key)

    async def count(store: DaprStateStore) -> None:
        while time.monotonic() < ends:
            try:
                entry = await store.get("counter")
                if entry is None:
                    await store.put("counter", b"1", if_absent=True)
                else:
                    value = b"%d" % (int(entry.value) + 1)
                    await store.put("counter", value, if_match=entry.etag)
                counted["done"] += 1
            except ConflictError:
                await asyncio.sleep(0.01)
            except StateStoreError as error:
                counted["unknown"] += error.unknown

    async def strike() -> None:
        await asyncio.sleep(0.4)
        server.kill()
        await asyncio.to_thread(server.start)

    async def work() -> None:
        store = DaprStateStore(None, store_name=component)
        other = DaprStateStore(None, store_name=component)
        async with store, other:
            await store.put("begin", b"1")
            await other.get("begin")
            await asyncio.gather(
                strike(),
                *(create(one, task) for task, one in enumerate([store, other])),
                *(count(one) for one in (store, other)),
            )
            found = await store.get("counter")
            assert found is not None
            number = int(found.value)
            assert counted["done"] <= number <= counted["done"] + counted["unknown"]
            assert counted["done"] > 10
            entries = await other.get_many(acknowledged)
            assert {key: (e.value, e.etag) for key, e in entries.items()} == acknowledged
            keys = set(await listed(other.list("made/")))
            assert set(acknowledged) <= keys <= set(acknowledged) | unknown
            assert keys == set(await content(store)) - {"begin", "counter"}

    with server:
        asyncio.run(work())
