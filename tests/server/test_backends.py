"""The routes work the same on every backend."""

from __future__ import annotations

from support.async_tests import async_test
from support.rest_api import (
    IMAGE,
    ODD,
    SES_1,
    connect,
    dump_store,
    expect_ok,
    expect_problem,
    fill_store,
    open_session,
)


@async_test
async def test_all_routes_work_on_every_backend(new_state_store):
    async with new_state_store() as store:
        assert expect_ok(await connect(store).get("/agents"))["agents"] == []
        first, second = await fill_store(store)
        api = connect(store)

        names = [row["agent_id"] for row in expect_ok(await api.get("/agents"))["agents"]]
        assert names == ["ann", "bob", "research-bot"]
        page = expect_ok(await api.get("/agents", params={"limit": 2}))
        rest = expect_ok(await api.get("/agents", params={"cursor": page["next_cursor"]}))
        assert [row["agent_id"] for row in page["agents"] + rest["agents"]] == names
        tree = expect_ok(await api.get(SES_1))
        assert (tree["last_event"], tree["snapshot_count"]) == (10, 2)
        assert tree["latest_snapshot"]["tags"]["odd"] == ODD
        assert len(expect_ok(await api.get(f"{SES_1}/events"))["events"]) == 10
        assert expect_ok(await api.get(f"{SES_1}/state?at={first}"))["message_count"] == 1
        assert expect_ok(await api.get(f"{SES_1}/diff?from={first}&to={second}"))["added"] == 2
        assert len(expect_ok(await api.get(f"{SES_1}/growth"))["points"]) == 10

        content = IMAGE * 50_000
        tree = expect_ok(await api.post(f"{SES_1}/blobs", content=content), 201)
        blob = f"{SES_1}/blobs/{tree['digest']}"
        assert (await api.get(blob)).content == content
        part = await api.get(blob, headers={"Range": "bytes=524280-524300"})
        assert (part.status_code, part.content) == (206, content[524280:524301])
        assert (await api.head(blob)).headers["content-length"] == str(len(content))

        before = await dump_store(store)
        document = (await api.get("/agents/ses_1/snapshot")).content
        for path in (f"{SES_1}/snapshots", f"{SES_1}/fork"):
            expect_ok(await api.post(path, params={"dry_run": "true"}))
        expect_ok(await api.post("/agents/snapshot/restore?dry_run=true", content=document))
        assert await dump_store(store) == before

        done = expect_ok(await api.post(f"{SES_1}/restore", json={"at": first}))
        assert expect_ok(await api.get(f"{SES_1}/state"))["message_count"] == 1
        expect_ok(await api.post(f"{SES_1}/restore", json={"at": str(done["previous_event"])}))
        assert expect_ok(await api.get(f"{SES_1}/state"))["message_count"] == 2
        expect_problem(await api.post(f"{SES_1}/fork", json={"session_id": "ses_1"}), 409)
        expect_ok(await api.post(f"{SES_1}/fork", json={"session_id": ODD}), 201)
        query = {"session_id": "copy", "agent_id": ODD}
        expect_ok(await api.post("/agents/snapshot/restore", params=query, content=document))
        assert (await (await open_session(store, ODD, "copy")).verify()).damage == []
        expect_ok(await api.delete(f"{SES_1}/snapshots/{first}"), 204)
        expect_problem(await api.get(f"{SES_1}/snapshots/{first}"), 404)
        expect_ok(await api.delete(SES_1), 204)
        expect_problem(await api.get(SES_1), 404)
        expect_ok(await api.get("/health/ready"))
