"""PostgreSQL that loses answers, dies, hangs and refuses."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import psycopg
import pytest

from holdfast.errors import ConflictError, StateStoreError
from holdfast.stores.entries import Condition, Entry, Put
from holdfast.stores.postgresql import write_tokens
from holdfast.stores.registry import open_state_store
from holdfast.testing.state_store_suite import read_all
from servers.crashes import write_through_deaths
from servers.process import wait_until

MARK = b"_done"
CANCEL = b"\x04\xd2\x16\x2e"
"""How a request begins that asks the server to leave off another."""


def through(proxy, server, **options):
    return server.url(**options).replace(f":{server.port}/", f":{proxy.port}/")


class TestLostAnswers:
    def test_a_write_whose_answer_got_lost_is_done_once_and_reported_done(
        self, postgres, proxy, table
    ):
        async def use():
            async with open_state_store(through(proxy, postgres, table=table)) as store:
                proxy.lose_next_answer(after=b"INSERT INTO")
                first = await store.put("a", b"1", if_absent=True)
                assert await store.get("a") == Entry(b"1", first)
                proxy.lose_next_answer(after=b"UPDATE")
                second = await store.put("a", b"2", if_match=first)
                assert await store.get("a") == Entry(b"2", second)
                proxy.lose_next_answer(after=b"COMMIT")
                etags = await store.put_many(
                    [
                        Put("c", b"3", if_absent=True),
                        Put("a", b"3", if_match=second),
                        Put("b", b"3"),
                    ]
                )
                for key, etag in zip("cab", etags, strict=True):
                    assert await store.get(key) == Entry(b"3", etag)
                proxy.lose_next_answer(after=b"DELETE")
                assert await store.delete("a", if_match=etags[1])
                proxy.lose_next_answer(after=b"DELETE")
                assert await store.delete("b")
                assert await read_all(store) == {"c": b"3"}
                assert proxy.lost == 5

        asyncio.run(use())

    def test_a_request_that_got_lost_is_done_by_the_next_attempt(self, postgres, proxy, table):
        async def use():
            async with open_state_store(through(proxy, postgres, table=table)) as store:
                assert await store.get("a") is None
                for mark in (b"INSERT INTO", b"SELECT etag"):
                    proxy.lose_next_request(at=mark)
                etag = await store.put("a", b"1", if_absent=True)
                assert await store.get("a") == Entry(b"1", etag)
                assert proxy.lost == 2

        asyncio.run(use())

    def test_what_others_write_after_a_lost_answer_stays(self, postgres, proxy, table):
        def meanwhile(act, after=MARK):
            async def others():
                async with open_state_store(postgres.url(table=table)) as other:
                    await act(other)

            proxy.lose_next_answer(after, meanwhile=lambda: asyncio.run(others()))

        async def overwrite(other):
            found = await other.get("b")
            assert found.value == b"ours"
            await other.put("b", b"theirs", if_match=found.etag)

        async def remove(other):
            assert await other.delete("lock", if_match=(await other.get("lock")).etag)

        async def make(other):
            await other.put("gone", b"theirs", if_absent=True)

        async def replace(other):
            await other.put("a", b"theirs")

        async def use():
            async with open_state_store(through(proxy, postgres, table=table)) as store:
                etag, *_ = await store.put_many([Put("a", b"1"), Put("b", b"1"), Put("gone", b"1")])
                assert not await store.delete("missing")
                meanwhile(overwrite, after=b"COMMIT")
                etag, _ = await store.put_many(
                    [Put("a", b"ours", if_match=etag), Put("b", b"ours")]
                )
                assert await read_all(store) == {"a": b"ours", "b": b"theirs", "gone": b"1"}
                meanwhile(remove)
                await store.put("lock", b"ours", if_absent=True)
                assert await store.get("lock") is None
                meanwhile(make)
                assert await store.delete("gone")
                meanwhile(replace)
                await store.put("a", b"ours", if_match=etag)
                meanwhile(replace)
                await store.put("a", b"ours")
                assert await read_all(store) == dict.fromkeys(("a", "b", "gone"), b"theirs")
                meanwhile(make)
                assert await store.delete("gone", if_match=(await store.get("gone")).etag)
                assert await read_all(store) == dict.fromkeys(("a", "b", "gone"), b"theirs")
                assert proxy.lost == 6

        asyncio.run(use())

    def test_a_batch_that_was_written_is_acknowledged_though_its_condition_failed_since(
        self, postgres, proxy, table
    ):
        async def remove():
            async with open_state_store(postgres.url(table=table)) as other:
                assert await other.delete("fence")

        async def use():
            async with open_state_store(through(proxy, postgres, table=table)) as store:
                for mark, puts in (
                    (MARK, [Put("a", b"1", if_absent=True)]),
                    (MARK, [Put("a", b"2")]),
                    (b"COMMIT", [Put("b", b"1", if_absent=True), Put("z", b"1")]),
                ):
                    held = Condition("fence", await store.put("fence", b"1"))
                    proxy.lose_next_answer(mark, meanwhile=lambda: asyncio.run(remove()))
                    etags = await store.put_many(puts, conditions=[held])
                    for put, etag in zip(puts, etags, strict=True):
                        assert await store.get(put.key) == Entry(put.value, etag)
                    with pytest.raises(ConflictError) as caught:
                        await store.put_many([Put("late", b"1")], conditions=[held])
                    assert caught.value.key == "fence"
                assert await read_all(store) == {"a": b"2", "b": b"1", "z": b"1"}
                assert proxy.lost == 3

        asyncio.run(use())

    def test_a_condition_that_does_not_hold_is_a_conflict_after_a_lost_request_too(
        self, postgres, proxy, table
    ):
        async def use():
            async with open_state_store(through(proxy, postgres, table=table)) as store:
                for puts in ([Put("a", b"1")], [Put("a", b"1"), Put("z", b"1")]):
                    held = Condition("fence", await store.put("fence", b"1"))
                    await store.delete("fence")
                    proxy.lose_next_request(at=MARK)
                    with pytest.raises(ConflictError) as caught:
                        await store.put_many(puts, conditions=[held])
                    assert caught.value.key == "fence"
                assert await read_all(store) == {}
                assert proxy.lost == 2

        asyncio.run(use())

    def test_an_attempt_that_comes_late_is_not_done_beside_the_next(self, postgres, proxy, table):
        async def write(kind, name, ready):
            url = through(proxy, postgres, table=name, timeout=0.7, application_name=name)
            async with open_state_store(url) as store:
                # A machine that is busy may need longer for the first connection and the table.
                while True:
                    with suppress(StateStoreError):
                        etag = await store.put("a", b"1")
                        break
                # What one gives up before that is not to lose what another is to lose.
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
                    # So that the first attempt goes on when the store has given it up.
                    proxy.lose_next_request(at=CANCEL)
                    writing = asyncio.create_task(attempt())
                    await asyncio.to_thread(
                        wait_until, lambda: waiting(postgres, name) == 2, "no second attempt"
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

    def test_marks_of_done_writes_are_removed_after_an_hour(self, postgres, table, monkeypatch):
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

    def test_a_conflict_after_a_lost_request_is_one(self, postgres, proxy, table):
        async def use():
            async with open_state_store(through(proxy, postgres, table=table)) as store:
                old = await store.put("a", b"1")
                await store.put("a", b"theirs")
                assert not await store.delete("missing")
                for attempt in (
                    lambda: store.put("a", b"2", if_match=old),
                    lambda: store.put("a", b"2", if_absent=True),
                    lambda: store.put_many([Put("b", b"2"), Put("a", b"2", if_match=old)]),
                    lambda: store.delete("a", if_match=old),
                ):
                    proxy.lose_next_request(at=MARK)
                    with pytest.raises(ConflictError):
                        await attempt()
                proxy.lose_next_request(at=MARK)
                assert not await store.delete("missing")
                assert await read_all(store) == {"a": b"theirs"}
                assert proxy.lost == 5

        asyncio.run(use())


class TestServerThatFails:
    def test_killed_in_the_middle_of_writes_it_loses_and_doubles_nothing(self, mortal, table):
        async def use():
            async with open_state_store(mortal.url(table=table)) as store:
                await write_through_deaths(mortal, store)

        asyncio.run(use())

    def test_one_that_hangs_is_not_waited_for(self, mortal, table):
        async def use():
            url = mortal.url(table=table, timeout=0.5, patience=0)
            async with open_state_store(url) as store:
                await store.put("a", b"1")
                mortal.freeze()
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
                    mortal.thaw()
            async with open_state_store(mortal.url(table=table)) as store:
                assert await store.get("a") is not None

        asyncio.run(use())

    def test_connections_that_it_ended_while_idle_are_made_anew(self, postgres, table):
        async def use():
            url = postgres.url(table=table, application_name=table, patience=0)
            async with open_state_store(url) as store:
                await asyncio.gather(*(store.put(f"{n}", b"1") for n in range(20)))
                for _ in range(3):
                    assert end_sessions(postgres, table)
                    assert not await store.delete("missing")
                    await asyncio.gather(*(store.get(f"{n}") for n in range(20)))

        asyncio.run(use())

    def test_while_it_cannot_be_reached_it_is_tried_again(self, postgres, proxy, table):
        async def use():
            async with open_state_store(through(proxy, postgres, table=table)) as store:
                etag = await store.put("a", b"1")
                proxy.refuse_for(0.7)
                found = await asyncio.gather(*(store.get("a") for _ in range(30)))
                assert found == [Entry(b"1", etag)] * 30
            url = through(proxy, postgres, table=table, patience=0.2)
            async with open_state_store(url) as store:
                await store.get("a")
                with proxy.refusing(), pytest.raises(StateStoreError, match="reached") as caught:
                    await store.put("a", b"2", if_match=etag)
                assert caught.value.transient
                assert not caught.value.unknown
                await store.put("a", b"3", if_match=etag)

        asyncio.run(use())

    @pytest.mark.parametrize("code", ["40001", "40P01", "55P03", "57P01"])
    def test_what_may_pass_is_tried_again(self, postgres, table, code):
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
            ("XX000", "struck"),
            ("23505", "struck"),
        ],
    )
    def test_what_does_not_pass_is_told_at_once(self, postgres, table, code, hint):
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
    """Let the server fail the next writes to a table in a way of its own."""
    server.execute(
        f"CREATE SEQUENCE {table}_struck",
        f"""CREATE FUNCTION {table}_strike() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF nextval('{table}_struck') <= {times} THEN
            RAISE EXCEPTION 'struck {{as a test}}' USING ERRCODE = '{code}';
        END IF; RETURN NEW; END $$""",
        f"CREATE TRIGGER strike BEFORE INSERT OR UPDATE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION {table}_strike()",
    )


def log_writes(server, table):
    """Note each write to a table that is not undone."""
    server.execute(
        f"CREATE TABLE {table}_log (what text)",
        f"""CREATE FUNCTION {table}_note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        INSERT INTO {table}_log VALUES (TG_OP); RETURN NULL; END $$""",
        f"CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON {table} "
        f"FOR EACH ROW EXECUTE FUNCTION {table}_note()",
    )


def waiting(server, name):
    """How many sessions of an application wait for a lock."""
    return len(
        server.execute(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            f"AND application_name = '{name}'"
        )
    )


def end_sessions(server, name):
    """End all sessions of an application; whether there were any."""
    ended = server.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'"
    )
    time.sleep(0.05)
    return bool(ended)
