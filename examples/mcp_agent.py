"""An agent that saves its own state with the tools of ``holdfast mcp``, as any MCP client can.

It is killed in the middle of a task. A new process finds the state with a new server, undoes a
mistake and tries another way in a fork. Then the session is exported, imported into another store,
compared and shown in the viewer. The agent is scripted: no network or API key is needed.
Run: pip install 'holdfast[cli,mcp]', then python examples/mcp_agent.py
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, chdir
from pathlib import Path
from typing import Any

from mcp import Client, StdioServerParameters
from viewer_step import show_in_viewer

import holdfast

AGENT = "coder"
SESSION = "ses_migration"
URL = "sqlite:///agents.db"
CHAPTERS = ("fixtures", "asserts", "plugins")


# ----------------------------------------------------------------------------------------- agent


class CodingAgent:
    """An agent that remembers nothing but what the tools return."""

    def __init__(self, client: Any) -> None:
        self.client = client

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool; show the call."""
        shown = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        print(f"   {tool}({shown})", flush=True)
        given = {"agent": AGENT, "session": SESSION, **arguments}
        result = await self.client.call_tool(tool, given)
        if result.is_error:
            raise RuntimeError(result.content[0].text)
        return result.structured_content

    async def convert(self, chapter: str) -> Any:
        """Do one part of the task, and save a checkpoint."""
        if chapter == "plugins" and "crash" in sys.argv:
            os.kill(os.getpid(), signal.SIGKILL)  # the server ends when its client is gone
        message = {"role": "assistant", "content": f"converted the {chapter}"}
        return await self.call(
            "save_checkpoint", messages=[message], values={"done": chapter}, tags={"done": chapter}
        )


@asynccontextmanager
async def start_server(url: str) -> AsyncIterator[CodingAgent]:
    """Start the server as a client does, from its configuration."""
    server = StdioServerParameters(
        command=sys.executable,
        args=["-m", "holdfast", "mcp", "--store", url, "--agent", AGENT],
        env=dict(os.environ),
    )
    async with Client(server) as client:
        yield CodingAgent(client)


# ---------------------------------------------------------------------------------------- script


async def crash() -> None:
    """Work until the process is killed."""
    async with start_server(URL) as agent:
        for chapter in CHAPTERS:
            await agent.convert(chapter)


async def demonstrate(script: str) -> None:
    """Kill an agent, and continue from what it saved."""
    print("1. An agent works and saves, and is killed:", flush=True)
    command = [sys.executable, script, "crash"]
    ended = subprocess.run(command, check=False)  # noqa: ASYNC221, S603
    print(f"   exit code {ended.returncode}")

    async with start_server(URL) as agent:
        print("2. A new process asks a new server what was done, and continues:")
        newest = (await agent.call("list_checkpoints"))["checkpoints"][0]
        done = newest["tags"]["done"]
        for chapter in CHAPTERS[CHAPTERS.index(done) + 1 :]:
            await agent.convert(chapter)

        print("3. A mistake is compared and rolled back:")
        mistake = await agent.call("save_checkpoint", values={"done": None}, status="failed")
        page = await agent.call("diff", **{"from": "tag:done=plugins"}, to=mistake["snapshot"])
        for entry in page["entries"]:
            print(f"   {entry['key']}: {entry['before']} -> {entry['after']}")
        restored = await agent.call("restore", to="tag:done=plugins")
        print(f"   {restored['values']}, undo with event {restored['undo_seq']}")

        print("4. A fork of an earlier checkpoint continues differently:")
        await agent.call("fork", at="tag:done=fixtures", new_session="ses_what_if")
        await agent.call("save_checkpoint", session="ses_what_if", values={"way": "unittest"})
        found = await agent.call("search", query="the asserts", session=None)
        for match in found["matches"]:
            print(f"   {match['session']} has {match['excerpt']!r}")

    await move_session()
    print("8. The viewer shows it:", flush=True)
    show_in_viewer(URL, AGENT, SESSION)


async def move_session() -> None:
    """Export the session, import it into another store, and continue there."""
    async with holdfast.open_state_store(URL) as store:
        manager = holdfast.SnapshotManager(store)
        document = await manager.export_session(AGENT, SESSION, tags={"reason": "example"})
        manager.to_file(document, "migration.json")
        print("5. The session is exported to migration.json")

    async with holdfast.open_state_store("sqlite:///staging.db") as staging:
        manager = holdfast.SnapshotManager(staging)
        result = await manager.import_session(manager.from_file("migration.json"))
    print(f"6. Another store imports {result.messages_restored} messages and continues:")
    async with start_server("sqlite:///staging.db") as agent:
        await agent.convert("documentation")

    async with holdfast.open_state_store("sqlite:///staging.db") as staging:
        copy = await holdfast.SnapshotManager(staging).export_session(AGENT, SESSION)
    diff = copy.snapshot.diff(document.snapshot)
    print("7. Compared with the file, these are new or changed:")
    for space, key in diff["added"] + diff["changed"]:
        print(f"   {space}/{key}")


if __name__ == "__main__":
    if sys.argv[1:] == ["crash"]:
        asyncio.run(crash())
    else:
        SCRIPT = str(Path(__file__).absolute())
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            asyncio.run(demonstrate(SCRIPT))
