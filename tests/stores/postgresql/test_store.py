"""The PostgreSQL store, against a real server."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from psycopg.sql import SQL, Identifier

from holdfast.stores.entries import Put
from holdfast.stores.postgresql import statements
from holdfast.stores.registry import open_state_store
from holdfast.testing import StateStoreSuite
from holdfast.testing.state_store_suite import collect_keys


class TestPostgres(StateStoreSuite):
    increments = 6
    examples = 8

    @pytest.fixture
    def new_store(self, postgres, table):
        return lambda: open_state_store(postgres.url(table=table))


class TestKeys:
    @given(st.lists(st.text("\x00\x01\x02ab\U0010ffff", max_size=8), max_size=30))
    def test_stored_keys_keep_their_order_and_round_trip(self, keys):
        long = [key.rjust(502, "b") for key in keys] + keys
        assert sorted(long, key=statements.split_key) == sorted(long)
        assert [statements.join_key(*statements.split_key(key)) for key in long] == long

    def test_long_keys_that_differ_late_are_listed_in_order(self, postgres, table):
        keys = sorted(
            "p" * size + end for size in (499, 500, 501, 8000) for end in ("", "a", "\x00")
        )

        async def use():
            async with open_state_store(postgres.url(table=table)) as store:
                await store.put_many([Put(key, key[-1:].encode()) for key in reversed(keys)])
                assert await collect_keys(store.list()) == keys
                for at, key in enumerate(keys):
                    assert await collect_keys(store.list("p", start_after=key)) == keys[at + 1 :]

        asyncio.run(use())


class TestListing:
    @pytest.mark.parametrize("known", ["without statistics", "with statistics"])
    def test_the_cost_of_a_page_does_not_depend_on_the_number_of_keys(self, postgres, known, table):
        work = {}
        with psycopg.connect(postgres.url(), autocommit=True) as connection:
            for size in (3_000, 20_000):
                name = Identifier(f"{table}_{size}")
                connection.execute(SQL(statements.CREATE_ENTRIES).format(entries=name))
                connection.execute(
                    SQL(
                        "ALTER TABLE {0} SET (autovacuum_enabled = false); INSERT INTO {0} "
                        "SELECT 'key/' || to_char(n, 'FM000000'), '', '', 'etag', 'value' "
                        "FROM generate_series(1, {1}) AS n ORDER BY md5(n::text)"
                    ).format(name, size)
                )
                if known == "with statistics":
                    connection.execute(SQL("VACUUM ANALYZE {}").format(name))
                built = statements.Statements([f"{table}_{size}"])
                work[size] = [
                    count_rows_read(connection, statement, bounds)
                    for statement, bounds in (
                        (built.page, ["", "", 1000]),
                        (built.page, ["key/000500", "", 1000]),
                        (built.page_below, ["key/", "", 1000, "key0", ""]),
                        (built.page_below, ["key/000500", "", 1000, "key0", ""]),
                    )
                ]
        assert work[3_000] == work[20_000]
        assert max(work[20_000]) <= 1_002


def count_rows_read(connection, statement, values):
    """Return the most rows that any step of the query plan processed."""
    query = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement.text.decode()
    cursor = psycopg.RawCursor(connection).execute(query, values)
    steps = [cursor.fetchone()[0][0]["Plan"]]
    kinds = []
    most = 0
    while steps:
        step = steps.pop()
        kinds.append(step["Node Type"])
        most = max(most, int(step["Actual Rows"]), int(step.get("Rows Removed by Filter", 0)))
        steps += step.get("Plans", [])
    assert "Index Scan" in kinds
    assert "Seq Scan" not in kinds
    return most
