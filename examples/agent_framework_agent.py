"""An agent and a workflow of the Microsoft Agent Framework, stored in Holdfast.

The workflow crashes in the middle, resumes in a new process, and is rolled back, forked, exported,
imported into another store, compared and shown in the viewer. The model is scripted: no network or
API key is needed.
Run: pip install 'holdfast[agent-framework]', then python examples/agent_framework_agent.py
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatResponse,
    Executor,
    Message,
    Workflow,
    WorkflowBuilder,
    WorkflowContext,
    handler,
)
from viewer_step import show_in_viewer

import holdfast
from holdfast.adapters.agent_framework import HoldfastCheckpointStorage, HoldfastHistoryProvider
from holdfast.stores.base import StateStore

AGENT = "agent-framework"
WORKFLOW = "booking"
DAYS = ["monday", "tuesday", "friday"]


# -------------------------------------------------------------------------------- agent, workflow


class ScriptedClient(BaseChatClient):
    """A model that repeats the day it is asked for."""

    def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
        async def answer() -> ChatResponse[Any]:
            text = f"{messages[-1].text.split()[-1]} is free ({len(messages)} messages)"
            return ChatResponse(messages=[Message("assistant", [text])])

        return answer()


class Booking(Executor):
    """Asks the agent for one day after the other, one step per day."""

    def __init__(self, store: StateStore) -> None:
        super().__init__(id="booking")
        history = HoldfastHistoryProvider(store, agent_id="waiter")
        self.agent = Agent(client=ScriptedClient(), name="waiter", context_providers=[history])

    @handler
    async def look(self, number: int, ctx: WorkflowContext[int, str]) -> None:
        """Look for a table on one day."""
        if number == 2 and "crash" in sys.argv:
            os._exit(137)  # the process dies in the third step
        session = AgentSession(session_id="table-7")
        answer = await self.agent.run(f"Is there a table on {DAYS[number]}", session=session)
        print(f"   waiter: {answer.text}", flush=True)
        ctx.set_state(DAYS[number], answer.text)
        if number + 1 < len(DAYS):
            await ctx.send_message(number + 1, target_id=self.id)
        else:
            await ctx.yield_output("looked at all days")


def build(store: StateStore, storage: HoldfastCheckpointStorage) -> Workflow:
    """Return the workflow."""
    node = Booking(store)
    builder = WorkflowBuilder(start_executor=node, checkpoint_storage=storage, name=WORKFLOW)
    return builder.add_edge(node, node).build()


async def resume(store: StateStore, storage: HoldfastCheckpointStorage) -> None:
    """Continue the workflow from its last checkpoint."""
    latest = await storage.get_latest(workflow_name=WORKFLOW)
    assert latest is not None  # noqa: S101
    print(f"   from checkpoint {latest.iteration_count}")
    result = await build(store, storage).run(checkpoint_id=latest.checkpoint_id)
    print(f"   {result.get_outputs()[0]}")


# ---------------------------------------------------------------------------------------- script


async def crash() -> None:
    """Run the workflow until it crashes."""
    async with holdfast.open_state_store("sqlite:///agents.db") as store:
        await build(store, HoldfastCheckpointStorage(store)).run(0)


async def demonstrate(script: str) -> None:
    """Crash a workflow, and continue from what it committed."""
    print("1. A workflow asks an agent, and its process crashes:", flush=True)
    ended = subprocess.run([sys.executable, script, "crash"], check=False)  # noqa: ASYNC221, S603
    print(f"   exit code {ended.returncode}")

    async with holdfast.open_state_store("sqlite:///agents.db") as store:
        storage = HoldfastCheckpointStorage(store)
        print("2. A new process resumes:")
        await resume(store, storage)

        ids = await storage.list_checkpoint_ids(workflow_name=WORKFLOW)
        session = await holdfast.Session.open(store, agent_id=AGENT, session_id=WORKFLOW)
        await session.restore(ids[1])
        latest = await storage.get_latest(workflow_name=WORKFLOW)
        print(f"3. It is rolled back to the first day: {list(session.state)}")
        assert latest is not None  # noqa: S101

        await session.fork("what-if", at=ids[2])
        print("4. A fork of the second day continues:")
        await resume(store, HoldfastCheckpointStorage(store, session_id="what-if"))

        document = await session.export(tags={"reason": "example"})
        manager = holdfast.SnapshotManager(store)
        manager.to_file(document, "booking.json")
        print("5. The session is exported to booking.json")

    async with holdfast.open_state_store("sqlite:///staging.db") as staging:
        manager = holdfast.SnapshotManager(staging)
        await manager.import_session(manager.from_file("booking.json"))
        print("6. Another store imports it and continues:")
        copies = HoldfastCheckpointStorage(staging)
        await resume(staging, copies)
        session = await holdfast.Session.open(staging, agent_id=AGENT, session_id=WORKFLOW)
        diff = session.snapshot().diff(document.snapshot)

    print("7. Compared with the file, these values are new:")
    for space, key in diff["added"]:
        if space == "state":
            print(f"   {space}/{key}")

    print("8. The viewer shows it:", flush=True)
    show_in_viewer("sqlite:///agents.db", "waiter", "table-7")


if __name__ == "__main__":
    # It warns that this workflow has a loop, and that the client calls no functions.
    logging.getLogger("agent_framework").setLevel(logging.ERROR)
    if sys.argv[1:] == ["crash"]:
        asyncio.run(crash())
    else:
        SCRIPT = str(Path(__file__).absolute())
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            asyncio.run(demonstrate(SCRIPT))
