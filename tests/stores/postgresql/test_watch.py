"""PostgreSQL that notifies other processes of writes."""

from __future__ import annotations

from contextlib import contextmanager

import psycopg
import pytest

from holdfast.errors import ConflictError, StateStoreError
from holdfast.stores.notification import decode_notification
from holdfast.stores.postgresql.statements import Statements
from holdfast.stores.registry import open_state_store
from stores.notification_suite import NotificationSuite, drain, write_until_heard
from stores.remote_faults import through
from support.async_tests import async_test


class TestNotifications(NotificationSuite):
    @pytest.fixture
    def url(self, postgres, table):
        return postgres.url(table=table)

    @pytest.fixture
    def proxied_url(self, postgres, proxy, url):
        return through(proxy, url, postgres)

    @pytest.fixture
    def subscribers(self, postgres, table):
        lock = Statements([table]).listener_lock % 2**64

        def count():
            holders = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted"
            number = "(classid::bigint::bit(32) || objid::bigint::bit(32))::bit(64)::bigint"
            signed = lock - 2**64 if lock >= 2**63 else lock
            return postgres.execute(f"{holders} AND {number} = {signed}")[0][0]

        return count

    @async_test
    async def test_the_server_ends_the_connection(self, url, postgres):
        async with (
            open_state_store(url) as writer,
            open_state_store(url) as reader,
            reader.watch("a/") as watch,
        ):
            await drain(watch)
            end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            assert postgres.execute(f"{end} WHERE query LIKE 'LISTEN%'") == [(True,)]
            assert await watch.wait(10)
            await write_until_heard(writer, watch, "a/1")


@contextmanager
def listen_without_lock(postgres, table):
    """Listen without the lock that tells writers about it; yield a function that receives."""
    with psycopg.connect(postgres.url(), autocommit=True) as connection:
        connection.execute(f"LISTEN {table}")

        def receive():
            connection.execute("SELECT 1")
            return [each.payload for each in connection.notifies(timeout=0.05)]

        yield receive


@async_test
async def test_writers_notify_only_if_a_store_listens(postgres, table):
    """NOTIFY serializes commits, so it must not run without a reason."""
    with listen_without_lock(postgres, table) as receive:
        async with open_state_store(postgres.url(table=table)) as store:
            await store.put("a/1", b"1")
            await store.delete("a/1")
            assert receive() == []
            async with store.watch("b/"):
                await store.put("a/2", b"1")
                await store.delete("a/2")
                assert not await store.delete("a/2")
            assert [decode_notification(each.encode()).keys for each in receive()] == [["a/2"]] * 2
            await store.put("a/3", b"1")
            assert receive() == []


@async_test
async def test_a_conflict_notifies_nobody(postgres, table):
    with listen_without_lock(postgres, table) as receive:
        async with open_state_store(postgres.url(table=table)) as store, store.watch("b/"):
            await store.put("a/1", b"1")
            assert len(receive()) == 1
            with pytest.raises(ConflictError):
                await store.put("a/1", b"1", if_match="none")
            with pytest.raises(ConflictError):
                await store.delete("a/1", if_match="none")
            assert receive() == []


@async_test
async def test_notify_off(postgres, table):
    url = postgres.url(table=table)
    with listen_without_lock(postgres, table) as receive:
        async with (
            open_state_store(url) as listener,
            listener.watch("a/"),
            open_state_store(postgres.url(table=table, notify="off")) as store,
            store.watch("a/") as watch,
        ):
            assert not store.wakes_other_processes
            await store.put("a/1", b"1")
            assert await watch.wait(10)
            assert await store.delete("a/1")
            assert receive() == []


@async_test
async def test_a_pooler_is_not_listened_through(postgres, table, monkeypatch, caplog):
    """As test_connect.py does behind PgBouncer: there, process ids are made up."""
    monkeypatch.setattr(
        "holdfast.stores.postgresql.connection.settings_for", lambda pgconn: [[], [], 0]
    )
    async with open_state_store(postgres.url(table=table)) as store:
        for _ in range(2):
            async with store.watch("a/") as watch:
                await store.put("a/1", b"1")
                assert await watch.wait(10)
    (warning,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "LISTEN needs one session" in warning.message


@async_test
async def test_a_server_without_notify_needs_an_option(postgres, table):
    """As servers that are only compatible with PostgreSQL."""
    postgres.execute(f"CREATE DATABASE {table}")
    rename = "ALTER FUNCTION pg_catalog.pg_notify(text, text) RENAME TO pg_notify_renamed"
    postgres.execute(rename, database=table)
    async with open_state_store(postgres.url(table)) as store:
        with pytest.raises(StateStoreError, match="notify=off"):
            await store.put("a", b"1")
    async with open_state_store(postgres.url(table, notify="off")) as store:
        await store.put("a", b"1")
        assert await store.delete("a")
