"""An agent of ADK with a scripted model and a tool, and events for tests."""

from __future__ import annotations

from google.adk.agents import LlmAgent
from google.adk.events import Event, EventActions
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import Runner
from google.genai import types

IDS = {"app_name": "shop", "user_id": "ana"}
S1 = {**IDS, "session_id": "s1"}


def text_event(text="hello", author="user", *, state=None, **fields):
    role = "user" if author == "user" else "model"
    return Event(
        author=author,
        invocation_id="inv",
        content=types.Content(role=role, parts=[types.Part(text=text)]),
        actions=EventActions(state_delta=state or {}),
        **fields,
    )


def state_event(**state):
    """An event with changes of the state alone; `user__a` stands for `user:a`."""
    delta = {key.replace("__", ":"): value for key, value in state.items()}
    return Event(author="agent", invocation_id="inv", actions=EventActions(state_delta=delta))


def texts(session):
    return [
        part.text
        for event in session.events
        for part in (event.content.parts if event.content else [])
        if part.text is not None
    ]


class ScriptedModel(BaseLlm):
    """Calls the tool for a question with "table", and repeats anything else."""

    model: str = "scripted"

    async def generate_content_async(self, llm_request, stream=False):
        last = llm_request.contents[-1].parts[-1]
        if last.function_response is not None:
            part = types.Part(text=f"There are {last.function_response.response['result']}")
        elif "table" in (last.text or ""):
            part = types.Part(
                function_call=types.FunctionCall(name="free_tables", args={"day": "monday"})
            )
        else:
            part = types.Part(text=f"You said: {last.text}")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def free_tables(day: str, tool_context) -> str:
    """Look for free tables."""
    tool_context.state["user:favourite_day"] = day
    tool_context.state["looked"] = tool_context.state.get("looked", 0) + 1
    return f"two tables on {day}"


def make_runner(service, artifacts=None):
    agent = LlmAgent(name="waiter", model=ScriptedModel(), tools=[free_tables])
    return Runner(app_name="shop", agent=agent, session_service=service, artifact_service=artifacts)


async def ask(runner, words, session_id="s1"):
    """Run one turn; return the final answer."""
    message = types.Content(role="user", parts=[types.Part(text=words)])
    answer = None
    async for event in runner.run_async(user_id="ana", session_id=session_id, new_message=message):
        if event.is_final_response() and event.content:
            answer = event.content.parts[0].text
    return answer
