"""Lost calls, wrong responses and slow sidecars."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from servers.process import needs
from support.async_tests import async_test

needs("dapr")


from holdfast.errors import StateStoreError  # noqa: E402
from holdfast.stores.base import Entry, Put  # noqa: E402
from holdfast.stores.dapr import records as records_module  # noqa: E402
from holdfast.stores.dapr import sidecar as sidecar_module  # noqa: E402
from holdfast.testing.state_store_suite import read_all  # noqa: E402
from servers.cutting_proxy import CuttingProxy  # noqa: E402


@pytest.mark.parametrize("kind", ["lose_answer", "lose_request"])
def test_each_write_is_applied_once_whichever_call_is_lost(open_store, sidecar, component, kind):
    # For each method, the number of calls to lose, one per round.
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
                    assert await read_all(store) == {"a": b"3", "b": b"1", "other": b"0"}
                    assert await store.delete("a", if_match=etags[0])
                    assert await store.delete("b")
                    assert not await store.delete("b")
                    assert await read_all(store) == {"other": b"0"}

    asyncio.run(work())


@async_test
async def test_a_response_lost_by_the_network_is_not_a_conflict(open_store, sidecar, component):
    with CuttingProxy(sidecar.port) as proxy:
        address = f"127.0.0.1:{proxy.port}"
        async with open_store(component, address=address) as store:
            await store.put("other", b"0")
            proxy.lose_next_response(after=b"value one")
            first = await store.put("a", b"value one", if_absent=True)
            proxy.lose_next_response(after=b"value two")
            second = await store.put("a", b"value two", if_match=first)
            assert await store.get("a") == Entry(b"value two", second)
            assert proxy.lost == 2


async def write_with_lost_response(sidecar, method: str, reads: int, mine, others) -> object:
    """Return the result of a write whose response is lost, with another write before its retry.

    ``reads`` is how often it reads before it writes.
    """
    sidecar.fault(method, "lose_answer")
    # Ours cannot read again until the other write is done.
    sidecar.fault("GetState", "lose_request", skip=reads, times=1000)
    writing = asyncio.create_task(mine())
    await asyncio.sleep(0.1)
    await others()
    sidecar.forget_faults()
    return await writing


def test_a_conflict_after_a_lost_response_is_of_unknown_outcome(
    open_store, sidecar, elsewhere, component, monkeypatch
):
    monkeypatch.setattr(records_module, "CLAIM_SECONDS", 0.1)

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
                with pytest.raises(StateStoreError, match="response to a write was lost") as caught:
                    await write_with_lost_response(
                        sidecar,
                        method,
                        reads,
                        lambda key=key, condition=condition: store.put(key, b"2", **condition),
                        lambda key=key: other.put(key, b"theirs"),
                    )
                assert caught.value.unknown
                assert (await read_all(store))[key] == b"theirs"

    asyncio.run(work())


@async_test
async def test_a_delete_whose_response_was_lost_is_recognized_by_its_token(
    open_store, sidecar, elsewhere
):
    async with open_store() as store, open_store(address=elsewhere.address) as other:
        etags = {key: await store.put(key, b"1") for key in "abcd"}
        await other.get("a")

        async def nothing() -> None:
            return

        def deleting(key: str, **condition):
            return lambda: store.delete(key, **condition)

        method = "ExecuteStateTransaction"
        lost = write_with_lost_response
        assert await lost(sidecar, method, 2, deleting("a", if_match=etags["a"]), nothing)

        async def write_beside() -> None:
            await other.put("bb", b"1")

        # Another program wrote the page since, so the token of our delete is gone.
        assert await lost(sidecar, method, 2, deleting("b"), write_beside)
        await other.delete("bb")
        with pytest.raises(StateStoreError, match="response to a write was lost"):
            await lost(sidecar, method, 2, deleting("c", if_match=etags["c"]), write_beside)
        assert await read_all(store) == {"bb": b"1", "d": b"1"}


@async_test
async def test_a_write_that_was_applied_but_reported_as_refused_succeeds(
    open_store, sidecar, component
):
    async with open_store(component) as store:
        etag = await store.put("a", b"1")
        for text in ("possible etag mismatch", "dial tcp 127.0.0.1:6379: connection refused"):
            sidecar.fault("SaveState", "do_and_say", code="ABORTED", text=text)
            etag = await store.put("a", text.encode(), if_match=etag)
            assert await store.get("a") == Entry(text.encode(), etag)


@async_test
async def test_a_write_that_is_always_refused_is_explained(open_store, sidecar, component):
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
        assert await read_all(store) == {"a": b"1"}


@async_test
async def test_a_first_page_that_cannot_be_created_is_reported(open_store, sidecar):
    async with open_store(patience=0) as store:
        sidecar.fault("SaveState", "say", times=100, code="INTERNAL", text="disk full")
        with pytest.raises(StateStoreError, match="disk full"):
            await store.put("a", b"1")


@pytest.mark.parametrize(
    ("code", "text", "problem", "transient"),
    [
        ("UNAVAILABLE", "Socket closed", "cannot be reached", True),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", "database is running", True),
        ("INTERNAL", "fail to get a: connection refused", "database is running", True),
        ("UNAUTHENTICATED", "authentication error", "DAPR_API_TOKEN", False),
        ("FAILED_PRECONDITION", "state store is not configured", "has no state store", False),
        ("UNIMPLEMENTED", "what", "responded UNIMPLEMENTED", False),
    ],
)
@async_test
async def test_errors_have_a_remedy(open_store, sidecar, code, text, problem, transient):
    async with open_store(patience=0) as store:
        await store.get("a")
        sidecar.fault("GetState", "say", code=code, text=text)
        with pytest.raises(StateStoreError, match=problem) as caught:
            await store.get("a")
        assert text in str(caught.value)
        assert store.display_url in str(caught.value)
        assert caught.value.transient is transient
        assert not caught.value.unknown


@async_test
async def test_a_slow_sidecar_times_out(open_store, sidecar):
    async with open_store(timeout=0.2, patience=0) as store:
        etag = await store.put("a", b"1")
        sidecar.fault("SaveState", "hold", seconds=2)
        with pytest.raises(StateStoreError, match=r"within 0\.2 seconds") as caught:
            await store.put("a", b"2", if_match=etag)
        assert caught.value.transient
        assert caught.value.unknown
        assert await read_all(store) == {"a": b"2"}


@async_test
async def test_an_unreadable_record_of_a_bulk_read_is_an_error(open_store, monkeypatch):
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


class SlowClient:
    """A client whose calls end when the test says so."""

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
        while len(self.saved) <= call:  # noqa: ASYNC110 - no event to wait for
            await asyncio.sleep(0)
        self.saved[call][1].set()


@async_test
async def test_a_write_that_our_own_write_made_stale_is_not_sent():
    client = SlowClient()
    sidecar = sidecar_module.Sidecar(client, "statestore", "dapr://statestore")
    saves = [asyncio.create_task(sidecar.save("a", b"", etag)) for etag in ("1", "1", "9")]
    await client.end(0)
    assert await saves[0] is None
    assert await saves[1] == "it was changed concurrently by this program"
    assert len(client.saved) == 1 or client.saved[1][0] == "9"
    # The etag seems to be in use again, so a write may be tried.
    assert await sidecar.read(["a"]) == {"a": (b"", "1")}
    again = asyncio.create_task(sidecar.save("a", b"", "1"))
    await client.end(1)
    await client.end(2)
    assert await asyncio.gather(saves[2], again) == [None, None]
    with pytest.raises(ValueError, match="does not like it"):
        await sidecar.read(["bad"])


def test_a_pending_call_fails_when_the_store_is_closed(open_store, sidecar):
    async def close_during_write():
        store = open_store()
        await store.put("first", b"1")
        sidecar.fault("GetState", "hold", seconds=1.0, times=50)
        sidecar.fault("GetBulkState", "hold", seconds=1.0, times=50)
        waiting = [asyncio.create_task(store.put(f"k{n}", b"1")) for n in range(3)]
        await asyncio.sleep(0.3)
        await store.close()
        return await asyncio.gather(*waiting, return_exceptions=True)

    for answer in asyncio.run(close_during_write()):
        assert isinstance(answer, StateStoreError)
        assert "closed" in str(answer)
