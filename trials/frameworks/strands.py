"""Strands: five questions, each answered with a tool."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterable
from pathlib import Path
from typing import Any

from strands import Agent, tool
from strands.models import Model
from strands.session import SnapshotSessionManager
from strands.types.content import Messages
from strands.types.streaming import StreamEvent

from holdfast import StateStore, open_state_store
from holdfast.adapters.strands import HoldfastStorage
from trials.frameworks.scenario import note_acknowledged, note_step, read_acknowledged

QUESTIONS = [f"question {number}" for number in range(5)]
STEPS = 3 * len(QUESTIONS)


class ScriptedModel(Model):
    """A model that calls the tool for a question, and then answers with its result."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def update_config(self, **model_config: Any) -> None:
        """There is nothing to configure."""

    def get_config(self) -> dict[str, Any]:
        """There is nothing to configure."""
        return {}

    def structured_output(self, *rest: Any, **more: Any) -> AsyncGenerator[dict[str, Any], None]:
        """Not needed here."""
        raise NotImplementedError("this model returns text")

    async def stream(
        self,
        messages: Messages,
        *rest: Any,  # noqa: ARG002
        **more: Any,  # noqa: ARG002
    ) -> AsyncIterable[StreamEvent]:
        """Answer the last message."""
        note_step(self.folder)
        last = messages[-1]["content"][-1]
        yield {"messageStart": {"role": "assistant"}}
        if "text" in last:
            call = {"name": "look_up", "toolUseId": f"call_{len(messages)}"}
            yield {"contentBlockStart": {"start": {"toolUse": call}}}  # type: ignore[typeddict-item]
            arguments = json.dumps({"question": last["text"]})
            yield {"contentBlockDelta": {"delta": {"toolUse": {"input": arguments}}}}
            yield {"contentBlockStop": {}}
            yield {"messageStop": {"stopReason": "tool_use"}}
            return
        yield {"contentBlockStart": {"start": {}}}
        yield {"contentBlockDelta": {"delta": {"text": last["toolResult"]["content"][0]["text"]}}}
        yield {"contentBlockStop": {}}
        yield {"messageStop": {"stopReason": "end_turn"}}


def open_agent(store: StateStore, folder: Path) -> Agent:
    """Return the agent of the session, at its latest snapshot."""

    @tool
    def look_up(question: str) -> str:
        """Look up an answer."""
        note_step(folder)
        return answer_to(question)

    manager = SnapshotSessionManager(
        "ses_1", storage=HoldfastStorage(store), save_latest_on="message"
    )
    return Agent(
        model=ScriptedModel(folder),
        agent_id="agent",
        tools=[look_up],
        session_manager=manager,
        callback_handler=None,
    )


async def run(url: str, folder: Path) -> None:
    """Ask the questions that have no answer yet."""
    async with open_state_store(url) as store:
        agent = open_agent(store, folder)
        for question in QUESTIONS:
            if answer_to(question) not in find_answers(agent.messages):
                await agent.invoke_async(question)
                note_acknowledged(folder, answer_to(question))


async def check(url: str, folder: Path) -> list[str]:
    """Check that each question is answered once, and that calls and results pair up."""
    async with open_state_store(url) as store:
        messages = open_agent(store, folder).messages
    answers = find_answers(messages)
    problems = [
        f"{answer!r} was lost" for answer in read_acknowledged(folder) if answer not in answers
    ]
    if answers != [answer_to(question) for question in QUESTIONS]:
        problems.append(f"the answers are {answers}")
    blocks: list[Any] = [block for message in messages for block in message["content"]]
    calls = [each["toolUse"]["toolUseId"] for each in blocks if "toolUse" in each]
    results = [each["toolResult"]["toolUseId"] for each in blocks if "toolResult" in each]
    if calls != results:
        problems.append(f"calls {calls} have the results {results}")
    return problems


def answer_to(question: str) -> str:
    """Return the answer to a question."""
    return f"the answer to {question}"


def find_answers(messages: Messages) -> list[str]:
    """Return the texts of the assistant's messages."""
    return [
        block["text"]
        for message in messages
        if message["role"] == "assistant"
        for block in message["content"]
        if "text" in block
    ]
