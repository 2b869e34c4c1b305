"""A scripted agent of Pydantic AI, and messages of every kind."""

from __future__ import annotations

from pydantic_ai import Agent, BinaryContent, DeferredToolRequests
from pydantic_ai.conversation_store import ConversationConflict
from pydantic_ai.messages import (
    FilePart,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

PDF = BinaryContent(data=b"%PDF\x00\xff", media_type="application/pdf")

MESSAGES = [
    ModelRequest(
        parts=[SystemPromptPart("Be brief"), UserPromptPart(["Look ☃", PDF])], instructions="i"
    ),
    ModelResponse(
        parts=[ThinkingPart("hm", signature="s"), ToolCallPart("tables", '{"day": "mo"}', "c1")],
        model_name="m",
    ),
    ModelRequest(parts=[ToolReturnPart("tables", {"n": [1.5, None, True]}, "c1")]),
    ModelRequest(parts=[ToolReturnPart("tables", "again", "c1", outcome="retried")]),
    ModelResponse(parts=[TextPart("Ja ☃"), FilePart(PDF)], finish_reason="stop"),
]


def answer(messages, info: AgentInfo) -> ModelResponse:
    """Call the first tool for a question about it, and answer with its result."""
    last = messages[-1].parts[-1]
    for tool in info.function_tools:
        if isinstance(last, UserPromptPart) and tool.name in str(last.content):
            return ModelResponse(parts=[ToolCallPart(tool.name, {"day": "monday"})])
    return ModelResponse(parts=[TextPart(f"{len(messages)}: {last.content}")])


def make_agent() -> Agent:
    """Return an agent with a tool, and one that needs an approval."""
    agent = Agent(FunctionModel(answer), output_type=[str, DeferredToolRequests])

    @agent.tool_plain
    def tables(day: str) -> str:
        return f"two on {day}"

    @agent.tool_plain(requires_approval=True)
    def book(day: str) -> str:
        return f"booked {day}"

    return agent


async def add_with_retries(store, name, prefix, count) -> None:
    """Add messages, each in a save of its own, and load again after a conflict."""
    for number in range(count):
        while True:
            found = await store.load(name)
            found.messages.append(ModelRequest(parts=[UserPromptPart(f"{prefix}{number}")]))
            try:
                await store.save(found)
                break
            except ConversationConflict:
                continue
