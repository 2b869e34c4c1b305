"""Concurrent threads on one store."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from holdfast import Snapshot, Store
from holdfast.values import encode

THREADS = 8
ROUNDS = 150


@pytest.fixture(autouse=True)
def switch_often() -> Iterator[None]:
    former = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(former)


def run_concurrently(*jobs: Callable[[], None]) -> None:
    """Run jobs concurrently, and fail if one of them fails."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(jobs))

    def run(job: Callable[[], None]) -> None:
        try:
            start.wait()
            job()
        except BaseException as error:  # noqa: BLE001 - raised again below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(job,), daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
        assert not thread.is_alive(), "the threads are stuck"
    if failures:
        raise failures[0]


def test_snapshots_contain_batches_completely_or_not_at_all():
    store = Store(max_history=0)
    pairs = [(f"n{at % 64}", f"k{at}") for at in range(512)]
    store.set_many((namespace, key, -1) for namespace, key in pairs)
    snapshots: list[tuple[Snapshot, str]] = []

    def write(thread: int) -> None:
        for turn in range(12):
            store.set_many((namespace, key, [thread, turn]) for namespace, key in pairs)

    def freeze() -> None:
        for _ in range(ROUNDS):
            snapshot = store.snapshot()
            snapshots.append((snapshot, snapshot.digest))

    run_concurrently(
        *[lambda thread=thread: write(thread) for thread in range(THREADS)], freeze, freeze
    )
    for snapshot, digest in snapshots:
        assert len({repr(value) for _, _, value in snapshot.items()}) == 1
        fresh = Store()
        fresh.set_many(list(snapshot.items()))
        assert fresh.snapshot().digest == digest


def test_transactions_are_atomic_for_other_threads():
    store = Store(max_history=0)
    accounts = [f"account {at}" for at in range(20)]
    store.set_many(("bank", name, 100) for name in accounts)

    def move(thread: int) -> None:
        for turn in range(ROUNDS):
            source, target = accounts[(thread + turn) % 20], accounts[(thread * 7 + turn + 1) % 20]
            try:
                with store.transaction():
                    store.set("bank", source, store.get("bank", source) - 5)
                    if turn % 3 == 0:
                        raise LookupError
                    store.set("bank", target, store.get("bank", target) + 5)
            except LookupError:
                continue

    def audit() -> None:
        for _ in range(ROUNDS * 2):
            snapshot = store.snapshot()
            assert sum(snapshot.get("bank", name) for name in accounts) == 2000
            assert sum(store.get_many([("bank", name) for name in accounts])) == 2000

    run_concurrently(
        *[lambda thread=thread: move(thread) for thread in range(THREADS)], audit, audit
    )
    assert sum(store.get("bank", name) for name in accounts) == 2000


def test_concurrent_writes_are_not_lost():
    store = Store(max_history=3)

    def write(thread: int) -> None:
        for at in range(1000):
            store.set(f"n{thread % 3}", f"{thread}/{at}", at)
            store.set("shared", f"{at}", thread)
            if at % 50 == 0:
                store.snapshot()
            if at % 3 == 0:
                assert store.delete(f"n{thread % 3}", f"{thread}/{at}")
            assert store.get(f"n{thread % 3}", f"{thread}/{at}") == (None if at % 3 == 0 else at)

    run_concurrently(*[lambda thread=thread: write(thread) for thread in range(THREADS)])
    kept = len([at for at in range(1000) if at % 3])
    assert len(store) == THREADS * kept + 1000 == len(store.snapshot().keys)
    assert store.snapshot().size_bytes == sum(
        len(encode(value)) for _, _, value in store.snapshot().items()
    )
    for thread in range(THREADS):
        for at in range(1000):
            assert store.contains(f"n{thread % 3}", f"{thread}/{at}") == (at % 3 != 0)


def test_concurrent_increments_in_transactions_are_not_lost():
    store = Store(max_history=0)
    store.set("n", "count", 0)

    def count() -> None:
        for _ in range(ROUNDS):
            with store.transaction():
                store.set("n", "count", store.get("n", "count") + 1)

    run_concurrently(*[count] * THREADS)
    assert store.get("n", "count") == THREADS * ROUNDS


def test_concurrent_forks_and_restores_are_consistent():
    store = Store(max_history=5)
    store.set_many(("n", f"k{at}", 0) for at in range(200))
    base = store.snapshot()

    def work(thread: int) -> None:
        for turn in range(40):
            fork = store.fork()
            fork.set_many(("n", f"k{at}", thread) for at in range(200))
            snapshot = fork.snapshot()
            assert {value for _, _, value in snapshot.items()} == {thread}
            if turn % 2:
                store.restore(snapshot)
            else:
                store.merge(snapshot, base, on_conflict="theirs")
            assert len({value for _, _, value in store.snapshot().items()}) == 1

    run_concurrently(*[lambda thread=thread: work(thread) for thread in range(1, THREADS)])
    assert {value for _, _, value in base.items()} == {0}


def test_a_reader_waits_for_an_open_transaction():
    store = Store()
    store.set("n", "k", "before")
    inside, seen = threading.Event(), []

    def read() -> None:
        inside.wait()
        seen.append((store.get("n", "k"), len(store), repr(store)))

    def write() -> None:
        with store.transaction():
            store.set("n", "k", "half-way")
            inside.set()
            threading.Event().wait(0.05)
            store.set("n", "k", "after")
            store.set("n", "other", "after")

    run_concurrently(read, write)
    assert seen == [("after", 2, "<Store: 2 entries, 12 bytes>")]


def test_a_finalizer_cannot_write_in_the_middle_of_a_write():
    store = Store(max_history=0)
    refused = []
    written = set()

    class Chatty:
        def __init__(self, at: int) -> None:
            self.at = at
            self.loop = self

        def __del__(self) -> None:
            assert store.get("n", "k0") in (None, 0)
            try:
                store.set("finalized", f"k{self.at}", self.at)
                written.add(f"k{self.at}")
            except RuntimeError as error:
                refused.append(error)

    former = gc.get_threshold()
    gc.set_threshold(1)
    try:
        for at in range(500):
            Chatty(at)
            store.set("n", f"k{at}", at)
            if at % 10 == 0:
                store.snapshot()
    finally:
        gc.set_threshold(*former)
    gc.collect()
    assert set(store.keys("finalized")) == written
    assert len(written) + len(refused) == 500
    assert all("in the middle of a write" in str(error) for error in refused)
    assert [store.get("n", f"k{at}") for at in range(500)] == list(range(500))
    assert len(store) == len(store.snapshot().keys) == 500 + len(written)
