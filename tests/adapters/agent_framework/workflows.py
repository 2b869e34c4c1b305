"""Workflows, a scripted chat client, and checkpoints in a form that can be compared."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from agent_framework import (
    Agent,
    AgentExecutor,
    BaseChatClient,
    ChatResponse,
    Content,
    Executor,
    Message,
    WorkflowBuilder,
    WorkflowContext,
    handler,
    response_handler,
)


@dataclass
class Order:
    """A question to a person."""

    item: str
    guests: int = 2


class Parrot(BaseChatClient):
    """A model that counts the messages it gets."""

    def _inner_get_response(self, *, messages, stream, options, **more):
        async def answer():
            return ChatResponse(messages=[Message("assistant", [f"{len(messages)} messages"])])

        return answer()


class Count(Executor):
    """Counts down, one superstep per number, and keeps notes."""

    def __init__(self):
        super().__init__(id="count")
        self.seen = []

    @handler
    async def count(self, number: int, ctx: WorkflowContext[int, str]) -> None:
        self.seen.append(number)
        ctx.set_state("last", number)
        if number:
            await ctx.send_message(number - 1, target_id=self.id)
        else:
            await ctx.yield_output(f"seen {self.seen}")

    async def on_checkpoint_save(self):
        return {"seen": self.seen}

    async def on_checkpoint_restore(self, state):
        self.seen = state["seen"]


class Asker(Executor):
    """Asks a person before it answers."""

    @handler
    async def ask(self, item: str, ctx: WorkflowContext[str, str]) -> None:
        await ctx.request_info(request_data=Order(item), response_type=bool)

    @response_handler
    async def answer(self, order: Order, yes: bool, ctx: WorkflowContext[str, str]) -> None:
        await ctx.yield_output(f"{order.item} for {order.guests}: {yes}")


def build_count(storage, name="count-down"):
    node = Count()
    builder = WorkflowBuilder(start_executor=node, checkpoint_storage=storage, name=name)
    return builder.add_edge(node, node).build()


def build_asker(storage):
    node = Asker(id="asker")
    return WorkflowBuilder(start_executor=node, checkpoint_storage=storage, name="ask").build()


def build_agents(storage):
    first, second = (
        AgentExecutor(Agent(client=Parrot(), name=name), id=name) for name in ("writer", "critic")
    )
    builder = WorkflowBuilder(start_executor=first, checkpoint_storage=storage, name="agents")
    return builder.add_edge(first, second).build()


def exact(value):
    """Return a value in a form that compares types and content."""
    if isinstance(value, Message | Content):
        return type(value).__name__, value.to_dict()
    if isinstance(value, dict):
        return type(value).__name__, [(exact(key), exact(each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return type(value).__name__, [exact(each) for each in value]
    if isinstance(value, set | frozenset):
        return type(value).__name__, sorted(map(repr, map(exact, value)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
        return type(value).__name__, exact(fields)
    if type(value).__module__.startswith("agent_framework") and hasattr(value, "__dict__"):
        fields = dict(sorted(vars(value).items()))
        return type(value).__name__, exact({**fields, "raw_representation": None})
    return type(value).__name__, repr(value)
