"""The OpenAI Agents SDK: five questions, each answered with a tool."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool, set_tracing_disabled
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from holdfast import open_state_store
from holdfast.adapters.openai_agents import HoldfastSession
from trials.frameworks.scenario import note_acknowledged, note_step, read_acknowledged

QUESTIONS = [f"question {number}" for number in range(5)]
STEPS = 3 * len(QUESTIONS)

set_tracing_disabled(disabled=True)


class ScriptedModel(Model):
    """A model that calls the tool for a question, and then answers with its result."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def get_response(self, *given: Any, **named: Any) -> ModelResponse:
        """Answer the last item."""
        note_step(self.folder)
        items = named["input"] if "input" in named else given[1]
        last = items[-1]
        if last.get("role") == "user":
            call = ResponseFunctionToolCall(
                type="function_call",
                name="look_up",
                call_id=f"call_{len(items)}",
                arguments=f'{{"question": "{last["content"]}"}}',
            )
            return ModelResponse(output=[call], usage=Usage(), response_id=None)
        text = ResponseOutputText(type="output_text", text=last["output"], annotations=[])
        message = ResponseOutputMessage(
            id="msg", type="message", role="assistant", status="completed", content=[text]
        )
        return ModelResponse(output=[message], usage=Usage(), response_id=None)

    def stream_response(self, *given: Any, **named: Any) -> AsyncIterator[Any]:
        """Not needed here."""
        raise NotImplementedError("this agent does not stream")


async def run(url: str, folder: Path) -> None:
    """Ask the questions that have no answer yet."""

    @function_tool
    def look_up(question: str) -> str:
        note_step(folder)
        return f"the answer to {question}"

    agent = Agent(name="agent", model=ScriptedModel(folder), tools=[look_up])
    async with open_state_store(url) as store:
        session = HoldfastSession("ses_1", store)
        for question in QUESTIONS:
            if answer_to(question) not in find_answers(await session.get_items()):
                await Runner.run(agent, question, session=session)
                note_acknowledged(folder, answer_to(question))


async def check(url: str, folder: Path) -> list[str]:
    """Check that each question is answered once, and that calls and results pair up."""
    async with open_state_store(url) as store:
        items: list[Any] = list(await HoldfastSession("ses_1", store).get_items())
    answers = find_answers(items)
    problems = [
        f"{answer!r} was lost" for answer in read_acknowledged(folder) if answer not in answers
    ]
    if answers != [answer_to(question) for question in QUESTIONS]:
        problems.append(f"the answers are {answers}")
    calls = [each["call_id"] for each in items if each.get("type") == "function_call"]
    results = [each["call_id"] for each in items if each.get("type") == "function_call_output"]
    if calls != results:
        problems.append(f"calls {calls} have the results {results}")
    return problems


def answer_to(question: str) -> str:
    """Return the answer to a question."""
    return f"the answer to {question}"


def find_answers(items: list[Any]) -> list[str]:
    """Return the texts of the assistant's messages."""
    return [each["content"][0]["text"] for each in items if each.get("role") == "assistant"]
