"""An agent that saves its own state with the tools of the MCP server, and undoes its mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mcp import Client

from holdfast import Session, open_state_store
from holdfast.mcp_server import create_server
from trials.frameworks.scenario import note_acknowledged, note_step, read_acknowledged

TURNS = 12
STEPS = 2 * TURNS
NAMES = {"agent": "agent", "session": "ses_1"}
MISTAKE = {"role": "assistant", "content": "a mistake"}


async def run(url: str, folder: Path) -> None:
    """Do the turns that are not done yet; after each, make a mistake and restore."""
    async with (
        open_state_store(url) as store,
        Client(create_server(store), mode="legacy") as client,
    ):
        agent = SavingAgent(client, folder)
        await agent.resume()
        while agent.turns < TURNS:
            await agent.take_turn()


class SavingAgent:
    """The agent, which knows only what the tools return."""

    def __init__(self, client: Any, folder: Path) -> None:
        self.client = client
        self.folder = folder
        self.turns = 0
        self.seq = 0

    async def call(self, tool: str, **arguments: Any) -> Any:
        """Call a tool."""
        result = await self.client.call_tool(tool, {**NAMES, **arguments})
        if result.is_error:
            raise RuntimeError(result.content[0].text)
        return result.structured_content

    async def resume(self) -> None:
        """Find out where an earlier run was killed, and undo a mistake that it left."""
        listed = await self.client.call_tool("list_checkpoints", {**NAMES, "limit": 2})
        if listed.is_error:
            return  # nothing was saved yet
        newest = listed.structured_content["checkpoints"][0]
        self.seq = listed.structured_content["head_seq"]
        mistakes = await self.call("search", query=MISTAKE["content"])
        if mistakes["matches"]:
            newest = listed.structured_content["checkpoints"][1]
            await self.restore(newest["snapshot"])
        self.turns = int(newest["tags"].get("turn", -1)) + 1
        if "turn" not in newest["tags"]:  # the mistake was undone already
            self.turns = int(listed.structured_content["checkpoints"][1]["tags"]["turn"]) + 1

    async def take_turn(self) -> None:
        """Save a turn, then a mistake, and restore the turn."""
        note_step(self.folder)
        number = str(self.turns)
        saved = await self.save({"role": "user", "content": number}, tags={"turn": number})
        self.turns += 1
        note_step(self.folder)
        await self.save(MISTAKE)
        await self.restore(saved["snapshot"])

    async def save(self, message: dict[str, str], **more: Any) -> Any:
        """Save a message as a checkpoint."""
        values = {"last": message["content"]}
        saved = await self.call(
            "save_checkpoint", messages=[message], values=values, expected_seq=self.seq, **more
        )
        self.seq = saved["seq"]
        note_acknowledged(self.folder, saved["snapshot"])
        return saved

    async def restore(self, snapshot_id: str) -> None:
        """Restore a checkpoint."""
        restored = await self.call("restore", to=snapshot_id, expected_seq=self.seq)
        self.seq = restored["seq"]


async def check(url: str, folder: Path) -> list[str]:
    """Check that each turn is there once, and every checkpoint that was acknowledged."""
    async with open_state_store(url) as store:
        live = await Session.open(store, agent_id=NAMES["agent"], session_id=NAMES["session"])
        known = set(await live.archive.list_snapshot_ids(location=live.location))
    lost = [each for each in read_acknowledged(folder) if each not in known]
    problems = [f"checkpoint {each} was lost" for each in lost]
    turns = [each["content"] for each in live.messages]
    if turns != [str(number) for number in range(TURNS)]:
        problems.append(f"the turns are {turns}")
    if live.get("last") != str(TURNS - 1):
        problems.append(f"the last turn is {live.get('last')!r}")
    return problems
