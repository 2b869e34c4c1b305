"""PostgreSQL URLs, permissions and connections."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import time
import traceback
from contextlib import suppress

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from holdfast.errors import StateStoreError
from holdfast.stores.entries import Entry, Put
from holdfast.stores.postgresql.statements import CREATE_ENTRIES
from holdfast.stores.registry import open_state_store
from holdfast.testing.state_store_suite import collect_keys, increment
from servers.process import Server, answers, free_port, wait_until


class TestOpening:
    @pytest.mark.parametrize(
        ("options", "problem"),
        [
            ("table=a.b.c", "schema"),
            ("table=a%22b", "letters"),
            ("tabel=x", "tabel"),
            ("pool=0", "pool"),
            ("timeout=soon", "timeout"),
            ("connect_timeout=abc", "connect_timeout"),
            (f"table={'t' * 59}", "58"),
            (f"table={'s' * 64}.t", "schema"),
        ],
    )
    def test_an_invalid_option_is_rejected(self, options, problem):
        with pytest.raises(StateStoreError, match=problem) as caught:
            open_state_store(f"postgresql://me:hush-hush@db/name?{options}")
        assert "hush" not in str(caught.value)

    @pytest.mark.parametrize(
        ("url", "expected"),
        [
            (
                "postgres://me:p%40ss@db:5433/name",
                {"host": "db", "port": "5433", "password": "p@ss"},
            ),
            ("postgresql://one:1,two:2/name", {"host": "one,two", "port": "1,2"}),
            ("postgresql:///name?host=/run/pg", {"host": "/run/pg", "dbname": "name"}),
            ("postgresql://db/?sslmode=require&timeout=3", {"sslmode": "require", "host": "db"}),
        ],
    )
    def test_other_options_are_passed_to_libpq(self, url, expected):
        store = open_state_store(url)
        given = psycopg.conninfo.conninfo_to_dict(store._conninfo)
        assert expected.items() <= given.items()
        assert "p@ss" not in repr(store)
        assert "table" not in given

    def test_scheme_aliases_and_table_names_work(self, postgres, table):
        async def use():
            postgres.execute(f"CREATE SCHEMA s_{table}")
            url = postgres.url(table=f"s_{table}.Entries").replace("postgresql:", "postgres:")
            async with open_state_store(url) as store:
                await store.put("a", b"1")
            assert postgres.execute(f'SELECT head FROM s_{table}."Entries"') == [("a",)]

        asyncio.run(use())

    @pytest.mark.parametrize(
        ("change", "hint"),
        [
            (lambda url, port: url.replace("s3cret", "wrong"), "password"),
            (lambda url, port: url.replace("/postgres?", "/nowhere?"), "create the database"),
            (lambda url, port: url.replace("//holdfast:", "//nobody-here:"), "user name"),
            (lambda url, port: url + "&sslmode=require", "sslmode"),
            (lambda url, port: url + "&sslmode=perhaps", "options of the URL"),
            (lambda url, port: url + "&keepalives=some", "options of the URL"),
            (lambda url, port: url.replace("table=", "table=no_such_schema."), "create the schema"),
            (lambda url, port: url.replace(f":{port}/", f":{free_port()}/"), "cannot be reached"),
        ],
    )
    def test_an_unusable_server_fails_at_once(self, postgres, table, change, hint):
        async def use():
            async with open_state_store(url) as store:
                for call in (lambda: store.get("a"), lambda: store.put("a", b"1")):
                    with pytest.raises(StateStoreError, match=hint) as caught:
                        await call()
                    assert not caught.value.unknown
                    assert "word" not in str(caught.value).replace("password", "")
                    assert "word" not in repr(caught.value.__cause__).replace("password", "")

        url = change(postgres.url(table=table), postgres.port)
        start = time.monotonic()
        asyncio.run(use())
        assert time.monotonic() - start < 3

    def test_a_role_that_may_not_create_tables_uses_existing_ones(self, postgres, table):
        role = f"role_{table}"
        postgres.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'other'")
        url = postgres.url(table=table).replace("holdfast:s3cret%20word", f"{role}:other")

        async def use():
            async with open_state_store(url) as store:
                with pytest.raises(StateStoreError, match=f'no table "{table}".* grant'):
                    await store.put("a", b"1")
                async with open_state_store(postgres.url(table=table)) as owner:
                    await owner.put("a", b"1")
                with pytest.raises(StateStoreError, match="grant"):
                    await store.put("a", b"1")
                rights = "GRANT SELECT, INSERT, UPDATE, DELETE ON"
                postgres.execute(f"{rights} {table} TO {role}")
                assert (await store.get("a")).value == b"1"
                with pytest.raises(StateStoreError, match=f"grant .* {table}_done"):
                    await store.put("a", b"1")
                postgres.execute(f"{rights} {table}_done TO {role}")
                await store.put("a", b"2")
                assert await collect_keys(store.list()) == ["a"]
                assert await store.delete("a")

        asyncio.run(use())

    def test_a_role_that_may_not_create_the_token_table_gets_an_error(self, postgres, table):
        role = f"role_{table}"
        postgres.execute(
            f"CREATE ROLE {role} LOGIN PASSWORD 'other'",
            SQL(CREATE_ENTRIES).format(entries=Identifier(table)).as_string(),
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO {role}",
        )
        url = postgres.url(table=table).replace("holdfast:s3cret%20word", f"{role}:other")

        async def use():
            async with open_state_store(url) as store:
                with pytest.raises(StateStoreError, match=f'no table "{table}_done".* CREATE'):
                    await store.put("a", b"1")
            async with open_state_store(postgres.url(table=table)) as store:
                await store.put("a", b"1")

        asyncio.run(use())

    def test_no_frame_of_an_error_shows_the_password(self, postgres, table):
        urls = [
            postgres.url(table=table).replace("s3cret", "wrong"),
            postgres.url(table=table).replace(f":{postgres.port}/", f":{free_port()}/"),
        ]
        stores = [open_state_store(url) for url in urls]

        async def use(store):
            with pytest.raises(StateStoreError) as caught:
                await store.get("a")
            await store.close()
            return caught.value

        for store in stores:
            error = asyncio.run(use(store))
            assert isinstance(error.__cause__, psycopg.OperationalError)
            formatted = traceback.TracebackException.from_exception(error, capture_locals=True)
            assert " word" not in "".join(formatted.format())

    def test_a_raised_error_is_not_logged(self, postgres, table, caplog):
        async def use():
            url = postgres.url(table=table).replace(f":{postgres.port}/", f":{free_port()}/")
            async with open_state_store(url) as store:
                with pytest.raises(StateStoreError, match="reached"):
                    await store.get("a")

        asyncio.run(use())
        assert not caplog.records

    def test_an_unrelated_or_removed_table_is_reported(self, postgres, table):
        async def use():
            postgres.execute(f"CREATE TABLE {table} (head text, other int)")
            async with open_state_store(postgres.url(table=table)) as store:
                with pytest.raises(StateStoreError, match="not a table of Holdfast"):
                    await store.get("a")
                postgres.execute(f"DROP TABLE {table}")
                with pytest.raises(StateStoreError, match="was removed"):
                    await store.put("a", b"1")

        asyncio.run(use())

    def test_concurrent_stores_can_create_the_same_table(self, postgres, table):
        async def use():
            stores = [open_state_store(postgres.url(table=table, pool=1)) for _ in range(8)]
            await asyncio.gather(*(store.put(f"{n}", b"1") for n, store in enumerate(stores)))
            assert len(await collect_keys(stores[0].list())) == 8
            await asyncio.gather(*(store.close() for store in stores))

        asyncio.run(use())

    def test_no_connection_outlives_its_event_loop(self, postgres, table):
        store = open_state_store(postgres.url(table=table, application_name=table))
        sessions = f"SELECT 1 FROM pg_stat_activity WHERE application_name = '{table}'"
        for _ in range(2):
            asyncio.run(store.put("a", b"1"))
            wait_until(lambda: not postgres.execute(sessions), "a session is left", seconds=5)
        asyncio.run(store.close())


class TestConnections:
    def test_more_calls_than_connections_wait_for_each_other(self, postgres, table):
        async def use():
            async with open_state_store(postgres.url(table=table, pool=1)) as store:
                await asyncio.gather(*(store.put(f"{n}", b"1") for n in range(50)))
                assert len(await collect_keys(store.list())) == 50

        asyncio.run(use())

    def test_cancelled_calls_return_their_connections(self, postgres, table):
        dice = random.Random(5)

        async def use():
            async with open_state_store(postgres.url(table=table, pool=3)) as store:

                async def one():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(store.get("a"), dice.uniform(0, 0.004))

                await store.put("a", b"1")
                for _ in range(60):
                    await asyncio.gather(*(one() for _ in range(12)))
                await asyncio.sleep(0.2)
                (connection,) = store._connections.values()
                pool = connection.client.pool
                assert len(pool._idle) == len(pool._connections) <= 3
                assert pool._slots._value == 3

        asyncio.run(use())

    def test_a_blocked_call_times_out_and_returns_its_connection(self, postgres, table):
        async def use():
            url = postgres.url(table=table, pool=1, timeout=0.5, patience=0)
            async with open_state_store(url) as store:
                etag = await store.put("a", b"1")
                with psycopg.connect(postgres.url()) as other:
                    other.execute(f"LOCK TABLE {table}")
                    held, waiting = await asyncio.gather(
                        store.put("a", b"2", if_match=etag), store.get("a"), return_exceptions=True
                    )
                assert "did not respond" in str(held)
                assert held.unknown
                assert "no connection was free" in str(waiting)
                assert await store.get("a") == Entry(b"1", etag)

        asyncio.run(use())

    def test_a_pending_call_fails_when_the_store_is_closed(self, postgres, table):
        async def use():
            store = open_state_store(postgres.url(table=table, pool=1, timeout=1))
            await store.put("a", b"1")
            with psycopg.connect(postgres.url()) as other:
                other.execute(f"LOCK TABLE {table}")
                calls = []
                for _ in range(2):
                    calls.append(asyncio.create_task(store.get("a")))
                    await asyncio.sleep(0.1)
                await store.close()
            held, waiting = await asyncio.gather(*calls, return_exceptions=True)
            assert isinstance(held, Entry)
            assert "closed" in str(waiting)

        asyncio.run(use())

    def test_it_works_behind_a_transaction_pooler(self, postgres, table, tmp_path):
        pooler = shutil.which("pgbouncer")
        if pooler is None:
            pytest.skip("pgbouncer is not installed: apt install pgbouncer brings it")
        settings = tmp_path / "pgbouncer.ini"
        port = free_port()
        settings.write_text(
            f"[databases]\npostgres = host=127.0.0.1 port={postgres.port} user={postgres.user} "
            f"password='{postgres.password}'\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
            f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\n"
            "pool_mode = transaction\ndefault_pool_size = 2\n"
        )

        class Pooler(Server):
            def command(self):
                return [pooler, *(["-u", "nobody"] if os.geteuid() == 0 else []), str(settings)]

            def ready(self):
                return answers(port)

        async def use():
            url = f"postgresql://anyone@127.0.0.1:{port}/postgres?table={table}&pool=8"
            async with open_state_store(url) as store:
                for turn in range(5):
                    puts = [Put(f"{turn}/{n}", b"1", if_absent=True) for n in range(10)]
                    await asyncio.gather(
                        *(increment(store, "counter") for _ in range(20)),
                        store.put_many(puts),
                        collect_keys(store.list()),
                    )
                assert (await store.get("counter")).value == b"100"
                assert len(await collect_keys(store.list())) == 51

        with Pooler(tmp_path / "pooler"):
            asyncio.run(use())
