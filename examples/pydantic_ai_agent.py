"""An agent of Pydantic AI whose conversations are in Holdfast.

It crashes while a tool runs, resumes in a new process, meets another process that saved first, and
is rolled back, branched, forked, exported, imported into another store, compared and shown in the
viewer. The model is scripted: no network or API key is needed.
Run: pip install 'holdfast[pydantic-ai]', then python examples/pydantic_ai_agent.py
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from viewer_step import show_in_viewer

import holdfast
from holdfast.adapters.pydantic_ai import HoldfastConversationStore

AGENT = "waiter"
CONVERSATION = "table_7"


# ----------------------------------------------------------------------------------------- agent


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:  # noqa: ARG001
    """Look for a table, and report the result."""
    last = messages[-1].parts[-1]
    if isinstance(last, UserPromptPart) and "table" in str(last.content):
        return ModelResponse(parts=[ToolCallPart("free_tables", {"day": "monday"})])
    if isinstance(last, ToolReturnPart):
        return ModelResponse(parts=[TextPart(f"There are {last.content}")])
    return ModelResponse(parts=[TextPart("You are welcome")])


agent = Agent(FunctionModel(answer))


@agent.tool_plain
def free_tables(day: str) -> str:
    """Look for free tables."""
    if "crash" in sys.argv:
        os._exit(137)  # the process dies while the tool runs
    return f"two tables on {day}"


async def ask(
    store: HoldfastConversationStore, words: str, conversation_id: str = CONVERSATION
) -> None:
    """Run one turn of a conversation."""
    conversation = await store.load(conversation_id)
    conversation = conversation or Conversation(conversation_id=conversation_id)
    print(f"   user: {words}", flush=True)
    result = await agent.run(words, conversation=conversation)
    await store.save(result, scope="guest")
    print(f"   {AGENT}: {result.output}", flush=True)


async def count_messages(store: HoldfastConversationStore) -> int:
    """Return the length of the conversation."""
    return len(await store.load_entries(CONVERSATION) or ())


def open_store(url: str) -> HoldfastConversationStore:
    """Open a store of conversations."""
    return HoldfastConversationStore.from_url(url, agent_id=AGENT)


# ---------------------------------------------------------------------------------------- script


async def crash() -> None:
    """Run the agent until it crashes."""
    async with open_store("sqlite:///agents.db") as store:
        await ask(store, "Thank you for having me")
        await ask(store, "Is there a table?")


async def say_more() -> None:
    """Run one turn in another process."""
    async with open_store("sqlite:///agents.db") as store:
        await ask(store, "I am here too")


async def demonstrate(script: str) -> None:
    """Crash an agent, and continue from what it saved."""
    print("1. An agent talks, and its process crashes while a tool runs:", flush=True)
    ended = subprocess.run([sys.executable, script, "crash"], check=False)  # noqa: ASYNC221, S603
    print(f"   exit code {ended.returncode}")

    async with open_store("sqlite:///agents.db") as store:
        print(f"2. A new process finds {await count_messages(store)} messages and continues:")
        await ask(store, "Once more: is there a table?")

        print("3. Two processes continue the same revision:", flush=True)
        conversation = await store.load(CONVERSATION)
        subprocess.run([sys.executable, script, "more"], check=True)  # noqa: ASYNC221, S603
        result = await agent.run("Good evening", conversation=conversation)
        try:
            await store.save(result)
        except ConversationConflict as error:
            print(f"   refused: {error}")
        await ask(store, "Good evening")  # loads what the other process saved

        session = await holdfast.Session.open(
            store.state_store, agent_id=AGENT, session_id=CONVERSATION
        )
        good = await session.save(tags={"reason": "before the mistake"})
        await ask(store, "Then cancel everything")
        await session.refresh()
        await session.restore(good.snapshot_id)
        print(f"4. A mistake is rolled back: {await count_messages(store)} messages again")

        fork = await store.fork(CONVERSATION, at=2, new_conversation_id="what_if")
        print(f"5. A fork of the first {len(fork.messages)} messages continues differently:")
        await ask(store, "Good bye", "what_if")

        document = await session.export(tags={"reason": "example"})
        manager = holdfast.SnapshotManager(store.state_store)
        manager.to_file(document, "table_7.json")
        print("6. The conversation is exported to table_7.json")

    async with open_store("sqlite:///staging.db") as staging:
        manager = holdfast.SnapshotManager(staging.state_store)
        imported = await manager.import_session(manager.from_file("table_7.json"))
        print(f"7. Another store imports {imported.messages_restored} messages and continues:")
        await ask(staging, "Thanks")
        copy = await manager.export_session(agent_id=AGENT, session_id=CONVERSATION)
        diff = copy.snapshot.diff(document.snapshot)

    print("8. Compared with the file, these are new:")
    for space, key in diff["added"]:
        if space == "messages":
            print(f"   {space}/{key}")

    print("9. The viewer shows it:", flush=True)
    show_in_viewer("sqlite:///agents.db", AGENT, CONVERSATION)


if __name__ == "__main__":
    if sys.argv[1:] == ["crash"]:
        asyncio.run(crash())
    elif sys.argv[1:] == ["more"]:
        asyncio.run(say_more())
    else:
        SCRIPT = str(Path(__file__).absolute())
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            asyncio.run(demonstrate(SCRIPT))
