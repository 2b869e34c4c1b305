"""LangGraph with ``HoldfastSaver``: five questions, each answered with a tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import END, START, MessagesState, StateGraph

from holdfast.adapters.langgraph import HoldfastSaver
from trials.frameworks.scenario import note_acknowledged, note_step, read_acknowledged

QUESTIONS = [f"question {number}" for number in range(5)]
STEPS = 3 * len(QUESTIONS)
THREAD: RunnableConfig = {"configurable": {"thread_id": "ses_1"}}


def build_graph(saver: HoldfastSaver, folder: Path) -> Any:
    """Return a graph of a scripted model and a tool."""

    def model(state: MessagesState) -> dict[str, list[BaseMessage]]:
        note_step(folder)
        last = state["messages"][-1]
        if isinstance(last, ToolMessage):
            return {"messages": [AIMessage(last.content)]}
        call = {"name": "look_up", "args": {"question": last.content}, "id": f"call {last.content}"}
        return {"messages": [AIMessage("", tool_calls=[call])]}

    def look_up(state: MessagesState) -> dict[str, list[BaseMessage]]:
        note_step(folder)
        call = find_calls(state["messages"][-1])[0]
        answer = answer_to(call["args"]["question"])
        return {"messages": [ToolMessage(answer, tool_call_id=call["id"])]}

    builder = StateGraph(MessagesState)
    builder.add_node(model)
    builder.add_node(look_up)
    builder.add_edge(START, "model")
    builder.add_conditional_edges(
        "model", lambda state: "look_up" if find_calls(state["messages"][-1]) else END
    )
    builder.add_edge("look_up", "model")
    return builder.compile(checkpointer=saver)


async def run(url: str, folder: Path) -> None:
    """Resume the thread, and ask the questions that are not in it yet."""
    async with HoldfastSaver.from_url(url) as saver:
        graph = build_graph(saver, folder)
        state = await graph.aget_state(THREAD)
        if state.metadata is not None:  # next is empty too when only the checkpoint is missing
            await graph.ainvoke(None, THREAD, durability="sync")
            state = await graph.aget_state(THREAD)
        asked = [each.content for each in state.values.get("messages", []) if is_question(each)]
        for question in QUESTIONS:
            if question not in asked:
                turn = {"messages": [HumanMessage(question)]}
                await graph.ainvoke(turn, THREAD, durability="sync")
                note_acknowledged(folder, answer_to(question))


async def check(url: str, folder: Path) -> list[str]:
    """Check that each question was asked and answered once, with one call of the tool."""
    async with HoldfastSaver.from_url(url) as saver:
        state = await build_graph(saver, folder).aget_state(THREAD)
    messages = state.values["messages"]
    found = [each.content for each in messages]
    expected = [
        text
        for question in QUESTIONS
        for text in (question, "", answer_to(question), answer_to(question))
    ]
    problems = [f"{each!r} was lost" for each in read_acknowledged(folder) if each not in found]
    if found != expected:
        problems.append(f"the messages are {found}")
    calls = [call["id"] for each in messages for call in find_calls(each)]
    results = [each.tool_call_id for each in messages if isinstance(each, ToolMessage)]
    if calls != results:
        problems.append(f"calls {calls} have the results {results}")
    return problems


def find_calls(message: BaseMessage) -> list[Any]:
    """Return the tool calls of a message."""
    return message.tool_calls if isinstance(message, AIMessage) else []


def is_question(message: BaseMessage) -> bool:
    """Tell whether a message is the user's."""
    return isinstance(message, HumanMessage)


def answer_to(question: str) -> str:
    """Return the answer to a question."""
    return f"the answer to {question}"
