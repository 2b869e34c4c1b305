"""The SQLite store, on real files."""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event

import pytest

from holdfast import IntegrityError, Put, StateStoreError, open_state_store
from holdfast.stores.sqlite import SqliteStateStore
from holdfast.stores.sqlite.connections import Connections
from holdfast.stores.wrappers.prefix import PrefixedStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from holdfast.testing import StateStoreSuite
from holdfast.testing.checks import collect_keys
from stores.sqlite.one_entry import connections, during_transaction, get_one, put_one
from support.async_tests import run_async


class TestSqlite(StateStoreSuite):
    @pytest.fixture
    def new_store(self, tmp_path):
        return lambda: SqliteStateStore(tmp_path / "folder" / "state.db")


def test_the_cost_of_a_page_does_not_depend_on_the_number_of_keys(path):
    steps = {}
    for size in (100, 20_000):
        run_async(put_one(path, "k/000000"))
        with closing(sqlite3.connect(path)) as database, database:
            database.executemany(
                "INSERT OR IGNORE INTO entries VALUES (?, 'e', x'00')",
                ((f"k/{number:06}",) for number in range(size)),
            )
        for name, arguments in {
            "first": {"prefix": "k/"},
            "middle": {"prefix": "", "start_after": f"k/{size // 2:06}"},
            "prefix": {"prefix": f"k/{size // 2:06}"[:-2]},
        }.items():
            steps[name, size] = run_async(count_steps(path, **arguments))
    for name in ("first", "middle", "prefix"):
        assert steps[name, 100] == steps[name, 20_000] > 10, name


async def count_steps(path, **arguments):
    """Return how many steps SQLite's virtual machine takes for a page."""
    count = 0

    def step():
        nonlocal count
        count += 1

    async with SqliteStateStore(path) as store:
        store._connections.readers = ThreadPoolExecutor(1)  # one thread, one connection
        await store.get("k/000000")
        for connection in connections(store):
            connection.set_progress_handler(step, 1)
        keys = [key async for key in store.list(limit=20, **arguments)]
        assert len(keys) == 20
        for connection in connections(store):
            connection.set_progress_handler(None, 1)
    return count


def test_small_reads_need_no_thread(path):
    class Threads(ThreadPoolExecutor):
        used = 0

        def submit(self, *args, **kwargs):
            self.used += 1
            return super().submit(*args, **kwargs)

    async def count_threads():
        async with SqliteStateStore(path) as store:
            store._connections.readers = threads = Threads(1)
            await store.put_many([Put(f"k/{number:02}", b"1") for number in range(40)])
            await store.put("large", b"1" * 70_000)
            await store.get("k/01")  # connects
            numbers = [f"k/{number:02}" for number in range(17)]
            found = []
            for read in (
                store.get_many(["k/02"]),
                store.get_many(["nothing"]),
                store.get_many(numbers[:16]),
                collect_keys(store.list("k/", limit=16)),
                collect_keys(store.list("k/3")),
                store.get_many(["k/01", "large"]),
                store.get_many(numbers),
                collect_keys(store.list("k/", limit=17)),
            ):
                before = threads.used
                found.append((len(await read), threads.used - before))
            return found

    small, large = [(1, 0), (0, 0), (16, 0), (16, 0), (10, 0)], [(2, 1), (17, 1), (17, 1)]
    assert run_async(count_threads()) == small + large


def test_keys_are_listed_from_an_index_without_reading_values(path):
    run_async(put_one(path))
    with closing(sqlite3.connect(path)) as database:
        plan = database.execute(
            "EXPLAIN QUERY PLAN SELECT key FROM entries WHERE key > 'a' ORDER BY key LIMIT 5"
        ).fetchall()
    assert "USING COVERING INDEX" in plan[0][3]


def test_deleting_shrinks_the_file(path):
    async def churn():
        async with SqliteStateStore(path) as store:
            for number in range(40):
                await store.put(f"{number:02}", b"x" * 500_000)
            full = await pages(store)
            for number in range(39):
                await store.delete(f"{number:02}")
            return full, await pages(store)

    async def pages(store):
        return await store._read(lambda base: base.execute("PRAGMA page_count").fetchone()[0], 0)

    full, left = run_async(churn())
    assert left < full / 2


def test_a_damaged_file_raises_an_integrity_error(path):
    run_async(put_one(path, value=b"x" * 100_000))
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="damaged.*backup"):
        run_async(get_one(path))


def damage_index(path):
    """Remove half of the entries from each leaf of the index, and return the number of leaves."""
    data = bytearray(Path(path).read_bytes())
    size = int.from_bytes(data[16:18], "big")
    leaves = [at for at in range(size, len(data), size) if data[at] == 0x0A]
    for at in leaves:
        count = int.from_bytes(data[at + 3 : at + 5], "big")
        data[at + 3 : at + 5] = (count // 2).to_bytes(2, "big")
    Path(path).write_bytes(data)
    return len(leaves)


def test_check_finds_an_index_that_hides_entries(path):
    async def work():
        async with SqliteStateStore(path) as store:
            assert await store.check() == []
            await store.put_many([Put(f"key/{number:05}", b"1") for number in range(1000)])
            assert await store.check() == []
        assert damage_index(path) > 2
        async with SqliteStateStore(path) as store:
            assert 0 < len(await collect_keys(store.list())) < 1000
            for checked in (store, PrefixedStateStore(store, "key/"), ReadOnlyStateStore(store)):
                problems = await checked.check()
                assert problems
                assert all("state.db" in each for each in problems)
                assert any("index" in each for each in problems)
        with pytest.raises(StateStoreError, match="closed"):
            await store.check()

    asyncio.run(work())


def test_check_of_a_missing_or_unreadable_file_creates_nothing(path):
    async def work():
        async with SqliteStateStore(path) as store:
            assert await store.check() == []
            assert not Path(path).exists()
            await store.put("a", b"1" * 100_000)
        data = Path(path).read_bytes()
        Path(path).write_bytes(data[:8192] + b"\xff" * (len(data) - 8192))
        async with SqliteStateStore(path) as store:
            assert await store.check()

    asyncio.run(work())


def test_a_delete_succeeds_even_if_the_file_cannot_be_shrunk(path, monkeypatch):
    async def use():
        async with SqliteStateStore(path) as store:
            await store.put("large", b"x" * 20_000_000)
            other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            with closing(other), monkeypatch.context() as patch:
                check_file = Connections.check_file

                def check_and_lock(self):
                    check_file(self)
                    if not locked.is_set():
                        return
                    other.execute("BEGIN IMMEDIATE")

                locked = Event()
                during_transaction(patch, lambda *_: locked.set())
                patch.setattr(Connections, "check_file", check_and_lock)
                assert await store.delete("large")
                assert other.in_transaction
            await store.put("a", b"1")

    run_async(use())
    assert path.stat().st_size < 1_000_000


def test_a_value_larger_than_sqlite_allows_is_rejected(path, monkeypatch):
    def overflow(*_):
        raise OverflowError("BLOB longer than INT_MAX bytes")

    async def use():
        async with SqliteStateStore(path) as store:
            during_transaction(monkeypatch, overflow)
            with pytest.raises(StateStoreError, match="1 GB"):
                await store.put("a", b"1")

    run_async(use())


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:",
        "sqlite://",
        "sqlite:///",
        "sqlite:///:memory:",
        "sqlite://host/state.db",
        "sqlite:/var/state.db",
        "sqlite:state.db",
    ],
)
def test_a_url_without_a_file_is_rejected(url):
    with pytest.raises(StateStoreError, match="does not name a file"):
        open_state_store(url)


def test_the_path_of_a_url_is_relative_or_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def write():
        async with open_state_store("sqlite:///in%20here/state.db?timeout=5") as store:
            await store.put("a", b"1")
        async with open_state_store(f"sqlite:///{tmp_path}/in here/state.db") as store:
            assert (await store.get("a")).value == b"1"
            assert repr(store) == f"<SqliteStateStore sqlite:///{tmp_path}/in here/state.db>"

    run_async(write())
    assert (tmp_path / "in here" / "state.db").exists()
