"""Calls on PostgreSQL that share a statement, and the round trips of each call."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress

import psycopg
import pytest
from msgspec.structs import replace

from holdfast.errors import ConflictError, StateStoreError
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.postgresql import connection
from holdfast.stores.postgresql.connection import Connection
from holdfast.stores.registry import open_state_store
from holdfast.testing.state_store_suite import collect_keys, read_all
from stores.remote_faults import through


@pytest.fixture
def statements(monkeypatch):
    """The kinds of the statements that were sent, in order."""
    sent = []
    run = Connection.run

    async def record(self, statement, *values):
        sent.append(statement.name.rpartition(b"_")[2].decode())
        return await run(self, statement, *values)

    monkeypatch.setattr(Connection, "run", record)
    return sent


@asynccontextmanager
async def busy(postgres, table, store):
    """Keep a write of the store waiting within the block, so that other calls gather."""
    with psycopg.connect(postgres.url()) as other:
        other.execute(f"SELECT 1 FROM {table} WHERE head = 'busy' FOR UPDATE")
        first = asyncio.create_task(store.put("busy", b"2"))
        await asyncio.sleep(0.01)
        yield
        await asyncio.sleep(0.01)
        other.rollback()
    await first


class TestRoundTrips:
    def test_each_call_is_one_statement(self, postgres, table, statements):
        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                etag = await store.put("a", b"1")
                statements.clear()
                held = Condition("a", etag)
                await store.put_many(
                    [Put("b", b"1", if_absent=True), Put("c", b"1")], conditions=[held]
                )
                await store.get("a")
                await store.get_many(["a", "b", "c"])
                assert await collect_keys(store.list("b", limit=5)) == ["b"]
                assert await store.delete("b")
                with pytest.raises(ConflictError):
                    await store.put("a", b"2", if_match="0")
                with pytest.raises(ConflictError):
                    await store.delete("a", if_match="0")

        asyncio.run(use())
        assert statements == ["write", "read", "read", "page", "write", "write", "write"]

    def test_a_statement_is_prepared_once_and_its_plan_is_kept(self, postgres, table):
        async def use():
            async with open_state_store(postgres.url(table=table, pool=1)) as store:
                for number in range(9):
                    await store.put(f"{number}", b"1", if_absent=True)
                (opened,) = store._connections.values()
                async with opened.client.pool.connection() as used:
                    await used.run_script(
                        f"CREATE TABLE {table}_seen AS SELECT * FROM pg_prepared_statements"
                    )

        asyncio.run(use())
        plans = f"SELECT generic_plans, custom_plans FROM {table}_seen WHERE name LIKE '%write'"
        assert postgres.execute(plans) == [(9, 0)]

    def test_nothing_is_left_in_a_session_of_a_pooler(self, postgres, table, monkeypatch):
        # As if the process id of the session were that of a pooler's client.
        monkeypatch.setattr(connection, "settings_for", lambda _: [["jit"], ["off"], 0])

        async def use():
            async with open_state_store(postgres.url(table=table, pool=1)) as store:
                etag = await store.put("a", b"1")
                held = Condition("a", etag)
                await store.put_many([Put("b", b"1" * 300_000), Put("c", b"1")], conditions=[held])
                assert (await store.get_many(["a", "b"])).keys() == {"a", "b"}
                assert await collect_keys(store.list("b")) == ["b"]
                assert await store.delete("c")
                (opened,) = store._connections.values()
                async with opened.client.pool.connection() as used:
                    await used.run_script(
                        f"CREATE TABLE {table}_seen AS SELECT name FROM pg_prepared_statements "
                        "UNION SELECT name FROM pg_settings WHERE source = 'session' "
                        "AND name = ANY ('{jit,plan_cache_mode,enable_seqscan}')"
                    )

        asyncio.run(use())
        assert postgres.execute(f"SELECT * FROM {table}_seen") == []

    def test_many_tasks_share_statements(self, postgres, table, statements):
        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                await store.put("a", b"1")
                statements.clear()
                await asyncio.gather(*(store.put(f"{n}", b"%d" % n) for n in range(100)))
                found = await asyncio.gather(*(store.get(f"{n}") for n in range(100)))
                assert [entry.value for entry in found] == [b"%d" % n for n in range(100)]

        asyncio.run(use())
        assert statements == ["write", "write", "read", "read"]  # the first goes at once


class TestGroups:
    def test_a_conflict_fails_only_its_own_call(self, postgres, table, statements):
        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                etag = await store.put("a", b"1")
                statements.clear()
                found = await asyncio.gather(
                    store.delete("missing"),
                    store.put("lead", b"1"),  # goes at once, and the others together
                    store.put("b", b"1", if_absent=True),
                    store.put_many([Put("c", b"1"), Put("a", b"1", if_absent=True)]),
                    store.put_many([Put("d", b"1")], conditions=[Condition("x", etag)]),
                    store.put_many([Put("e", b"1"), Put("f", b"1", if_match="00")]),
                    store.put_many([Put("g", b"1")], conditions=[Condition("y", "1")]),
                    return_exceptions=True,
                )
                keys = [getattr(each, "key", None) for each in found[2:]]
                assert keys == [None, "a", "x", "f", "y"]
                assert await read_all(store) == {"a": b"1", "b": b"1", "lead": b"1"}

        asyncio.run(use())
        assert statements.count("write") == 3

    def test_the_first_condition_that_fails_is_reported(self, postgres, table):
        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                await store.put("a", b"1")
                puts = [Put("z", b"1", if_match="1"), Put("a", b"1", if_absent=True)]
                for conditions, key in (
                    ([], "z"),
                    ([Condition("y", "1"), Condition("b", "1")], "y"),
                ):
                    with pytest.raises(ConflictError) as caught:
                        await store.put_many(puts, conditions=conditions)
                    assert caught.value.key == key

        asyncio.run(use())

    def test_calls_that_write_the_same_key_are_not_sent_together(self, postgres, table, statements):
        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                etag = await store.put("a", b"1")
                statements.clear()
                found = await asyncio.gather(
                    *(store.put("a", b"%d" % n, if_match=etag) for n in range(4)),
                    store.put_many([Put("b", b"1")], conditions=[Condition("a", etag)]),
                    store.put("c", b"1"),
                    return_exceptions=True,
                )
                assert [isinstance(each, str) for each in found] == [True, *[False] * 4, True]
                assert await read_all(store) == {"a": b"0", "c": b"1"}

        asyncio.run(use())
        # One each, except that c goes with the second.
        assert statements.count("write") == 5

    def test_a_call_that_is_cancelled_while_it_waits_is_not_sent(self, postgres, table):
        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                await store.put("busy", b"1")
                async with busy(postgres, table, store):
                    calls = [asyncio.create_task(store.put(key, b"1")) for key in "abc"]
                    await asyncio.sleep(0)
                    calls[1].cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await calls[1]
                await asyncio.gather(calls[0], calls[2])
                assert (await read_all(store)).keys() == {"a", "c", "busy"}

        asyncio.run(use())

    def test_a_call_that_is_cancelled_on_its_way_does_not_disturb_its_group(self, postgres, table):
        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                await store.put("busy", b"1")
                with psycopg.connect(postgres.url()) as other:
                    other.execute(f"SELECT 1 FROM {table} FOR UPDATE")
                    keys = ["lead", "b", "busy"]
                    calls = [asyncio.create_task(store.put(key, b"2")) for key in keys]
                    await asyncio.sleep(0.05)
                    calls[1].cancel()
                    await asyncio.sleep(0.05)
                    assert not calls[1].done()
                assert await calls[0]
                assert await calls[2]
                with pytest.raises(asyncio.CancelledError):
                    await calls[1]
                assert await read_all(store) == dict.fromkeys(keys, b"2")

        asyncio.run(use())

    def test_a_group_is_cancelled_on_the_server_if_all_its_calls_are(self, postgres, table):
        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                await store.put("busy", b"1")
                with psycopg.connect(postgres.url()) as other:
                    other.execute(f"SELECT 1 FROM {table} FOR UPDATE")
                    keys = ["lead", "a", "busy"]
                    lead, *calls = [asyncio.create_task(store.put(key, b"2")) for key in keys]
                    await lead
                    await asyncio.sleep(0.05)
                    for call in calls:
                        call.cancel()
                    await asyncio.wait(calls, timeout=5)
                    assert [call.cancelled() for call in calls] == [True, True]
                assert await read_all(store) == {"busy": b"1", "lead": b"2"}

        asyncio.run(use())

    def test_a_call_that_fails_does_not_fail_its_group(self, postgres, table, statements):
        postgres_check = f"ALTER TABLE {table} ADD CHECK (length(value) < 1000)"

        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                await store.put("first", b"1")
                postgres.execute(postgres_check)
                statements.clear()
                lead, *found = await asyncio.gather(
                    store.put("lead", b"1"),
                    store.put("a", b"1"),
                    store.put("b", b"1" * 2000),
                    store.put("first", b"1", if_absent=True),
                    return_exceptions=True,
                )
                assert isinstance(lead, str)
                assert isinstance(found[0], str)
                assert isinstance(found[1], StateStoreError)
                assert not found[1].unknown
                assert isinstance(found[2], ConflictError)
                assert await read_all(store) == dict.fromkeys(("a", "first", "lead"), b"1")

        asyncio.run(use())
        assert statements.count("write") == 5

    def test_a_large_call_is_sent_alone(self, postgres, table, statements):
        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                await store.put("first", b"1")
                statements.clear()
                large = b"1" * 1_100_000
                values = {"lead": b"1", "a": b"1", "b": large, "c": b"1"}
                await asyncio.gather(*(store.put(key, value) for key, value in values.items()))
                assert await store.get("b") == Entry(large, (await store.get("b")).etag)

        asyncio.run(use())
        assert statements.count("write") == 3

    @pytest.mark.parametrize("what", ["answer", "request"])
    def test_a_group_whose_connection_is_cut_is_applied_once(self, postgres, proxy, table, what):
        async def use():
            url = postgres.url(table=table)
            async with open_state_store(through(proxy, url, postgres)) as store:
                etag = await store.put("a", b"1")
                for _ in range(2):  # the first call, and the group of the others
                    if what == "answer":
                        proxy.lose_next_response(after=b"_write\x00\x00")
                    else:
                        proxy.lose_next_request(at=b"_write\x00\x00")
                found = await asyncio.gather(
                    store.put("a", b"2", if_match=etag),
                    *(store.put(f"{n}", b"1", if_absent=True) for n in range(20)),
                    store.put("other", b"1", if_match="00"),
                    return_exceptions=True,
                )
                assert proxy.lost == 2
                assert isinstance(found.pop(), ConflictError)
                for key, etag in zip(["a", *map(str, range(20))], found, strict=True):
                    assert (await store.get(key)).etag == etag

        asyncio.run(use())

    def test_a_locked_row_does_not_block_other_keys(self, postgres, table):
        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                await store.put("busy", b"1")
                async with busy(postgres, table, store):
                    await asyncio.wait_for(store.put("a", b"1"), 5)
                    await asyncio.wait_for(store.get("a"), 5)

        asyncio.run(use())

    def test_two_stores_that_create_the_same_keys_both_finish(self, postgres, table):
        async def write(store, turn):
            with suppress(ConflictError):
                await store.put(f"{turn}", b"1", if_absent=True)
                return 1
            return 0

        async def use():
            url = postgres.url(table=table)
            async with open_state_store(url) as one, open_state_store(url) as other:
                found = await asyncio.gather(
                    *(write(store, turn) for turn in range(200) for store in (one, other))
                )
                assert sum(found) == 200
                await asyncio.gather(
                    *(store.put(f"{turn}", b"2") for turn in range(200) for store in (one, other))
                )
                assert set((await read_all(one)).values()) == {b"2"}

        asyncio.run(use())


class TestConcurrentTransactions:
    """A write that waits for another transaction sees what that committed, or did not."""

    update = "UPDATE {0} SET etag = 'ff', value = 'theirs' WHERE head = 'a'"
    delete = "DELETE FROM {0} WHERE head = 'a'"
    insert = "INSERT INTO {0} VALUES ('b', '', '', 'ff', 'theirs')"

    @pytest.mark.parametrize(
        ("theirs", "ours", "committed", "rolled_back"),
        [
            (update, Put("a", b"ours"), b"ours", b"ours"),
            (update, Put("a", b"ours", if_match="etag"), "it has 'ff'", b"ours"),
            (update, Put("a", b"ours", if_absent=True), "already exists", "already exists"),
            (delete, Put("a", b"ours"), b"ours", b"ours"),
            (delete, Put("a", b"ours", if_match="etag"), "does not exist", b"ours"),
            (delete, Put("a", b"ours", if_absent=True), b"ours", "already exists"),
            (insert, Put("b", b"ours"), b"ours", b"ours"),
            (insert, Put("b", b"ours", if_absent=True), "already exists", b"ours"),
        ],
    )
    @pytest.mark.parametrize("commits", [True, False])
    def test_put(self, postgres, table, theirs, ours, committed, rolled_back, commits):
        expected = committed if commits else rolled_back

        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                etag = await store.put("a", b"1")
                put = replace(ours, if_match=etag if ours.if_match else None)
                with psycopg.connect(postgres.url()) as other:
                    other.execute(theirs.format(table))
                    writing = asyncio.create_task(store.put_many([put, Put("z", b"1")]))
                    await asyncio.sleep(0.05)
                    assert not writing.done()
                    (other.commit if commits else other.rollback)()
                if isinstance(expected, str):
                    with pytest.raises(ConflictError, match=expected):
                        await writing
                    assert await store.get("z") is None
                else:
                    etags = await writing
                    assert await store.get(put.key) == Entry(expected, etags[0])

        asyncio.run(use())

    @pytest.mark.parametrize("commits", [True, False])
    def test_delete(self, postgres, table, commits):
        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                etag = await store.put("a", b"1")
                with psycopg.connect(postgres.url()) as other:
                    other.execute(self.update.format(table))
                    conditional = asyncio.create_task(store.delete("a", if_match=etag))
                    await asyncio.sleep(0.05)
                    (other.commit if commits else other.rollback)()
                if commits:
                    with pytest.raises(ConflictError, match="it has 'ff'"):
                        await conditional
                    with psycopg.connect(postgres.url()) as other:
                        other.execute(self.update.format(table))
                        deleting = asyncio.create_task(store.delete("a"))
                        await asyncio.sleep(0.05)
                        other.commit()
                    assert await deleting
                else:
                    assert await conditional
                assert await store.get("a") is None

        asyncio.run(use())
