"""The same on every backend: from an empty store to a session that was moved, restored, deleted."""

from __future__ import annotations

from support.async_tests import async_test
from support.rest_api import ODD, S, client, entries, filled, good, opened, problem


@async_test
async def test_a_session_is_looked_at_changed_moved_and_deleted(new_state_store):
    async with new_state_store() as store:
        assert good(await client(store).get("/agents"))["agents"] == []
        first, second = await filled(store)
        api = client(store)

        names = [row["agent_id"] for row in good(await api.get("/agents"))["agents"]]
        assert names == ["ann", "bob", "research-bot"]
        page = good(await api.get("/agents", params={"limit": 2}))
        rest = good(await api.get("/agents", params={"cursor": page["next_cursor"]}))
        assert [row["agent_id"] for row in page["agents"] + rest["agents"]] == names
        tree = good(await api.get(S))
        assert (tree["last_event"], tree["snapshot_count"]) == (10, 2)
        assert tree["latest_snapshot"]["tags"]["odd"] == ODD
        assert len(good(await api.get(f"{S}/events"))["events"]) == 10
        assert good(await api.get(f"{S}/state?at={first}"))["message_count"] == 1
        assert good(await api.get(f"{S}/diff?from={first}&to={second}"))["added"] == 2
        assert len(good(await api.get(f"{S}/growth"))["points"]) == 10

        before = await entries(store)
        document = (await api.get("/agents/ses_1/snapshot")).content
        for path in (f"{S}/snapshots", f"{S}/fork"):
            good(await api.post(path, params={"dry_run": "true"}))
        good(await api.post("/agents/snapshot/restore?dry_run=true", content=document))
        assert await entries(store) == before

        done = good(await api.post(f"{S}/restore", json={"at": first}))
        assert good(await api.get(f"{S}/state"))["message_count"] == 1
        good(await api.post(f"{S}/restore", json={"at": str(done["previous_event"])}))
        assert good(await api.get(f"{S}/state"))["message_count"] == 2
        problem(await api.post(f"{S}/fork", json={"session_id": "ses_1"}), 409)
        good(await api.post(f"{S}/fork", json={"session_id": ODD}), 201)
        query = {"session_id": "copy", "agent_id": ODD}
        good(await api.post("/agents/snapshot/restore", params=query, content=document))
        assert (await (await opened(store, ODD, "copy")).verify()).damage == []
        good(await api.delete(f"{S}/snapshots/{first}"), 204)
        problem(await api.get(f"{S}/snapshots/{first}"), 404)
        good(await api.delete(S), 204)
        problem(await api.get(S), 404)
        good(await api.get("/health/ready"))
