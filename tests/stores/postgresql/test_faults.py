"""PostgreSQL that loses answers, dies, hangs and refuses."""

from __future__ import annotations

import asyncio
import time

import pytest

from holdfast.errors import StateStoreError
from holdfast.stores.entries import Entry, Put
from holdfast.stores.opening import open_state_store
from holdfast.testing.state_store_suite import content
from servers.crashes import write_through_deaths


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
                assert await content(store) == {"c": b"3"}
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

    @pytest.mark.parametrize("kind", ["put if_match", "put if_absent", "delete if_match"])
    def test_a_conflict_after_a_lost_answer_is_not_known_to_be_one(
        self, postgres, proxy, table, kind
    ):
        async def interfere():
            async with open_state_store(postgres.url(table=table)) as other:
                await other.put_many([Put("a", b"other"), Put("new", b"other")])

        async def use():
            async with open_state_store(through(proxy, postgres, table=table)) as store:
                etag = await store.put("a", b"1")
                attempt = {
                    "put if_match": lambda: store.put("a", b"2", if_match=etag),
                    "put if_absent": lambda: store.put("new", b"2", if_absent=True),
                    "delete if_match": lambda: store.delete("a", if_match=etag),
                }[kind]
                proxy.lose_next_answer(b"tail_digest", meanwhile=lambda: asyncio.run(interfere()))
                with pytest.raises(StateStoreError, match="not known") as caught:
                    await attempt()
                assert caught.value.unknown
                assert (await content(store)) == {"a": b"other", "new": b"other"}

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
                    with pytest.raises(StateStoreError, match="did not answer") as caught:
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
        [("53100", "disk is full"), ("42501", "Grant"), ("22P05", "UTF8"), ("XX000", "struck")],
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
                assert await content(store) == {"a": b"1"}

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


def end_sessions(server, name):
    """End all sessions of an application; whether there were any."""
    ended = server.execute(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '{name}'"
    )
    time.sleep(0.05)
    return bool(ended)
