"""PostgreSQL that loses responses, dies, hangs and fails."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import psycopg
import pytest

from holdfast.errors import StateStoreError
from holdfast.stores.entries import Entry, Put
from holdfast.stores.postgresql import write_tokens
from holdfast.stores.registry import open_state_store
from holdfast.testing.state_store_suite import read_all
from servers.crashes import write_through_deaths
from servers.process import wait_until
from stores.remote_faults import LostResponseSuite, through

CANCEL_REQUEST = b"\x04\xd2\x16\x2e"
"""The start of a request that cancels another."""


class TestLostResponses(LostResponseSuite):
    write_request = b"_done"
    batch_request = b"COMMIT"
    read_request = b"SELECT etag"

    @pytest.fixture
    def url(self, postgres, table):
        return postgres.url(table=table)

    @pytest.fixture
    def proxied_url(self, postgres, proxy, url):
        return through(proxy, url, postgres)


class TestWriteTokens:
    def test_a_late_attempt_is_not_applied_beside_the_next(self, postgres, proxy, table):
        async def write(kind, name, ready):
            url = postgres.url(table=name, timeout=0.7, application_name=name)
            async with open_state_store(through(proxy, url, postgres)) as store:
                # A busy machine may need longer for the first connection and the table.
                while True:
                    with suppress(StateStoreError):
                        etag = await store.put("a", b"1")
                        break
                # Timeouts before this must not use up the losses below.
                await ready.wait()
                attempt = {
                    "put": lambda: store.put("a", b"2"),
                    "put if_match": lambda: store.put("a", b"2", if_match=etag),
                    "put_many": lambda: store.put_many([Put("a", b"2"), Put("b", b"2")]),
                    "delete": lambda: store.delete("a"),
                }[kind]
                log_writes(postgres, name)
                with psycopg.connect(postgres.url()) as other:
                    other.execute(f"SELECT 1 FROM {name} FOR UPDATE")
                    # So that the first attempt continues when the store has given up on it.
                    proxy.lose_next_request(at=CANCEL_REQUEST)
                    writing = asyncio.create_task(attempt())
                    await asyncio.to_thread(
                        wait_until, lambda: count_waiting(postgres, name) == 2, "no second attempt"
                    )
                assert await writing
                return [what for (what,) in postgres.execute(f"SELECT what FROM {name}_log")]

        async def use():
            written = {
                "put": ["UPDATE"],
                "put if_match": ["UPDATE"],
                "put_many": ["UPDATE", "INSERT"],
                "delete": ["DELETE"],
            }
            ready = asyncio.Barrier(len(written))
            found = await asyncio.gather(
                *(write(kind, f"{table}_{number}", ready) for number, kind in enumerate(written))
            )
            assert found == list(written.values())
            assert proxy.lost == 4

        asyncio.run(use())

    def test_tokens_are_removed_after_an_hour(self, postgres, table, monkeypatch):
        monkeypatch.setattr(write_tokens, "SWEEP_INTERVAL", 2)

        def old(token):
            postgres.execute(f"INSERT INTO {table}_done VALUES ('{token}', now() - interval '2 h')")

        def left():
            return {token for (token,) in postgres.execute(f"SELECT token FROM {table}_done")}

        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                await store.put("a", b"1")
                old("one")
                await store.put("a", b"2")
                assert "one" in left()
                assert await store.delete("a")
                assert "one" not in left()
                assert len(left()) == 3
                old("two")
            async with open_state_store(postgres.url(table=table)) as store:
                assert not await store.delete("a")
                assert len(left()) == 3

        asyncio.run(use())


class TestServerThatFails:
    def test_nothing_is_lost_or_doubled_when_the_server_is_killed(self, own_server, table):
        async def use():
            async with open_state_store(own_server.url(table=table)) as store:
                await write_through_deaths(own_server, store)

        asyncio.run(use())

    def test_a_server_that_hangs_times_out(self, own_server, table):
        async def use():
            url = own_server.url(table=table, timeout=0.5, patience=0)
            async with open_state_store(url) as store:
                await store.put("a", b"1")
                own_server.freeze()
                try:
                    start = time.monotonic()
                    with pytest.raises(StateStoreError, match="did not respond") as caught:
                        await store.put("a", b"2")
                    assert caught.value.unknown
                    with pytest.raises(StateStoreError) as caught:
                        await store.put("b", b"2")
                    assert caught.value.transient
                    cancelled = asyncio.create_task(store.get("a"))
                    await asyncio.sleep(0.1)
                    cancelled.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await cancelled
                    assert time.monotonic() - start < 8
                finally:
                    own_server.thaw()
            async with open_state_store(own_server.url(table=table)) as store:
                assert await store.get("a") is not None

        asyncio.run(use())

    def test_idle_connections_that_the_server_closed_are_replaced(self, postgres, table):
        async def use():
            url = postgres.url(table=table, application_name=table, patience=0)
            async with open_state_store(url) as store:
                await asyncio.gather(*(store.put(f"{n}", b"1") for n in range(20)))
                for _ in range(3):
                    assert end_sessions(postgres, table)
                    assert not await store.delete("missing")
                    await asyncio.gather(*(store.get(f"{n}") for n in range(20)))

        asyncio.run(use())

    @pytest.mark.parametrize("code", ["40001", "40P01", "55P03", "57P01"])
    def test_transient_errors_are_retried(self, postgres, table, code):
        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                etag = await store.put("a", b"1")
                fail_writes(postgres, table, code, times=3)
                etag = await store.put("a", b"2", if_match=etag)
                assert await store.get("a") == Entry(b"2", etag)

        asyncio.run(use())

    @pytest.mark.parametrize(
        ("code", "hint"),
        [
            ("53100", "disk is full"),
            ("42501", "grant"),
            ("22P05", "UTF8"),
            ("XX000", "failed"),
            ("23505", "failed"),
        ],
    )
    def test_permanent_errors_are_raised_at_once(self, postgres, table, code, hint):
        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                await store.put("a", b"1")
                fail_writes(postgres, table, code, times=100)
                start = time.monotonic()
                with pytest.raises(StateStoreError, match=hint) as caught:
                    await store.put_many([Put("a", b"2"), Put("b", b"2")])
                assert time.monotonic() - start < 2
                assert not caught.value.transient
                assert not caught.value.unknown
                assert await read_all(store) == {"a": b"1"}

        asyncio.run(use())


def fail_writes(server, table, code, times):
    """Make the next writes to a table fail with an SQLSTATE."""
    server.execute(
        f"CREATE SEQUENCE {table}_failed",
        f"""CREATE FUNCTION {table}_fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('{table}_failed') <= {times} THEN
            RAISE EXCEPTION 'failed {{as a test}}' USING ERRCODE = '{code}';
        END IF; RETURN NEW; END $$""",
        f"CREATE TRIGGER fail BEFORE INSERT OR UPDATE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION {table}_fail()",
    )


def log_writes(server, table):
    """Log each write to a table that is not rolled back."""
    server.execute(
        f"CREATE TABLE {table}_log (what text)",
        f"""CREATE FUNCTION {table}_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO {table}_log VALUES (TG_OP); RETURN NULL; END $$""",
        f"CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION {table}_note()",
    )


def count_waiting(server, name):
    """Return how many sessions of an application wait for a lock."""
    return len(
        server.execute(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            f"AND application_name = '{name}'"
        )
    )


def end_sessions(server, name):
    """End all sessions of an application and return whether there were any."""
    ended = server.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'"
    )
    time.sleep(0.05)
    return bool(ended)
