"""A LangGraph agent that crashes and goes on, is taken back, forked, moved and compared.

Its model is scripted, so this needs no network. Run: python examples/langgraph_agent.py
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

import holdfast
from holdfast.adapters.langgraph import HoldfastSaver

FREE = {"monday": 2, "friday": 0, "sunday": 5}
HERE = "sqlite:///agents.db"


def model(state: MessagesState) -> dict[str, list[BaseMessage]]:
    """What a model would say: it looks the day up, then answers."""
    last = state["messages"][-1]
    if isinstance(last, ToolMessage):
        return {"messages": [AIMessage(f"There are {last.content} free tables.")]}
    call = {"name": "tables", "args": {"day": str(last.content)}, "id": f"call-{last.id}"}
    return {"messages": [AIMessage("", tool_calls=[call])]}


def tool(state: MessagesState) -> dict[str, list[BaseMessage]]:
    """Looks into the book."""
    call = asked(state)[0]
    day = call["args"]["day"]
    if day == "friday" and "--crash" in sys.argv:
        os._exit(137)  # no farewell: no finally, no flush
    return {"messages": [ToolMessage(str(FREE[day]), tool_call_id=call["id"])]}


def asked(state: MessagesState) -> list[Any]:
    """The tool calls of the last message."""
    last = state["messages"][-1]
    return last.tool_calls if isinstance(last, AIMessage) else []


def agent(saver: HoldfastSaver) -> Any:
    """A graph of the two."""
    builder = StateGraph(MessagesState)
    builder.add_node("model", model)
    builder.add_node("tool", tool)
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", lambda state: "tool" if asked(state) else END)
    builder.add_edge("tool", "model")
    return builder.compile(checkpointer=saver)


def thread(thread_id: str) -> RunnableConfig:
    """The config of a thread."""
    return {"configurable": {"thread_id": thread_id}}


def say(graph: Any, thread_id: str, words: str | None) -> None:
    """One turn, printed; without words the thread goes on where it stopped."""
    given = None if words is None else {"messages": [HumanMessage(words)]}
    answer = graph.invoke(given, thread(thread_id), durability="sync")["messages"][-1]
    print(f"  user:  {words or '(goes on)'}\n  agent: {answer.content}")


def talk() -> None:
    """The process that dies in its second turn."""
    with HoldfastSaver.from_url(HERE) as saver:
        graph = agent(saver)
        say(graph, "table-7", "monday")
        say(graph, "table-7", "friday")


def opened(url: str, session_id: str) -> holdfast.BlockingSession:
    """A thread as the session that it is."""
    return holdfast.BlockingSession.open(
        url, agent_id="langgraph", session_id=session_id, must_exist=True
    )


def fork_and_take_back() -> None:
    """Make a second thread of how it is now, and go back to the end of the first turn."""
    with opened(HERE, "table-7") as session:
        session.fork("what-if")
    asyncio.run(take_back())


async def take_back() -> None:
    """Each checkpoint is a snapshot: restore the last one of the first turn."""
    async with holdfast.open_state_store(HERE) as store:
        session = await holdfast.Session.open(store, agent_id="langgraph", session_id="table-7")
        saved = await session.archive.list_snapshots(location=session.location)
        first_turn = next(each for each in saved.snapshots if each.message_count == 4)
        await session.restore(first_turn.snapshot_id)


async def move(target: str) -> None:
    """The fork as a file, and the file as a thread of another store."""
    async with holdfast.open_state_store(HERE) as store:
        manager = holdfast.SnapshotManager(store)
        session = await holdfast.Session.open(store, agent_id="langgraph", session_id="what-if")
        manager.to_file(await session.export(), "what-if.json")
    async with holdfast.open_state_store(target) as other:
        manager = holdfast.SnapshotManager(other)
        imported = await manager.import_session(manager.from_file("what-if.json"))
    print(f"  what-if.json is the session {imported.session_id} there")


def compare() -> None:
    """What is in the fork and not in the thread, and the other way round."""
    with opened(HERE, "table-7") as one, opened(HERE, "what-if") as other:
        found = other.snapshot().diff(one.snapshot())
        for how in ("added", "removed", "changed"):
            numbers = [int(key) for space, key in found[how] if space == "messages"]
            print(f"  messages {how} in the fork: {numbers}")
        if not (one.verify().ok and other.verify().ok):
            raise SystemExit("something stored is damaged")


def main() -> None:
    """The whole story."""
    print("An agent talks, and its process dies in the middle of a tool:", flush=True)
    died = subprocess.run([sys.executable, __file__, "--crash"], check=False)  # noqa: S603
    print(f"  (it ended with {died.returncode})\n")
    assert died.returncode == 137  # noqa: S101

    with HoldfastSaver.from_url(HERE) as saver:
        graph = agent(saver)
        print(f"A new process finds the thread before {graph.get_state(thread('table-7')).next}:")
        say(graph, "table-7", None)

        print("\nIt is forked as it is now, and taken back to its first turn. The thread goes on:")
        fork_and_take_back()
        say(graph, "table-7", "sunday")
        print("The fork goes on from its own end:")
        say(graph, "what-if", "monday")

    print("\nThe fork moves to another store:")
    target = f"file://{Path.cwd()}/elsewhere"
    asyncio.run(move(target))
    with HoldfastSaver.from_url(target) as saver:
        say(agent(saver), "what-if", "sunday")

    print("\nThe two differ in:")
    compare()


if __name__ == "__main__":
    if "--crash" in sys.argv:
        talk()
    else:
        with tempfile.TemporaryDirectory() as folder, chdir(folder):
            main()
