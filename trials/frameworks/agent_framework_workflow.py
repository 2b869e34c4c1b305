"""The Microsoft Agent Framework: a workflow of twelve steps, and the agent that reports each."""

from __future__ import annotations

import logging
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

from holdfast import open_state_store
from holdfast.adapters.agent_framework import HoldfastCheckpointStorage, HoldfastHistoryProvider
from holdfast.stores.base import StateStore
from trials.frameworks.scenario import note_acknowledged, note_step, read_acknowledged

SUPERSTEPS = 12
STEPS = 2 * SUPERSTEPS
NAME = "counting"
SESSION = "reports"

logging.getLogger("agent_framework").setLevel(logging.ERROR)


class ScriptedClient(BaseChatClient):
    """A model that confirms what it is told."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def _inner_get_response(self, *, messages: Any, **_: Any) -> Any:
        async def answer() -> ChatResponse[Any]:
            note_step(self.folder)
            return ChatResponse(messages=[Message("assistant", [f"noted: {messages[-1].text}"])])

        return answer()


class Counter(Executor):
    """Counts up, one superstep per number, and tells the agent."""

    def __init__(self, folder: Path, store: StateStore) -> None:
        super().__init__(id="counter")
        self.folder = folder
        self.history = HoldfastHistoryProvider(store)
        self.agent = Agent(client=ScriptedClient(folder), context_providers=[self.history])
        self.seen: list[int] = []

    @handler
    async def count(self, number: int, ctx: WorkflowContext[int, str]) -> None:
        """Count one number."""
        note_step(self.folder)
        self.seen.append(number)
        known = [each.text for each in await self.history.get_messages(SESSION)]
        if f"noted: step {number}" not in known:
            await self.agent.run(f"step {number}", session=AgentSession(session_id=SESSION))
            note_acknowledged(self.folder, f"noted: step {number}")
        ctx.set_state("last", number)
        if number + 1 < SUPERSTEPS:
            await ctx.send_message(number + 1, target_id=self.id)
        else:
            await ctx.yield_output("done")

    async def on_checkpoint_save(self) -> dict[str, Any]:
        """Return the numbers so far."""
        return {"seen": self.seen}

    async def on_checkpoint_restore(self, state: dict[str, Any]) -> None:
        """Continue with these numbers."""
        self.seen = state["seen"]


def build(store: StateStore, folder: Path) -> tuple[Workflow, HoldfastCheckpointStorage]:
    """Return the workflow, and the storage of its checkpoints."""
    storage = HoldfastCheckpointStorage(store)
    node = Counter(folder, store)
    builder = WorkflowBuilder(start_executor=node, checkpoint_storage=storage, name=NAME)
    return builder.add_edge(node, node).build(), storage


async def run(url: str, folder: Path) -> None:
    """Count to the end, from the last checkpoint if there is one."""
    async with open_state_store(url) as store:
        workflow, storage = build(store, folder)
        latest = await storage.get_latest(workflow_name=NAME)
        if latest is None:
            await workflow.run(0)
        elif latest.messages:  # otherwise it has ended
            await workflow.run(checkpoint_id=latest.checkpoint_id)


async def check(url: str, folder: Path) -> list[str]:
    """Check that every step was counted once in the state, and reported once."""
    problems = []
    async with open_state_store(url) as store:
        storage = HoldfastCheckpointStorage(store)
        checkpoints = await storage.list_checkpoints(workflow_name=NAME)
        messages = await HoldfastHistoryProvider(store).get_messages(SESSION)
    last = checkpoints[-1]
    seen = last.state["_executor_state"]["counter"]["seen"]
    if seen != list(range(SUPERSTEPS)) or last.state["last"] != SUPERSTEPS - 1:
        problems.append(f"the workflow counted {seen}, the state is {last.state['last']}")
    for each in checkpoints:
        numbers = each.state["_executor_state"]["counter"]["seen"]
        if numbers != list(range(len(numbers))):
            problems.append(f"checkpoint {each.iteration_count} has {numbers}")
    answers = [each.text for each in messages if each.role == "assistant"]
    if answers != [f"noted: step {number}" for number in range(SUPERSTEPS)]:
        problems.append(f"the answers are {answers}")
    problems += [f"{each!r} was lost" for each in read_acknowledged(folder) if each not in answers]
    return problems
