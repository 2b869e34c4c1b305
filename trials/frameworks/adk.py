"""Google ADK: five questions, each answered with a tool that also changes the user's state."""

from __future__ import annotations

import asyncio
import logging
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import BaseLlm, LlmRequest, LlmResponse
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService, Session
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from holdfast.adapters.adk import HoldfastSessionService
from trials.frameworks.scenario import note_acknowledged, note_step, read_acknowledged

QUESTIONS = [f"question {number}" for number in range(5)]
STEPS = 3 * len(QUESTIONS)
IDS = {"app_name": "app", "user_id": "user", "session_id": "ses_1"}

logging.getLogger("google_adk").setLevel(logging.ERROR)


class ScriptedModel(BaseLlm):
    """A model that calls the tool for a question, and then answers with its result."""

    folder: Path

    async def generate_content_async(
        self,
        llm_request: LlmRequest,
        stream: bool = False,  # noqa: ARG002 - ADK's signature
    ) -> AsyncGenerator[LlmResponse, None]:
        """Answer the last message."""
        note_step(self.folder)
        last = llm_request.contents[-1].parts[-1]
        if last.function_response is not None:
            part = types.Part(text=last.function_response.response["result"])
        else:
            call = types.FunctionCall(name="look_up", args={"question": last.text})
            part = types.Part(function_call=call)
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


async def run(url: str, folder: Path) -> None:
    """Ask the questions that have no answer yet."""
    async with HoldfastSessionService.from_url(url) as service:
        await ask_questions(service, folder)


async def ask_questions(service: BaseSessionService, folder: Path) -> None:
    """Create the session if it does not exist, and ask what it has no answer to."""

    def look_up(question: str, tool_context: ToolContext) -> str:
        """Look up an answer."""
        note_step(folder)
        tool_context.state[f"user:{question}"] = tool_context.function_call_id
        tool_context.state["app:last"] = tool_context.function_call_id
        tool_context.state[question] = tool_context.function_call_id
        return answer_to(question)

    model = ScriptedModel(model="scripted", folder=folder)
    agent = LlmAgent(name="agent", model=model, tools=[look_up])
    runner = Runner(app_name="app", agent=agent, session_service=service)
    session = await service.get_session(**IDS) or await service.create_session(
        **IDS, state={"user:created": True, "created": True}
    )
    for question in QUESTIONS:
        if answer_to(question) not in find_answers(session):
            message = types.Content(role="user", parts=[types.Part(text=question)])
            async for _ in runner.run_async(
                user_id="user", session_id="ses_1", new_message=message
            ):
                pass
            note_acknowledged(folder, answer_to(question))


async def check(url: str, folder: Path) -> list[str]:
    """Check that each question is answered once, and that all kinds of state agree."""
    async with HoldfastSessionService.from_url(url) as service:
        session = await service.get_session(**IDS)
        user_state = await service.get_user_state(app_name="app", user_id="user")
    if session is None:
        return ["the session was lost"]
    answers = find_answers(session)
    problems = [
        f"{answer!r} was lost" for answer in read_acknowledged(folder) if answer not in answers
    ]
    if answers != [answer_to(question) for question in QUESTIONS]:
        problems.append(f"the answers are {answers}")
    expected: dict[str, Any] = {"user:created": True, "created": True}
    for event in session.events:
        expected |= event.actions.state_delta
    if session.state != expected:
        problems.append(f"the state is {session.state}, by the events {expected}")
    own = {question: expected.get(question) for question in QUESTIONS}
    if user_state != {"created": True, **own}:
        problems.append(f"the user's state is {user_state}, the session's {own}")
    calls = [each.id for event in session.events for each in event.get_function_calls()]
    results = [each.id for event in session.events for each in event.get_function_responses()]
    if len({*results}) != len(results) or not {*results} <= {*calls}:
        problems.append(f"calls {calls} have the results {results}")
    return problems


def answer_to(question: str) -> str:
    """Return the answer to a question."""
    return f"the answer to {question}"


def find_answers(session: Session) -> list[str]:
    """Return the texts of the agent's answers."""
    return [
        part.text
        for event in session.events
        if event.author == "agent" and event.content
        for part in event.content.parts or []
        if part.text
    ]


# ADK imports most of itself in its first run; the processes of the trial are forked from this one.
with tempfile.TemporaryDirectory() as name:
    asyncio.run(ask_questions(InMemorySessionService(), Path(name)))
