"""A Strands model with scripted answers, which keeps its inputs."""

from __future__ import annotations

import copy
import json

from strands import Agent, tool
from strands.agent.conversation_manager import NullConversationManager
from strands.models import Model
from strands.session import SnapshotSessionManager


class ScriptedModel(Model):
    """Returns its answers in order: a text, or the name, id and arguments of a tool."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    def update_config(self, **config):
        return

    def get_config(self):
        return {}

    async def structured_output(self, *rest, **more):
        raise NotImplementedError("nothing here has a structure")
        yield

    async def stream(self, messages, *rest, **more):
        self.asked.append(copy.deepcopy(messages))
        answer = self.answers.pop(0)
        yield {"messageStart": {"role": "assistant"}}
        if isinstance(answer, str):
            yield {"contentBlockStart": {"start": {}}}
            yield {"contentBlockDelta": {"delta": {"text": answer}}}
        else:
            name, call_id, arguments = answer
            yield {
                "contentBlockStart": {"start": {"toolUse": {"name": name, "toolUseId": call_id}}}
            }
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": json.dumps(arguments)}}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn" if isinstance(answer, str) else "tool_use"}}


@tool
def tables(day: str) -> str:
    """Free tables."""
    return f"two on {day}"


def make_waiter(storage, *answers, session_id="ses", **options):
    """Return an agent with a session in a storage, or without one."""
    manager = None
    if storage is not None:
        manager = SnapshotSessionManager(session_id, storage=storage, **options)
    return Agent(
        model=ScriptedModel(*answers),
        agent_id="waiter",
        tools=[tables],
        session_manager=manager,
        conversation_manager=NullConversationManager(),
        callback_handler=None,
        system_prompt="You are a waiter",
    )
