"""Runs of the real Claude Code with our store, against a scripted API on this machine."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from uuid import uuid4

import pytest

pytest.importorskip("claude_agent_sdk")

from claude_agent_sdk import project_key_for_directory

from adapters.claude_agent.scripted_api import ScriptedClaude, ask, find_texts, script
from adapters.claude_agent.transcripts import make_user
from holdfast import Session, open_state_store
from holdfast.adapters.claude_agent import HoldfastSessionStore
from support.async_tests import async_test

RUN = """
import asyncio, json, os, signal, sys
from adapters.claude_agent.scripted_api import ask
from claude_agent_sdk import project_key_for_directory
from holdfast.adapters.claude_agent import HoldfastSessionStore

url, folder, env = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])

async def main():
    async with HoldfastSessionStore.from_url(url) as store:
        async def kill():
            while not await store.list_sessions(project_key_for_directory(folder)):
                await asyncio.sleep(0.01)  # the SDK hands entries over in the background
            os.killpg(0, signal.SIGKILL)

        await ask(
            env, store, folder, "Is there a table?", on_tool=kill, session_store_flush="eager"
        )

asyncio.run(main())
"""


@async_test
async def test_a_run_that_was_killed_in_a_tool_is_resumed_by_a_new_process(tmp_path):
    url = f"sqlite:///{tmp_path}/agents.db"
    with ScriptedClaude(script) as api:
        killed = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", RUN, url, tmp_path, json.dumps(api.env(tmp_path / "one"))],
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)},
            start_new_session=True,
            timeout=120,
            check=False,
        )
        assert killed.returncode == -9
        async with HoldfastSessionStore.from_url(url) as store:
            project = project_key_for_directory(tmp_path)
            (listed,) = await store.list_sessions(project)
            key = {"project_key": project, "session_id": listed["session_id"]}
            before = await store.load(key)
            session_id, answer = await ask(
                api.env(tmp_path / "two"), store, tmp_path, "Once more", continue_conversation=True
            )
            assert session_id == listed["session_id"]
            after = await store.load(key)
            assert after[: len(before)] == before
            texts = find_texts(after)
            assert texts[0] == "Is there a table?"
            assert texts[-2:] == ["Once more", answer]
            assert answer > "Once more (1)"
            location = store.location(key)
            session = await Session.open(
                store.state_store, agent_id=location.scope_id, session_id=location.session_id
            )
            assert session.status == "completed"
            assert (await session.verify()).ok


@async_test
async def test_a_rolled_back_and_a_forked_session_are_resumed_with_their_sub_agents(tmp_path):
    async with open_state_store(f"sqlite:///{tmp_path}/agents.db") as state_store:
        store = HoldfastSessionStore(state_store)
        with ScriptedClaude(script) as api:
            env = api.env(tmp_path / "claude")
            session_id, answer = await ask(env, store, tmp_path, "Are there chairs?")
            project = project_key_for_directory(tmp_path)
            key = {"project_key": project, "session_id": session_id}
            (subpath,) = await store.list_subkeys(key)
            assert "find chairs" in find_texts(await store.load({**key, "subpath": subpath}))[0]
            location = store.location(key)
            session = await Session.open(
                state_store, agent_id=location.scope_id, session_id=session_id
            )
            saved = await session.save()
            before = await store.load(key)

            await store.append(key, [make_user("Cancel everything")])
            await session.refresh()
            await session.restore(saved.snapshot_id)
            assert await store.load(key) == before
            _, answer = await ask(env, store, tmp_path, "Thanks", resume=session_id)
            texts = find_texts(await store.load(key))
            assert "Cancel everything" not in texts
            assert texts[-2:] == ["Thanks", answer]

            other = await session.fork(str(uuid4()), at=saved.snapshot_id)
            forked, answer = await ask(env, store, tmp_path, "A fork", resume=other.session_id)
            assert forked == other.session_id
            texts = find_texts(await store.load({**key, "session_id": forked}))
            assert (texts[0], texts[-1]) == ("Are there chairs?", answer)
            assert "Thanks" not in texts
