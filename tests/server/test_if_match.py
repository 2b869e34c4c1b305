"""``If-Match`` beside an agent that commits while the request is answered, at any moment of it."""

from __future__ import annotations

import json

from holdfast import Session
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.rest_api import client, good, problem

IMPORT = "/agents/snapshot/restore"
MOST = 20


class Between(MemoryStateStore):
    """Lets somebody do something before one of the reads."""

    def __init__(self):
        super().__init__()
        self.left, self.act = 0, None

    async def get_many(self, keys):
        self.left -= 1
        if self.left == 0:
            await self.act()
        return await super().get_many(keys)


async def asked(store, api, number, ask):
    """Ask with the head that was seen; an agent commits before a certain read.

    Gives the session's id and the answer, or None where the request reads less often.
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

    store.left, store.act = number, commit
    answered = await ask(api, path, document, head)
    return None if store.left > 0 else (session_id, answered)


async def times(store, ask):
    """The same, for every read that the request makes."""
    api = client(store)
    for number in range(1, MOST):
        found = await asked(store, api, number, ask)
        if found is None:
            assert number > 1
            return
        yield found
    raise AssertionError(f"it reads more than {MOST} times")


async def state_of(store, session_id):
    return (await Session.open(store, agent_id="bot", session_id=session_id)).state


@async_test
async def test_an_import_writes_over_the_head_that_was_seen_and_no_other():
    async def ask(api, path, document, head):
        return await api.post(IMPORT, content=document, headers=head)

    store = Between()
    async for session_id, answered in times(store, ask):
        problem(answered, 412, kind="moved-on")
        assert await state_of(store, session_id) == {"a": 1, "b": 2, "late": True}
        assert not [key for key in store._keys if "/snapshots/snapshot_" in key]
        assert not [key for key in store._keys if "/immutable_history/" in key]


@async_test
async def test_a_restore_follows_the_head_that_was_seen_and_no_other():
    async def ask(api, path, document, head):
        return await api.post(f"{path}/restore", json={"at": "2"}, headers=head)

    store = Between()
    async for session_id, answered in times(store, ask):
        problem(answered, 412, kind="moved-on")
        assert await state_of(store, session_id) == {"a": 1, "b": 2, "late": True}


@async_test
async def test_a_fork_of_now_is_of_the_head_that_was_seen_and_says_so():
    async def ask(api, path, document, head):
        return await api.post(f"{path}/fork", json={"session_id": f"of{path}"}, headers=head)

    store, statuses = Between(), []
    async for _, answered in times(store, ask):
        statuses.append(answered.status_code)
        if answered.status_code != 412:
            tree = good(answered, 201)
            assert tree["from"]["seq"] == 3
            assert await state_of(store, tree["session_id"]) == {"a": 1, "b": 2}
    assert set(statuses) == {201, 412}


@async_test
async def test_a_fork_without_a_head_is_of_the_moment_that_it_names():
    async def ask(api, path, document, head):
        return await api.post(f"{path}/fork")

    store = Between()
    async for _, answered in times(store, ask):
        tree = good(answered, 201)
        late = {"late": True} if tree["from"]["seq"] == 4 else {}
        assert await state_of(store, tree["session_id"]) == {"a": 1, "b": 2, **late}


@async_test
async def test_a_delete_is_refused_where_an_agent_commits_while_it_looks():
    async def ask(api, path, document, head):
        return await api.delete(path, headers=head)

    store = Between()
    session_id, answered = await asked(store, client(store), 1, ask)
    problem(answered, 412, "after event 3", kind="moved-on")
    assert await state_of(store, session_id) == {"a": 1, "b": 2, "late": True}


@async_test
async def test_no_head_matches_a_session_that_is_not_there(store, api):
    async with Session.open(store, agent_id="bot", session_id="ses") as session:
        session.set("a", 1)
    tree = good(await api.get("/agents/bot/sessions/ses/document"))
    for names, heads in (({}, ('"0000"',)), ({"session_id": "new"}, ('"0000"', "*"))):
        for query in ({}, {"dry_run": "true"}):
            for head in heads:
                answered = await api.post(
                    IMPORT,
                    params={**names, **query},
                    content=json.dumps(tree),
                    headers={"If-Match": head},
                )
                problem(answered, 412, kind="moved-on")
    problem(await api.get("/agents/bot/sessions/new"), 404)
    good(await api.post(IMPORT, json=tree, headers={"If-Match": "*"}))
