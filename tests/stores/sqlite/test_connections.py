"""Connections to a SQLite file: new, unrelated, locked, read-only or replaced."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast import StateStoreError, open_state_store
from holdfast.stores.sqlite import SqliteStateStore
from holdfast.stores.sqlite.connections import Connections
from stores.sqlite.one_entry import connections, during_transaction, get_one, put_one
from support.async_tests import run_async


def test_the_file_is_in_wal_mode_and_every_connection_syncs_fully(path):
    async def look():
        async with SqliteStateStore(path) as store:
            await store.put("a", b"1")
            await store.get("a")
            assert Path(f"{path}-wal").exists()
            return [
                tuple(
                    connection.execute(f"PRAGMA {name}").fetchone()[0]
                    for name in ("journal_mode", "synchronous", "busy_timeout")
                )
                for connection in connections(store)
            ]

    # Readers do not wait in SQLite, which would block an event loop, and writers only for a
    # transaction of several calls.
    assert run_async(look()) == [("wal", 2, 0), ("wal", 2, 0)]
    assert sorted(file.name for file in path.parent.iterdir()) == ["state.db"]


def test_a_file_that_is_not_a_database_is_rejected_and_unchanged(path):
    path.write_bytes(b"my notes, not a database" * 100)
    for work in (put_one, get_one):
        with pytest.raises(StateStoreError, match="not a SQLite database; choose another path"):
            run_async(work(path))
    assert path.read_bytes() == b"my notes, not a database" * 100


def test_a_database_of_another_application_is_rejected_and_unchanged(path):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE customers (name TEXT)")
    before = path.read_bytes()
    for work in (put_one, get_one):
        with pytest.raises(StateStoreError, match="another application"):
            run_async(work(path))
    assert path.read_bytes() == before


def test_a_newer_format_is_rejected(path):
    run_async(put_one(path))
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    for work in (put_one, get_one):
        with pytest.raises(StateStoreError, match="newer Holdfast.*upgrade"):
            run_async(work(path))


def test_a_lock_held_by_another_process_is_a_transient_error(path):
    run_async(put_one(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateStoreError, match="another process holds its lock") as caught:
            run_async(put_one(path, timeout=0.05))
        assert caught.value.transient
        assert run_async(get_one(path)).value == b"1"  # readers do not wait
    run_async(put_one(path, timeout=0.05))


def test_concurrent_stores_can_create_the_same_file(path):
    async def together():
        stores = [SqliteStateStore(path) for _ in range(8)]
        await asyncio.gather(*(store.put(f"{n}", b"1") for n, store in enumerate(stores)))
        found = [key async for key in stores[0].list()]
        await asyncio.gather(*(store.close() for store in stores))
        return found

    assert run_async(together()) == [str(n) for n in range(8)]


def test_a_reader_works_while_the_tables_are_being_created(path):
    async def look(fresh):
        async with SqliteStateStore(fresh) as reader, SqliteStateStore(fresh) as writer:
            await asyncio.gather(writer.put("a", b"1"), *(reader.get("a") for _ in range(8)))

    for number in range(20):
        run_async(look(path.with_name(f"{number}.db")))


def test_an_empty_file_is_an_empty_store(path):
    path.touch()
    assert run_async(get_one(path)) is None
    run_async(put_one(path))
    assert run_async(get_one(path)).value == b"1"


def test_a_folder_that_cannot_be_created_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StateStoreError, match="folder|file"):
        run_async(put_one(tmp_path / "file" / "state.db"))


def test_a_reader_that_was_locked_out_sees_later_writes(path):
    run_async(put_one(path))

    async def look():
        async with SqliteStateStore(path, timeout=0.01) as store:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("PRAGMA locking_mode = EXCLUSIVE")
                other.execute("BEGIN EXCLUSIVE")
                other.execute("PRAGMA journal_mode")
                other.execute("UPDATE entries SET value = x'32'")
                answers = await asyncio.gather(
                    *(store.get("a") for _ in range(8)), return_exceptions=True
                )
                other.execute("COMMIT")
            assert answers
            for value in (b"3", b"4"):
                await put_one(path, value=value)
                found = await asyncio.gather(*(store.get("a") for _ in range(8)))
                assert {entry.value for entry in found} == {value}

    run_async(look())


def test_a_reader_waits_for_an_exclusive_lock_without_blocking_the_loop(path):
    run_async(put_one(path))

    async def look():
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            other.execute("UPDATE entries SET value = x'32'")
            async with SqliteStateStore(path) as store:
                reading = asyncio.create_task(store.get("a"))
                for _ in range(3):
                    await asyncio.sleep(0.01)
                    assert not reading.done()
                other.execute("COMMIT")
                other.close()
                return (await reading).value

    assert run_async(look()) == b"2"


@pytest.fixture
def read_only_folder(monkeypatch):
    """Make the folder appear read-only, even to root."""
    connect = Connections._connect

    @contextmanager
    def refusing(self, mode):
        if mode in ("rw", "ro"):
            error = sqlite3.OperationalError("attempt to write a readonly database")
            error.sqlite_errorcode = sqlite3.SQLITE_READONLY
            raise error
        with connect(self, mode) as connected:
            yield connected

    monkeypatch.setattr(Connections, "_connect", refusing)


def test_a_read_only_database_is_read_afresh_at_each_call(path, read_only_folder):
    async def look():
        async with SqliteStateStore(path) as store:
            assert (await store.get("a")).value == b"1"
            with closing(sqlite3.connect(path)) as other, other:
                other.execute("UPDATE entries SET value = x'32'")
            assert (await store.get("a")).value == b"2"
            assert connections(store) == []

    run_async(put_one(path))
    run_async(look())


def test_a_read_only_database_that_was_not_closed_cannot_be_read(path, read_only_folder):
    run_async(put_one(path))
    Path(f"{path}-wal").write_bytes(b"some frames")
    with pytest.raises(StateStoreError, match="was not closed"):
        run_async(get_one(path))


def test_enabling_the_log_waits_for_another_connection(path, monkeypatch):
    async def use(seconds):
        async with SqliteStateStore(path, timeout=seconds) as store:
            await store.put("a", b"1")

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StateStoreError, match="holds its lock"):
            run_async(use(0.1))
    run_async(use(1))


def test_the_working_folder_may_change(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def move():
        async with open_state_store("sqlite:///here.db") as store:
            await store.put("a", b"1")
            (tmp_path / "elsewhere").mkdir()
            os.chdir(tmp_path / "elsewhere")
            assert (await store.get("a")).value == b"1"

    run_async(move())
    assert list((tmp_path / "elsewhere").iterdir()) == []


def remove(path):
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def test_a_file_removed_while_in_use_is_an_error_until_it_is_reopened(path):
    async def use():
        async with SqliteStateStore(path) as store:
            await store.put("a", b"1")
            assert (await store.get("a")).value == b"1"
            remove(path)
            for call in (lambda: store.get("a"), lambda: store.put("b", b"2")) * 2:
                with pytest.raises(StateStoreError, match="removed or replaced.*open it again"):
                    await call()
        assert not path.exists()
        await put_one(path, "b", b"2")
        assert (await get_one(path, "b")).value == b"2"

    run_async(use())


def test_a_backup_copied_over_an_open_file_is_unchanged(path):
    backup = path.with_name("backup.db")

    async def use():
        async with SqliteStateStore(path) as store:
            await store.put("a", b"backed up")
            with closing(sqlite3.connect(path)) as there, closing(sqlite3.connect(backup)) as copy:
                there.backup(copy)
            for number in range(50):
                await store.put(f"later/{number}", b"x" * 5000)
            await store.put("a", b"later")
            backup.rename(path)
            with pytest.raises(StateStoreError, match="removed or replaced"):
                await store.put("b", b"1")
            with pytest.raises(StateStoreError, match="removed or replaced"):
                await store.get("a")
        for suffix in ("-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)
        async with SqliteStateStore(path) as store:
            assert [key async for key in store.list()] == ["a"]
            assert (await store.get("a")).value == b"backed up"

    run_async(use())


def test_a_write_to_a_file_that_is_being_removed_is_not_acknowledged(path, monkeypatch):
    async def use():
        async with SqliteStateStore(path) as store:
            await store.put("a", b"1")
            during_transaction(monkeypatch, lambda *_: remove(path))
            with pytest.raises(StateStoreError, match="removed or replaced"):
                await store.put("b", b"1")

    run_async(use())


def test_a_rejected_file_is_not_kept_open(path):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE customers (name TEXT)")

    async def ask():
        async with SqliteStateStore(path) as store:
            before = len(list(Path("/proc/self/fd").iterdir()))
            for _ in range(20):
                for call in (store.get("a"), store.put("a", b"1")):
                    with pytest.raises(StateStoreError, match="another application"):
                        await call
            assert len(list(Path("/proc/self/fd").iterdir())) - before < 10

    if not Path("/proc/self/fd").exists():
        pytest.skip("this system does not list what a process has open")
    run_async(ask())


def test_a_timeout_longer_than_sqlite_allows_is_capped(path):
    async def use():
        async with open_state_store(f"sqlite:///{path}?timeout=3000000") as store:
            await store.put("a", b"1")
            waits = []
            connections(store)[0].set_trace_callback(waits.append)
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                waiting = asyncio.ensure_future(store.put("b", b"1"))
                await asyncio.sleep(0.05)
                other.execute("COMMIT")
                await waiting
            assert "PRAGMA busy_timeout = 2000000000" in waits

    run_async(use())
