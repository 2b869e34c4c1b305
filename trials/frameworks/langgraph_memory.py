"""LangGraph with ``HoldfastStore``: a graph drafts, learns and cleans up five topics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from langgraph.config import get_store
from langgraph.graph import START, StateGraph
from langgraph.store.base import PutOp

from holdfast.adapters.langgraph import HoldfastStore
from trials.frameworks.scenario import note_acknowledged, note_step, read_acknowledged

TOPICS = [f"topic {number}" for number in range(5)]
STEPS = 3 * len(TOPICS)
DRAFTS, FACTS = ("notes", "drafts"), ("notes", "facts")


class Topic(TypedDict):
    """The state of the graph."""

    topic: str


def build_graph(memory: HoldfastStore, folder: Path) -> Any:
    """Return a graph of three nodes that use the memory."""

    async def draft(state: Topic) -> None:
        note_step(folder)
        topic = state["topic"]
        known = await get_store().asearch(("notes",), query=topic)
        await get_store().aput(DRAFTS, topic, {"text": topic, "known": len(known)})

    async def learn(state: Topic) -> None:
        note_step(folder)
        topic = state["topic"]
        await get_store().abatch(
            [
                PutOp(FACTS, topic, {"text": fact_of(topic)}),
                PutOp(FACTS, f"source of {topic}", {"text": topic}, index=False),
            ]
        )
        note_acknowledged(folder, topic)

    async def clean_up(state: Topic) -> None:
        note_step(folder)
        await get_store().adelete(DRAFTS, state["topic"])

    builder = StateGraph(Topic)
    before = START
    for node in (draft, learn, clean_up):
        builder.add_node(node.__name__, node)
        builder.add_edge(before, node.__name__)
        before = node.__name__
    return builder.compile(store=memory)


async def run(url: str, folder: Path) -> None:
    """Run the graph for the topics that are not learned, or whose draft is still there."""
    async with open_memory(url) as memory:
        graph = build_graph(memory, folder)
        for topic in TOPICS:
            is_learned = await memory.aget(FACTS, topic) is not None
            if not is_learned or await memory.aget(DRAFTS, topic) is not None:
                await graph.ainvoke({"topic": topic})


async def check(url: str, folder: Path) -> list[str]:
    """Check that each topic was learned with its source, and that no draft is left."""
    problems = []
    async with open_memory(url) as memory:
        found = {each.key: each.value["text"] for each in await memory.asearch((), limit=100)}
        problems += [
            f"{each!r} was lost" for each in read_acknowledged(folder) if each not in found
        ]
        expected = {topic: fact_of(topic) for topic in TOPICS}
        expected |= {f"source of {topic}": topic for topic in TOPICS}
        if found != expected:
            problems.append(f"the memories are {found}")
        if await memory.alist_namespaces() != [FACTS]:
            problems.append(f"the namespaces are {await memory.alist_namespaces()}")
        for topic in TOPICS:
            best = await memory.asearch(FACTS, query=fact_of(topic), limit=1)
            if [each.key for each in best] != [topic]:
                problems.append(f"a search for {topic} finds {best}")
            versions = await memory.ahistory(FACTS, topic)
            sources = await memory.ahistory(FACTS, f"source of {topic}")
            if [each.seq + 1 for each in versions] != [each.seq for each in sources]:
                problems.append(f"{topic} was stored without its source: {versions} {sources}")
    return problems


def open_memory(url: str) -> HoldfastStore:
    """Return the memory, with an index."""
    return HoldfastStore.from_url(url, index={"dims": 10, "embed": embed, "fields": ["text"]})


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Embed texts as the counts of their digits."""
    return [[float(text.count(str(digit))) for digit in range(10)] for text in texts]


def fact_of(topic: str) -> str:
    """Return what the graph learns about a topic."""
    return f"all about {topic}"
