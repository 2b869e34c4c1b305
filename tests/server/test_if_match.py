"""``If-Match`` while an agent commits during the request, before any of its reads."""

from __future__ import annotations

import json

from holdfast import Session
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.rest_api import (
    SES_1,
    connect,
    dump_store,
    expect_ok,
    expect_problem,
    fill_store,
    open_session,
)

IMPORT = "/agents/snapshot/restore"
MAX_READS = 20


class InterruptedStore(MemoryStateStore):
    """Calls a function before one of the reads."""

    def __init__(self):
        super().__init__()
        self.reads_left, self.interrupt = 0, None

    async def get_many(self, keys):
        self.reads_left -= 1
        if self.reads_left == 0:
            await self.interrupt()
        return await super().get_many(keys)


async def send_interrupted(store, api, number, send):
    """Send a request with the current head; an agent commits before the given read.

    Return the session's id and the response, or None if the request makes fewer reads.
    """
    session_id = f"ses_{number}"
    path = f"/agents/bot/sessions/{session_id}"
    session = await Session.open(store, agent_id="bot", session_id=session_id)
    session.set("a", 1)
    await session.commit()
    document = (await api.get(f"{path}/document")).content
    session.set("b", 2)
    await session.commit()
    head = {"If-Match": f'"{session.log.head.hash}"'}

    async def commit():
        session.set("late", True)
        await session.commit()

    store.reads_left, store.interrupt = number, commit
    response = await send(api, path, document, head)
    return None if store.reads_left > 0 else (session_id, response)


async def interrupt_each_read(store, send):
    """Do so before each read that the request makes."""
    api = connect(store)
    for number in range(1, MAX_READS):
        result = await send_interrupted(store, api, number, send)
        if result is None:
            assert number > 1
            return
        yield result
    raise AssertionError(f"more than {MAX_READS} reads")


async def read_state(store, session_id):
    return (await Session.open(store, agent_id="bot", session_id=session_id)).state


@async_test
async def test_import_fails_if_the_session_changes_after_if_match():
    async def send(api, path, document, head):
        return await api.post(IMPORT, content=document, headers=head)

    store = InterruptedStore()
    async for session_id, response in interrupt_each_read(store, send):
        expect_problem(response, 412, kind="moved-on")
        assert await read_state(store, session_id) == {"a": 1, "b": 2, "late": True}
        assert not [key for key in store._keys if "/snapshots/snapshot_" in key]
        assert not [key for key in store._keys if "/immutable_history/" in key]


@async_test
async def test_restore_fails_if_the_session_changes_after_if_match():
    async def send(api, path, document, head):
        return await api.post(f"{path}/restore", json={"at": "2"}, headers=head)

    store = InterruptedStore()
    async for session_id, response in interrupt_each_read(store, send):
        expect_problem(response, 412, kind="moved-on")
        assert await read_state(store, session_id) == {"a": 1, "b": 2, "late": True}


@async_test
async def test_fork_of_now_with_if_match_uses_that_head_or_fails():
    async def send(api, path, document, head):
        return await api.post(f"{path}/fork", json={"session_id": f"of{path}"}, headers=head)

    store, statuses = InterruptedStore(), []
    async for _, response in interrupt_each_read(store, send):
        statuses.append(response.status_code)
        if response.status_code != 412:
            tree = expect_ok(response, 201)
            assert tree["from"]["seq"] == 3
            assert await read_state(store, tree["session_id"]) == {"a": 1, "b": 2}
    assert set(statuses) == {201, 412}


@async_test
async def test_fork_without_if_match_reports_the_position_it_used():
    async def send(api, path, document, head):
        return await api.post(f"{path}/fork")

    store = InterruptedStore()
    async for _, response in interrupt_each_read(store, send):
        tree = expect_ok(response, 201)
        late = {"late": True} if tree["from"]["seq"] == 4 else {}
        assert await read_state(store, tree["session_id"]) == {"a": 1, "b": 2, **late}


@async_test
async def test_delete_fails_if_the_session_changes_after_if_match():
    async def send(api, path, document, head):
        return await api.delete(path, headers=head)

    store = InterruptedStore()
    session_id, response = await send_interrupted(store, connect(store), 1, send)
    expect_problem(response, 412, "at event 4", kind="moved-on")
    assert await read_state(store, session_id) == {"a": 1, "b": 2, "late": True}


@async_test
async def test_if_match_fails_if_the_session_does_not_exist(store, api):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        session.set("a", 1)
    tree = expect_ok(await api.get("/agents/bot/sessions/ses/document"))
    for names, heads in (({}, ('"0000"',)), ({"session_id": "new"}, ('"0000"', "*"))):
        for query in ({}, {"dry_run": "true"}):
            for head in heads:
                response = await api.post(
                    IMPORT,
                    params={**names, **query},
                    content=json.dumps(tree),
                    headers={"If-Match": head},
                )
                expect_problem(response, 412, kind="moved-on")
    expect_problem(await api.get("/agents/bot/sessions/new"), 404)
    expect_ok(await api.post(IMPORT, json=tree, headers={"If-Match": "*"}))


@async_test
async def test_write_fails_if_if_match_is_stale_or_invalid(store, api):
    first, _ = await fill_store(store)
    head = expect_ok(await api.get(SES_1))["head"]
    document = expect_ok(await api.get(f"{SES_1}/document"))
    session = await open_session(store)
    session.add_message("user", "concurrent")
    await session.commit()
    before = await dump_store(store)
    stale = {"If-Match": f'"{head}"'}
    for method, path, body in (
        ("POST", f"{SES_1}/snapshots", {}),
        ("POST", f"{SES_1}/restore", {"at": first}),
        ("POST", f"{SES_1}/fork", {}),
        ("POST", "/agents/snapshot/restore", document),
        ("DELETE", f"{SES_1}/snapshots/{first}", None),
        ("DELETE", SES_1, None),
    ):
        for garbage in (stale["If-Match"], head, '"', "", "x" * 5000, '"a", "b"', "\xff", "W/*"):
            response = await api.request(
                method, path, json=body, headers={"If-Match": garbage.encode("latin-1")}
            )
            tree = expect_problem(response, 412, kind="moved-on")
            assert session.log.head.hash in tree["detail"]
        assert await dump_store(store) == before
    now = {"If-Match": f'"{head}", "{session.log.head.hash}"'}
    expect_ok(await api.post(f"{SES_1}/snapshots", headers=now), 201)
    expect_ok(await api.post(f"{SES_1}/restore", json={"at": first}, headers={"If-Match": "*"}))
    head = expect_ok(await api.get(SES_1))["head"]
    expect_ok(await api.delete(SES_1, headers={"If-Match": f'"{head}"'}), 204)
