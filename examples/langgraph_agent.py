"""A LangGraph agent that crashes, resumes, is restored, forked, exported, compared and viewed.

The model is scripted, so this needs no network. Run: python examples/langgraph_agent.py
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph
from viewer_step import show_in_viewer

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver

FREE_TABLES = {"monday": 2, "friday": 0, "sunday": 5}
STORE = "sqlite:///agents.db"


def model(state: MessagesState) -> dict[str, list[BaseMessage]]:
    """Stand in for a model: call the tool, then answer with its result."""
    last = state["messages"][-1]
    if isinstance(last, ToolMessage):
        return {"messages": [AIMessage(f"There are {last.content} free tables.")]}
    call = {"name": "tables", "args": {"day": str(last.content)}, "id": f"call-{last.id}"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def tool(state: MessagesState) -> dict[str, list[BaseMessage]]:
    """Return the number of free tables, or crash."""
    call = tool_calls(state)[0]
    day = call["args"]["day"]
    if day == "friday" and "--crash" in sys.argv:
        os._exit(137)  # like kill -9: nothing is flushed
    return {"messages": [ToolMessage(str(FREE_TABLES[day]), tool_call_id=call["id"])]}


def tool_calls(state: MessagesState) -> list[Any]:
    """Return the tool calls of the last message."""
    last = state["messages"][-1]
    return last.tool_calls if isinstance(last, AIMessage) else []


def build_agent(saver: HoldfastSaver) -> Any:
    """Return a graph of the model and the tool."""
    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tool", tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", lambda state: "tool" if tool_calls(state) else END)
    builder.add_edge("tool", "model")
    return builder.compile(checkpointer=saver)


def thread(thread_id: str) -> RunnableConfig:
    """Return the config of a thread."""
    return {"configurable": {"thread_id": thread_id}}


def say(graph: Any, thread_id: str, words: str | None) -> None:
    """Run and print one turn; without words, resume where the thread stopped."""
    turn = None if words is None else {"messages": [HumanMessage(words)]}
    answer = graph.invoke(turn, thread(thread_id), durability="sync")["messages"][-1]
    print(f"  user:  {words or '(resume)'}\n  agent: {answer.content}")


def talk() -> None:
    """Run two turns; the process dies in the second."""
    with HoldfastSaver.from_url(STORE) as saver:
        graph = build_agent(saver)
        say(graph, "table-7", "monday")
        say(graph, "table-7", "friday")


def open_session(url: str, session_id: str) -> holdfast.BlockingSession:
    """Open a thread as a session."""
    return holdfast.BlockingSession.open(
        url, agent_id="langgraph", session_id=session_id, must_exist=True
    )


def fork_and_restore() -> None:
    """Fork the thread, then restore it to the end of its first turn."""
    with open_session(STORE, "table-7") as session:
        session.fork("what-if")
    asyncio.run(restore_first_turn())


async def restore_first_turn() -> None:
    """Restore the last snapshot of the first turn: each checkpoint is a snapshot."""
    async with holdfast.open_state_store(STORE) as store:
        session = await holdfast.Session.open(store, agent_id="langgraph", session_id="table-7")
        page = await session.archive.list_snapshots(location=session.location)
        first_turn = next(each for each in page.snapshots if each.message_count == 4)
        await session.restore(first_turn.snapshot_id)


async def export_and_import(target: str) -> None:
    """Export the fork to a file, and import it into another store."""
    async with holdfast.open_state_store(STORE) as store:
        manager = holdfast.SnapshotManager(store)
        session = await holdfast.Session.open(store, agent_id="langgraph", session_id="what-if")
        manager.to_file(await session.export(), "what-if.json")
    async with holdfast.open_state_store(target) as other:
        manager = holdfast.SnapshotManager(other)
        imported = await manager.import_session(manager.from_file("what-if.json"))
    print(f"  imported what-if.json as the session {imported.session_id}")


def compare() -> None:
    """Print the messages that differ between the fork and the thread."""
    with open_session(STORE, "table-7") as one, open_session(STORE, "what-if") as other:
        found = other.snapshot().diff(one.snapshot())
        for how in ("added", "removed", "changed"):
            numbers = [int(key) for space, key in found[how] if space == "messages"]
            print(f"  messages {how} in the fork: {numbers}")
        if not (one.verify().ok and other.verify().ok):
            raise SystemExit("a session is damaged")


def main() -> None:
    """Run the example."""
    print("An agent runs, and its process dies in the middle of a tool:", flush=True)
    died = subprocess.run([sys.executable, __file__, "--crash"], check=False)  # noqa: S603
    print(f"  (exit code {died.returncode})\n")
    assert died.returncode == 137  # noqa: S101

    with HoldfastSaver.from_url(STORE) as saver:
        graph = build_agent(saver)
        print(f"A new process resumes the thread at {graph.get_state(thread('table-7')).next}:")
        say(graph, "table-7", None)

        print("\nThe thread is forked, restored to its first turn, and continues:")
        fork_and_restore()
        say(graph, "table-7", "sunday")
        print("The fork continues from its own end:")
        say(graph, "what-if", "monday")

    print("\nThe fork is imported into another store:")
    target = f"file://{Path.cwd()}/elsewhere"
    asyncio.run(export_and_import(target))
    with HoldfastSaver.from_url(target) as saver:
        say(build_agent(saver), "what-if", "sunday")

    print("\nThe thread and its fork differ in:")
    compare()

    print("\nThe viewer shows the thread:", flush=True)
    show_in_viewer(STORE, "langgraph", "table-7")


if __name__ == "__main__":
    if "--crash" in sys.argv:
        talk()
    else:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            main()
