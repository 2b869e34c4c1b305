"""A LangGraph agent with a long-term memory in Holdfast.

It crashes while a tool runs, remembers in a new process, and its memory is restored, forked,
exported, imported into another store, compared and shown in the viewer. The model is scripted: no
network or API key is needed.
Run: pip install 'holdfast[langgraph]' langgraph, then python examples/langgraph_memory.py
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.config import get_store
from langgraph.graph import START, MessagesState, StateGraph
from viewer_step import show_in_viewer

import holdfast
from holdfast.adapters.langgraph import HoldfastStore

STORE = "sqlite:///agents.db"
GUEST = ("guests", "ann")


# ----------------------------------------------------------------------------------------- agent


async def model(state: MessagesState) -> dict[str, list[BaseMessage]]:
    """Stand in for a model: answer with what is known about the guest."""
    items = await get_store().asearch(GUEST, query=str(state["messages"][-1].content))
    known = ", ".join(f"{item.key}: {item.value['text']}" for item in items)
    return {"messages": [AIMessage(f"I know {known or 'nothing'}")]}


async def remember(state: MessagesState) -> None:
    """Store what a message such as ``drink = tea`` says, or crash."""
    key, _, text = str(state["messages"][-2].content).partition(" = ")
    if key == "table" and "crash" in sys.argv:
        os._exit(137)  # the process dies while the tool runs
    await get_store().aput(GUEST, key, {"text": text})


def embed(texts: list[str]) -> list[list[float]]:
    """Stand in for an embedding model: count letters."""
    return [[float(text.count(letter)) for letter in "abcdefghijklmnopqrst"] for text in texts]


def open_memory(url: str) -> HoldfastStore:
    """Return the memory in a store."""
    return HoldfastStore.from_url(url, index={"dims": 20, "embed": embed, "fields": ["text"]})


async def say(memory: HoldfastStore, words: str) -> None:
    """Run one turn of the agent."""
    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("remember", remember)
    builder.add_edge(START, "model")
    builder.add_edge("model", "remember")
    graph: Any = builder.compile(store=memory)
    print(f"   user: {words}", flush=True)
    result = await graph.ainvoke({"messages": [HumanMessage(words)]})
    print(f"   agent: {result['messages'][-1].content}", flush=True)


# ---------------------------------------------------------------------------------------- script


async def crash() -> None:
    """Run the agent until it crashes."""
    async with open_memory(STORE) as memory:
        await say(memory, "drink = tea")
        await say(memory, "table = by the window")


async def demonstrate(script: str) -> None:
    """Crash an agent, and continue from what it remembers."""
    print("1. An agent learns, and its process crashes while a tool runs:", flush=True)
    ended = subprocess.run([sys.executable, script, "crash"], check=False)  # noqa: ASYNC221, S603
    print(f"   exit code {ended.returncode}")

    async with open_memory(STORE) as memory:
        print("2. A new process remembers, and continues:")
        await say(memory, "table = by the window")

        before = dt.datetime.now(dt.UTC)
        await say(memory, "drink = nothing at all")
        restored = await memory.arestore(GUEST, "drink", before)
        print(f"3. A mistake is undone: {restored and restored.value}")
        for version in await memory.ahistory(GUEST, "drink"):
            print(f"   event {version.seq}, {version.type}: {version.value}")

        location = memory.location(GUEST)
        session = await holdfast.Session.open(
            memory.state_store, agent_id=location.scope_id, session_id=location.session_id
        )
        await session.fork("guests.ben")
        await memory.aput(("guests", "ben"), "drink", {"text": "coffee"})
        print("4. The memory is forked for another guest:")
        for item in await memory.asearch(("guests",), filter={"text": {"$ne": "by the window"}}):
            print(f"   {item.namespace[1]}: {item.value['text']}")

        document = await session.export(tags={"reason": "example"})
        holdfast.SnapshotManager(memory.state_store).to_file(document, "ann.json")
        print("5. The memory is exported to ann.json")

    async with open_memory("sqlite:///staging.db") as staging:
        manager = holdfast.SnapshotManager(staging.state_store)
        await manager.import_session(manager.from_file("ann.json"))
        print("6. Another store imports it, and an agent there continues:")
        await say(staging, "dessert = cake")
        copy = await manager.export_session(
            agent_id=location.scope_id, session_id=location.session_id
        )
        diff = copy.snapshot.diff(document.snapshot)

    print("7. Compared with the file, these are new:")
    for space, key in diff["added"]:
        print(f"   {space}/{key}")

    print("8. The viewer shows it:", flush=True)
    show_in_viewer(STORE, location.scope_id, location.session_id)


if __name__ == "__main__":
    if sys.argv[1:] == ["crash"]:
        asyncio.run(crash())
    else:
        SCRIPT = str(Path(__file__).absolute())
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            asyncio.run(demonstrate(SCRIPT))
