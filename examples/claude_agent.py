"""An agent of the Claude Agent SDK whose transcript is a Holdfast session.

It crashes while a tool runs, resumes in a new process, and is rolled back, forked, exported,
imported into another store, compared and shown in the viewer. Claude Code is real, and the model is
scripted: no network or API key is needed.
Run: pip install 'holdfast[claude-agent]', then python examples/claude_agent.py
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any
from uuid import uuid4

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    TextBlock,
    create_sdk_mcp_server,
    project_key_for_directory,
    query,
    tool,
)
from claude_agent_sdk.types import SessionKey
from scripted_claude import ScriptedClaude, find_last_text
from viewer_step import show_in_viewer

import holdfast
from holdfast.adapters.claude_agent import HoldfastSessionStore

SESSION = "5f0c3c52-6c1b-4f55-9a3e-7d1f0a6b2e77"
TOOL = "mcp__restaurant__free_tables"


# ----------------------------------------------------------------------------------------- agent


def answer(messages: list[dict[str, Any]]) -> str | dict[str, Any]:
    """Look for a table, and report the result."""
    said = find_last_text(messages)
    if "table?" in said:
        return {"name": TOOL, "input": {"day": "monday"}}
    return f"There are {said}" if said.startswith("two tables") else "You are welcome"


@tool("free_tables", "Look for free tables", {"day": str})
async def free_tables(arguments: dict[str, Any]) -> dict[str, Any]:
    """Look for free tables."""
    if "crash" in sys.argv:
        os.killpg(0, signal.SIGKILL)  # this process and Claude Code die while the tool runs
    return {"content": [{"type": "text", "text": f"two tables on {arguments['day']}"}]}


async def ask(
    store: HoldfastSessionStore, words: str, session_id: str = SESSION, *, is_new: bool = False
) -> None:
    """Run one turn of the conversation. Each turn starts Claude Code with an empty folder."""
    print(f"   user: {words}", flush=True)
    with ScriptedClaude(answer) as claude, tempfile.TemporaryDirectory() as folder:
        options = ClaudeAgentOptions(
            session_store=store,
            session_store_flush="eager",
            session_id=session_id if is_new else None,
            resume=None if is_new else session_id,
            env=claude.env(folder),
            tools=[],
            mcp_servers={"restaurant": create_sdk_mcp_server("restaurant", tools=[free_tables])},
            allowed_tools=[TOOL],
            setting_sources=[],
        )
        async for message in query(prompt=words, options=options):
            if isinstance(message, AssistantMessage):
                for part in message.content:
                    if isinstance(part, TextBlock):
                        print(f"   claude: {part.text}", flush=True)


async def open_session(store: HoldfastSessionStore, session_id: str = SESSION) -> holdfast.Session:
    """Open the session of a transcript of this folder."""
    location = store.location(make_key(session_id))
    return await holdfast.Session.open(
        store.state_store, agent_id=location.scope_id, session_id=session_id
    )


def make_key(session_id: str = SESSION) -> SessionKey:
    """Return the SDK's key of a transcript of this folder."""
    return {"project_key": project_key_for_directory(), "session_id": session_id}


# ---------------------------------------------------------------------------------------- script


async def crash() -> None:
    """Run the agent until it crashes."""
    async with HoldfastSessionStore.from_url("sqlite:///agents.db") as store:
        await ask(store, "Thank you for having me", is_new=True)
        await (await open_session(store)).save(tags={"reason": "first turn"})
        await ask(store, "Is there a table?")


async def demonstrate(script: str) -> None:
    """Crash an agent, and continue from what it committed."""
    print("1. An agent talks, and its process crashes while a tool runs:", flush=True)
    command = [sys.executable, script, "crash"]
    ended = subprocess.run(command, check=False, start_new_session=True)  # noqa: ASYNC221, S603
    print(f"   exit code {ended.returncode}")

    async with HoldfastSessionStore.from_url("sqlite:///agents.db") as store:
        session = await open_session(store)
        print(f"2. A new process finds {session.message_count} messages and continues:")
        await ask(store, "Once more: is there a table?")

        await session.refresh()
        mark = session.snapshot()
        await ask(store, "Then cancel everything")
        await session.refresh()
        session.rollback(mark)
        await session.commit()
        print(f"3. A mistake is rolled back: {session.message_count} messages again")

        (good,) = await session.archive.list_snapshot_ids(location=session.location)
        fork = await session.fork(str(uuid4()), at=good)
        print("4. A fork of the first snapshot continues differently:")
        await ask(store, "Good bye", fork.session_id)

        document = await session.export(tags={"reason": "example"})
        holdfast.SnapshotManager(store.state_store).to_file(document, "table_7.json")
        print("5. The session is exported to table_7.json")

    async with HoldfastSessionStore.from_url("sqlite:///staging.db") as staging:
        manager = holdfast.SnapshotManager(staging.state_store)
        result = await manager.import_session(manager.from_file("table_7.json"))
        print(f"6. Another store imports {result.messages_restored} messages and continues:")
        await ask(staging, "Thanks")
        copy = await (await open_session(staging)).export()

    added = copy.snapshot.diff(document.snapshot)["added"]
    print(f"7. Compared with the file, {len(added)} entries are new, of these in messages:")
    for space, key in added:
        if space == "messages":
            print(f"   {space}/{key}")

    print("8. The viewer shows it:", flush=True)
    show_in_viewer("sqlite:///agents.db", make_key()["project_key"], SESSION)


if __name__ == "__main__":
    if sys.argv[1:] == ["crash"]:
        asyncio.run(crash())
    else:
        SCRIPT = str(Path(__file__).absolute())
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            asyncio.run(demonstrate(SCRIPT))
