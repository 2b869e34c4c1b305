"""The embedded default, on real files."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast import IntegrityError, Put, StateStoreError, open_state_store
from holdfast.stores.sqlite import SqliteStateStore
from holdfast.stores.sqlite.connections import Connections
from holdfast.stores.wrappers.prefix import PrefixedStateStore
from holdfast.stores.wrappers.read_only import ReadOnlyStateStore
from holdfast.testing import StateStoreSuite
from holdfast.testing.state_store_suite import collect_keys
from support.async_tests import run_async


class TestSqlite(StateStoreSuite):
    @pytest.fixture
    def new_store(self, tmp_path):
        return lambda: SqliteStateStore(tmp_path / "folder" / "state.db")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.db"


def connections(store):
    return store._connections._connections


async def put_one(path, key="a", value=b"1", **options):
    async with SqliteStateStore(path, **options) as store:
        return await store.put(key, value)


async def get_one(path, key="a"):
    async with SqliteStateStore(path) as store:
        return await store.get(key)


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

    assert run_async(look()) == [("wal", 2, 30_000)] * 2
    assert sorted(file.name for file in path.parent.iterdir()) == ["state.db"]


def test_a_page_costs_the_same_at_100_and_at_100_000_keys(path):
    steps = {}
    for size in (100, 100_000):
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
            steps[name, size] = run_async(steps_of_a_page(path, **arguments))
    for name in ("first", "middle", "prefix"):
        assert steps[name, 100] == steps[name, 100_000] > 10, name


async def steps_of_a_page(path, **arguments):
    """How many steps SQLite's machine makes for a page."""
    count = 0

    def step():
        nonlocal count
        count += 1

    async with SqliteStateStore(path) as store:
        store._readers = ThreadPoolExecutor(1)  # one thread, one connection
        await store.get("k/000000")
        for connection in connections(store):
            connection.set_progress_handler(step, 1)
        keys = [key async for key in store.list(limit=20, **arguments)]
        assert len(keys) == 20
        for connection in connections(store):
            connection.set_progress_handler(None, 1)
    return count


def test_keys_are_listed_from_an_index_without_touching_values(path):
    run_async(put_one(path))
    with closing(sqlite3.connect(path)) as database:
        plan = database.execute(
            "EXPLAIN QUERY PLAN SELECT key FROM entries WHERE key > 'a' ORDER BY key LIMIT 5"
        ).fetchall()
    assert "USING COVERING INDEX" in plan[0][3]


def test_what_is_deleted_gives_its_space_back(path):
    async def churn():
        async with SqliteStateStore(path) as store:
            for number in range(40):
                await store.put(f"{number:02}", b"x" * 500_000)
            full = await pages(store)
            for number in range(39):
                await store.delete(f"{number:02}")
            return full, await pages(store)

    async def pages(store):
        return await store._write(lambda base: base.execute("PRAGMA page_count").fetchone()[0])

    full, left = run_async(churn())
    assert left < full / 2


def test_a_file_that_is_no_database_is_refused_and_left_alone(path):
    path.write_bytes(b"my notes, not a database" * 100)
    for work in (put_one, get_one):
        with pytest.raises(StateStoreError, match="not a SQLite database; choose another path"):
            run_async(work(path))
    assert path.read_bytes() == b"my notes, not a database" * 100


def test_the_database_of_another_application_is_refused_and_left_alone(path):
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE customers (name TEXT)")
    before = path.read_bytes()
    for work in (put_one, get_one):
        with pytest.raises(StateStoreError, match="another application"):
            run_async(work(path))
    assert path.read_bytes() == before


def test_a_newer_format_is_refused(path):
    run_async(put_one(path))
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 99")
    for work in (put_one, get_one):
        with pytest.raises(StateStoreError, match="newer Holdfast.*upgrade"):
            run_async(work(path))


def test_damage_is_an_integrity_error(path):
    run_async(put_one(path, value=b"x" * 100_000))
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="damaged.*backup"):
        run_async(get_one(path))


def rot_index(path):
    """Make the leaves of the index forget half of their entries, as a page of old content would."""
    data = bytearray(Path(path).read_bytes())
    size = int.from_bytes(data[16:18], "big")
    leaves = [at for at in range(size, len(data), size) if data[at] == 0x0A]
    for at in leaves:
        count = int.from_bytes(data[at + 3 : at + 5], "big")
        data[at + 3 : at + 5] = (count // 2).to_bytes(2, "big")
    Path(path).write_bytes(data)
    return len(leaves)


def test_an_index_that_hides_entries_is_found_by_a_check(path):
    async def work():
        async with SqliteStateStore(path) as store:
            assert await store.check() == []
            await store.put_many([Put(f"key/{number:05}", b"1") for number in range(1000)])
            assert await store.check() == []
        assert rot_index(path) > 2
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


def test_a_check_of_a_file_that_is_not_there_or_past_reading_makes_nothing(path):
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


def test_a_lock_that_is_not_given_up_is_an_error_that_may_pass(path):
    run_async(put_one(path))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StateStoreError, match="another process holds its lock") as caught:
            run_async(put_one(path, timeout=0.05))
        assert caught.value.transient
        assert run_async(get_one(path)).value == b"1"  # readers do not wait
    run_async(put_one(path, timeout=0.05))


def test_many_who_open_a_new_file_at_once_all_get_in(path):
    async def together():
        stores = [SqliteStateStore(path) for _ in range(8)]
        await asyncio.gather(*(store.put(f"{n}", b"1") for n, store in enumerate(stores)))
        found = [key async for key in stores[0].list()]
        await asyncio.gather(*(store.close() for store in stores))
        return found

    assert run_async(together()) == [str(n) for n in range(8)]


def test_a_reader_who_comes_while_the_tables_are_made_sees_nothing_yet(path):
    async def look(fresh):
        async with SqliteStateStore(fresh) as reader, SqliteStateStore(fresh) as writer:
            await asyncio.gather(writer.put("a", b"1"), *(reader.get("a") for _ in range(8)))

    for number in range(20):
        run_async(look(path.with_name(f"{number}.db")))


def test_an_empty_file_is_a_store_with_nothing_in_it(path):
    path.touch()
    assert run_async(get_one(path)) is None
    run_async(put_one(path))
    assert run_async(get_one(path)).value == b"1"


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StateStoreError, match="folder|file"):
        run_async(put_one(tmp_path / "file" / "state.db"))


def test_a_reader_that_was_locked_out_sees_what_is_written_later(path):
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


@pytest.fixture
def not_to_be_written(monkeypatch):
    """As a folder is that cannot be written, for whoever runs the tests."""
    really = Connections._connect

    @contextmanager
    def refusing(self, mode):
        if mode in ("rw", "ro"):
            error = sqlite3.OperationalError("attempt to write a readonly database")
            error.sqlite_errorcode = sqlite3.SQLITE_READONLY
            raise error
        with really(self, mode) as connected:
            yield connected

    monkeypatch.setattr(Connections, "_connect", refusing)


def test_a_database_that_cannot_be_written_is_read_as_it_is_at_each_call(path, not_to_be_written):
    async def look():
        async with SqliteStateStore(path) as store:
            assert (await store.get("a")).value == b"1"
            with closing(sqlite3.connect(path)) as other, other:
                other.execute("UPDATE entries SET value = x'32'")
            assert (await store.get("a")).value == b"2"
            assert connections(store) == []

    run_async(put_one(path))
    run_async(look())


def test_one_that_was_not_closed_needs_to_be_written_even_to_be_read(path, not_to_be_written):
    run_async(put_one(path))
    Path(f"{path}-wal").write_bytes(b"some frames")
    with pytest.raises(StateStoreError, match="was not closed"):
        run_async(get_one(path))


def test_who_turns_the_log_on_at_the_same_time_is_waited_for(path, monkeypatch):
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


def test_a_file_that_is_removed_while_in_use_is_told_of_until_it_is_opened_again(path):
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


def test_a_backup_put_in_the_place_of_an_open_file_stays_as_it_is(path):
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


def test_a_write_to_a_file_that_is_removed_meanwhile_is_not_acknowledged(path):
    async def use():
        async with SqliteStateStore(path) as store:
            await store.put("a", b"1")
            with pytest.raises(StateStoreError, match="removed or replaced"):
                await store._write(lambda _: remove(path))

    run_async(use())


def test_a_refused_file_is_not_held_open(path):
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


def test_giving_space_back_is_no_part_of_what_was_asked(path):
    async def use():
        async with SqliteStateStore(path) as store:
            await store.put("large", b"x" * 20_000_000)
            other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
            with closing(other):

                def delete_and_be_overtaken(database):
                    database.execute("DELETE FROM entries WHERE key = 'large'")
                    other.execute("BEGIN IMMEDIATE")
                    return True

                assert await store._write(delete_and_be_overtaken, deletes=True)
            await store.put("a", b"1")

    run_async(use())
    assert path.stat().st_size < 1_000_000


def test_a_value_that_sqlite_cannot_count_is_refused(path, monkeypatch):
    async def use():
        async with SqliteStateStore(path) as store:

            def overflow(_):
                raise OverflowError("BLOB longer than INT_MAX bytes")

            with pytest.raises(StateStoreError, match="1 GB"):
                await store._write(overflow)

    run_async(use())


def test_a_timeout_longer_than_sqlite_can_count_is_a_long_one(path):
    async def use():
        async with open_state_store(f"sqlite:///{path}?timeout=3000000") as store:
            await store.put("a", b"1")
            (waits,) = connections(store)[0].execute("PRAGMA busy_timeout").fetchone()
            assert waits == 2_000_000_000

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
def test_a_url_without_a_file_is_refused(url):
    with pytest.raises(StateStoreError, match="does not name a file"):
        open_state_store(url)


def test_the_path_of_a_url_is_in_the_working_folder_or_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def write():
        async with open_state_store("sqlite:///in%20here/state.db?timeout=5") as store:
            await store.put("a", b"1")
        async with open_state_store(f"sqlite:///{tmp_path}/in here/state.db") as store:
            assert (await store.get("a")).value == b"1"
            assert repr(store) == f"<SqliteStateStore sqlite:///{tmp_path}/in here/state.db>"

    run_async(write())
    assert (tmp_path / "in here" / "state.db").exists()
