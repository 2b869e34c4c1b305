"""Write the Strands samples beside this file. Needs strands-agents."""

from __future__ import annotations

import json
from pathlib import Path

from strands import Agent, ToolContext, tool
from strands.models.model import Model
from strands.multiagent import GraphBuilder
from strands.session import SnapshotSessionManager
from strands.storage import LocalFileStorage

STORAGE = LocalFileStorage(str(Path(__file__).parent / "strands"))


class Scripted(Model):
    """A scripted model: a str is an answer, and a pair is a tool call."""

    def __init__(self, *turns):
        self.turns = list(turns)

    def update_config(self, **config):
        pass

    def get_config(self):
        return {}

    async def structured_output(self, *arguments, **options):
        raise NotImplementedError
        yield

    async def stream(self, *arguments, **options):
        turn = self.turns.pop(0)
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(turn, str):
            start, delta, reason = {}, {"text": turn}, "end_turn"
        else:
            start = {"toolUse": {"toolUseId": "call_1", "name": turn[0]}}
            delta, reason = {"toolUse": {"input": json.dumps(turn[1])}}, "tool_use"
        yield {"contentBlockStart": {"start": start}}
        yield {"contentBlockDelta": {"delta": delta}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": reason}}
        usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
        yield {"metadata": {"usage": usage, "metrics": {"latencyMs": 1}}}


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"sun in {city}"


@tool(context=True)
def pay(amount: int, tool_context: ToolContext) -> str:
    """Pay."""
    return "paid " + str(tool_context.interrupt("approve", reason={"amount": amount}))


def agent(name, model, session=None, **options):
    if session is not None:
        options["session_manager"] = SnapshotSessionManager(
            session, storage=STORAGE, snapshot_trigger=lambda **_: session == "trip-1"
        )
    return Agent(agent_id=name, name=name, model=model, callback_handler=None, **options)


def trip():
    turns = (("weather", {"city": "Oslo"}), "It is sunny in Oslo.", "A fine picture.", "Bye.")
    planner = agent(
        "planner", Scripted(*turns), "trip-1", tools=[weather], system_prompt="Plan trips."
    )
    planner("What is the weather in Oslo?")
    planner.state.set("city", "Oslo")
    image = {"image": {"format": "png", "source": {"bytes": b"\x89PNG\r\n"}}}
    planner([{"text": "And this?"}, image])
    planner.state.set("done", True)
    planner("Thanks")


def team():
    graph = GraphBuilder()
    graph.add_node(agent("writer", Scripted("A draft.")), "writer")
    graph.add_node(agent("critic", Scripted("Good.")), "critic")
    graph.add_edge("writer", "critic")
    graph.set_entry_point("writer")
    graph.set_graph_id("newsroom")
    graph.set_session_manager(SnapshotSessionManager("team-1", storage=STORAGE))
    graph.build()("Write")


def order():
    agent("clerk", Scripted(("pay", {"amount": 5}), "Done."), "order-1", tools=[pay])("Pay 5")


if __name__ == "__main__":
    trip()
    team()
    order()
