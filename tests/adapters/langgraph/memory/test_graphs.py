"""A graph that uses the memory, with a scripted model."""

from __future__ import annotations

from dataclasses import dataclass

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langgraph.config import get_store
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.runtime import Runtime

from adapters.langgraph.graphs import at
from adapters.langgraph.memory.embedding import LetterCounts
from holdfast import open_state_store
from holdfast.adapters.langgraph import HoldfastSaver, HoldfastStore
from support.async_tests import async_test


@dataclass
class Context:
    """Who is talking."""

    user: str


def recall(state, runtime: Runtime[Context]):
    """Answer with what is known that fits the last message."""
    words = state["messages"][-1].content
    known = runtime.store.search(("users", runtime.context.user), query=words, limit=1)
    model = GenericFakeChatModel(
        messages=iter([AIMessage(known[0].value["text"] if known else "nothing")])
    )
    return {"messages": [model.invoke(state["messages"])]}


def remember(state, runtime: Runtime[Context]):
    """Store the user's message."""
    words = state["messages"][-2].content
    get_store().put(("users", runtime.context.user), words, {"text": words})
    return {}


def build_graph(memory, saver=None):
    builder = StateGraph(MessagesState, context_schema=Context)
    builder.add_node(recall)
    builder.add_node(remember)
    builder.add_edge(START, "recall")
    builder.add_edge("recall", "remember")
    return builder.compile(checkpointer=saver, store=memory)


def answers(words):
    return {"messages": [("user", words)]}


def new_memory():
    return HoldfastStore(open_state_store("memory:"), index={"dims": 8, "embed": LetterCounts()})


def test_threads_share_the_memory_of_a_user():
    with new_memory() as memory:
        graph = build_graph(memory, HoldfastSaver(memory.state_store))

        def ask(thread, user, words):
            found = graph.invoke(answers(words), at(thread), context=Context(user))
            return found["messages"][-1].content

        assert ask("t1", "ann", "aaa") == "nothing"
        assert ask("t1", "ann", "bbb") == "aaa"
        assert ask("t2", "ann", "ab b") == "bbb"
        assert ask("t3", "ben", "aaa") == "nothing"
        assert memory.list_namespaces() == [("users", "ann"), ("users", "ben")]


@async_test
async def test_an_async_graph_uses_the_memory():
    async with new_memory() as memory:
        graph = build_graph(memory)
        for expected in ("nothing", "aaa"):
            found = await graph.ainvoke(answers("aaa"), context=Context("ann"))
            assert found["messages"][-1].content == expected
        item = await memory.aget(("users", "ann"), "aaa")
        assert item.created_at < item.updated_at
