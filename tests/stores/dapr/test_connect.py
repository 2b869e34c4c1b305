"""Dapr clients, URLs, components and missing sidecars."""

from __future__ import annotations

import asyncio
import time
from urllib.parse import urlencode

import pytest

from servers.process import free_port, needs
from support.async_tests import async_test

needs("dapr")

from dapr.aio.clients import DaprClient as AsyncDaprClient  # noqa: E402
from dapr.clients import DaprClient, DaprInternalError  # noqa: E402

from holdfast.errors import ConflictError, StateStoreError  # noqa: E402
from holdfast.stores.base import Entry, Put  # noqa: E402
from holdfast.stores.dapr import DaprStateStore  # noqa: E402
from holdfast.stores.dapr import sidecar as sidecar_module  # noqa: E402
from holdfast.stores.dapr.names import record_name  # noqa: E402
from holdfast.stores.registry import open_state_store  # noqa: E402
from holdfast.testing.state_store_suite import collect_keys, read_all  # noqa: E402


async def exercise(store: DaprStateStore) -> None:
    """Use all operations of a store."""
    first = await store.put("a", b"1", if_absent=True)
    await store.put_many([Put("b", b"2"), Put("c/d", b"3")])
    second = await store.put("a", b"4", if_match=first)
    with pytest.raises(ConflictError):
        await store.put("a", b"5", if_match=first)
    assert await store.get("a") == Entry(b"4", second)
    assert await store.delete("b")
    assert await read_all(store) == {"a": b"4", "c/d": b"3"}
    await asyncio.gather(*(store.put(f"many/{number}", b"1") for number in range(10)))
    assert len(await collect_keys(store.list("many/"))) == 10


def test_a_blocking_client_works_and_is_not_closed(sidecar, namespace):
    with DaprClient() as client:

        async def work() -> None:
            async with DaprStateStore(client, namespace) as store:
                await exercise(store)

        asyncio.run(work())
        name = record_name(namespace, "a")
        assert client.get_state("statestore", name).data.endswith(b"4\xc0")


@async_test
async def test_an_asyncio_client_works_and_is_not_closed(sidecar, namespace):
    async with AsyncDaprClient() as client:
        async with DaprStateStore(client, namespace=namespace) as store:
            await exercise(store)
        found = await client.get_state("statestore", record_name(namespace, "a"))
        assert found.etag


@async_test
async def test_a_closed_client_is_reported(sidecar, namespace):
    async with DaprStateStore(DaprClient(), namespace) as store:
        assert await store.get("a") is None
        store._given_client.close()
        with pytest.raises(StateStoreError, match="Dapr client is closed"):
            await store.get("a")
    client = AsyncDaprClient()
    await client.close()
    async with DaprStateStore(client, namespace) as store:
        with pytest.raises(StateStoreError, match="Dapr client is closed"):
            await store.put("a", b"1")


def test_the_constructor_has_documented_defaults(sidecar):
    with DaprClient() as dapr_client:
        store = DaprStateStore(dapr_client, namespace="research")
        assert store.namespace == "research"
        assert DaprStateStore(dapr_client).namespace == "holdfast"
        assert store.store_name == "statestore"
        assert repr(store) == "<DaprStateStore dapr://statestore?namespace=research>"
        other = DaprStateStore(dapr_client, "a|b", store_name="other")
        assert (other.namespace, other.store_name) == ("a%7cb", "other")


def test_the_url_names_the_address_of_the_sidecar(sidecar, namespace, monkeypatch):
    monkeypatch.setenv("DAPR_GRPC_PORT", "1")

    async def work() -> None:
        query = urlencode({"namespace": namespace, "address": sidecar.address})
        async with open_state_store(f"dapr://statestore?{query}") as store:
            await exercise(store)

    asyncio.run(work())


@async_test
async def test_namespaces_are_separate(sidecar, namespace):
    stores = [
        DaprStateStore(None, name) for name in (namespace, namespace + "/keys", namespace + "%7c")
    ]
    for number, store in enumerate(stores):
        await store.put("a", b"%d" % number)
    for number, store in enumerate(stores):
        assert await read_all(store) == {"a": b"%d" % number}
        await store.close()


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("dapr:", "does not name a state component"),
        ("dapr:///statestore", "does not name a state component"),
        ("dapr://localhost:50001", "as an option"),
        ("dapr://me@statestore", "does not name a state component"),
        ("dapr://statestore/path", "does not name a state component"),
        ("dapr://statestore?namespaces=a", "unknown option 'namespaces'"),
        ("dapr://statestore?timeout=0", "timeout"),
        ("dapr://statestore?patience=-1", "patience"),
        ("dapr://%20", "name of a Dapr component"),
        ("dapr://statestore?namespace=", "1 to 64 bytes"),
    ],
)
def test_an_invalid_url_is_rejected(url, problem):
    with pytest.raises(StateStoreError, match=problem):
        open_state_store(url)


@pytest.mark.parametrize("namespace", ["", "x" * 65, "|" * 22])
def test_a_namespace_has_a_size_limit(namespace):
    with pytest.raises(StateStoreError, match="1 to 64 bytes"):
        DaprStateStore(None, namespace)
    with pytest.raises(TypeError, match="must be a str"):
        DaprStateStore(None, 7)  # type: ignore[arg-type]


def test_a_component_keeps_its_case():
    store = open_state_store("dapr://StateStore?namespace=a")
    assert isinstance(store, DaprStateStore)
    assert store.store_name == "StateStore"


def test_an_error_without_a_status_has_the_status_unknown():
    assert sidecar_module.status_code(DaprInternalError("broken")).name == "UNKNOWN"
    assert sidecar_module.error_details(DaprInternalError("broken")) == "broken"


@async_test
async def test_an_unknown_component_is_rejected_with_the_known_ones(open_store):
    async with open_store("stores") as store:
        for call in (store.get("a"), store.put("a", b"1")):
            with pytest.raises(StateStoreError, match="no state store named 'stores'") as caught:
                await call
            assert "redisstore, statestore" in str(caught.value)


@async_test
async def test_a_component_without_etags_is_rejected(open_store, sidecar):
    async with open_store("plainstore") as store:
        with pytest.raises(StateStoreError, match=r"no etags; .*state\.postgresql"):
            await store.put("a", b"1")
    # The sidecar hides its components, so the missing etags are noticed on use.
    sidecar.fault("GetMetadata", "say", code="PERMISSION_DENIED", text="not allowed")
    async with open_store("plainstore", patience=0) as store:
        with pytest.raises(StateStoreError, match="no etags"):
            await store.put("a", b"1")


@async_test
async def test_a_component_without_transactions_works(open_store, sidecar):
    before = sidecar.calls().get("ExecuteStateTransaction", 0)
    async with open_store("etagstore") as store:
        await exercise(store)
    assert sidecar.calls().get("ExecuteStateTransaction", 0) == before


@async_test
async def test_a_sidecar_that_hides_its_components_works(open_store, sidecar):
    sidecar.fault("GetMetadata", "say", code="PERMISSION_DENIED", text="not allowed")
    # One store knows the capabilities of the component and the other does not.
    async with open_store() as cautious, open_store() as other:
        await exercise(cautious)
        await other.put("b", b"again")
        await cautious.put("many/3", b"new")
        assert await read_all(other) == await read_all(cautious)


@async_test
async def test_a_sidecar_that_fails_to_list_its_components_is_an_error(open_store, sidecar):
    sidecar.fault("GetMetadata", "say", code="UNAUTHENTICATED", text="no token")
    async with open_store() as store:
        with pytest.raises(StateStoreError, match="denied access"):
            await store.get("a")
        assert await store.get("a") is None


def test_a_missing_sidecar_is_reported_within_seconds(monkeypatch):
    monkeypatch.setattr(sidecar_module, "START_TIMEOUT", 0.3)
    monkeypatch.setenv("DAPR_HTTP_PORT", str(free_port()))

    async def work() -> None:
        async with open_state_store("dapr://statestore") as store:
            with pytest.raises(StateStoreError, match="no Dapr sidecar is ready") as caught:
                await store.put("a", b"1")
            assert "dapr run" in str(caught.value)
            assert caught.value.transient
            assert not caught.value.unknown

    start = time.monotonic()
    asyncio.run(work())
    assert time.monotonic() - start < 5


def test_a_sidecar_that_is_not_ready_is_reported(sidecar, monkeypatch):
    monkeypatch.setattr(sidecar_module, "START_TIMEOUT", 0.1)
    monkeypatch.setenv("DAPR_API_VERSION", "v0")

    async def work() -> None:
        async with open_state_store("dapr://statestore") as store:
            with pytest.raises(StateStoreError, match="404"):
                await store.get("a")

    asyncio.run(work())


@async_test
async def test_an_invalid_address_is_reported(open_store):
    async with open_store(address="ftp://127.0.0.1") as store:
        with pytest.raises(StateStoreError, match="cannot create the Dapr client.*ftp"):
            await store.get("a")


@async_test
async def test_a_sidecar_without_grpc_is_reported(open_store):
    async with open_store(address=f"127.0.0.1:{free_port()}") as store:
        with pytest.raises(StateStoreError, match="cannot be reached") as caught:
            await store.put("a", b"1")
        assert caught.value.transient
        assert not caught.value.unknown
