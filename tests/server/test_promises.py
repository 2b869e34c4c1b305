"""Small promises of the routes: limits of searches, tags, refusals that a dry run makes too."""

from __future__ import annotations

import pytest

from holdfast import Session
from support.async_tests import async_test
from support.rest_api import S, entries, filled, good, pages, problem


@pytest.mark.parametrize("limit", [1, 2, 100])
@async_test
async def test_a_page_of_sessions_that_were_searched_for_has_no_more_than_the_limit(
    store, api, limit
):
    for number in range(5):
        async with Session.open(store, agent_id="bot", session_id=f"Ses_{number}") as session:
            session.add_message("user", "hello")
    rows, sizes = await pages(api, "/agents/bot/sessions", "sessions", search="sES", limit=limit)
    assert [row["session_id"] for row in rows] == [f"Ses_{n}" for n in reversed(range(5))]
    assert max(sizes) <= limit


@async_test
async def test_the_tag_of_a_session_changes_where_an_old_snapshot_is_deleted(store, api):
    first, _ = await filled(store)
    tag = (await api.get(S)).headers["etag"]
    good(await api.delete(f"{S}/snapshots/{first}"), 204)
    answered = await api.get(S, headers={"If-None-Match": tag})
    assert good(answered)["snapshot_count"] == 1


@async_test
async def test_a_dry_run_refuses_what_the_save_refuses(store, api):
    await filled(store)
    for query in ({}, {"dry_run": "true"}):
        for tags in (b'{"a": "\\ud800"}', b'{"\\ud800": "a"}'):
            answered = await api.post(
                f"{S}/snapshots",
                params=query,
                content=b'{"tags": ' + tags + b"}",
                headers={"Content-Type": "application/json"},
            )
            problem(answered, 422, kind="invalid")


@async_test
async def test_every_change_is_refused_where_the_session_went_on(store, api):
    first, _ = await filled(store)
    before = await entries(store)
    stale = {"If-Match": '"0000"'}
    problem(await api.post(f"{S}/fork", headers=stale), 412)
    problem(await api.delete(f"{S}/snapshots/{first}", headers=stale), 412)
    document = (await api.get(f"{S}/document")).content
    problem(await api.post("/agents/snapshot/restore", content=document, headers=stale), 412)
    assert await entries(store) == before


@async_test
async def test_a_misspelled_dry_run_does_nothing(store, api):
    await filled(store)
    before = await entries(store)
    for name in ("dryrun", "dry-run", "dryRun"):
        problem(await api.delete(S, params={name: "true"}), 422, name)
    assert await entries(store) == before
