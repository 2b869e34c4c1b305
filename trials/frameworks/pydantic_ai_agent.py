"""Pydantic AI: five questions, each answered with a tool, then branched, forked and deleted."""

from __future__ import annotations

from pathlib import Path

from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from holdfast.adapters.pydantic_ai import HoldfastConversationStore
from trials.frameworks.scenario import note_acknowledged, note_step, read_acknowledged

QUESTIONS = [f"question {number}" for number in range(5)]
PER_QUESTION = 4
"""Messages of a question: the question, the call, its result and the answer."""
DRAFT = "draft"
"""A conversation that is made, forked and deleted for each question."""
STEPS = 5 * len(QUESTIONS)


def make_agent(folder: Path) -> Agent:
    """Return an agent that calls the tool for a question, and answers with its result."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:  # noqa: ARG001
        note_step(folder)
        last = messages[-1].parts[-1]
        if isinstance(last, UserPromptPart):
            return ModelResponse(parts=[ToolCallPart("look_up", {"question": str(last.content)})])
        content = last.content if isinstance(last, ToolReturnPart) else ""
        return ModelResponse(parts=[TextPart(str(content))])

    agent = Agent(FunctionModel(answer))

    @agent.tool_plain
    def look_up(question: str) -> str:
        note_step(folder)
        return answer_to(question)

    return agent


async def run(url: str, folder: Path) -> None:
    """Ask the questions that have no answer yet."""
    agent = make_agent(folder)
    async with HoldfastConversationStore.from_url(url) as store:
        await clean_up(store)
        for question in QUESTIONS:
            found = await store.load("c") or Conversation(conversation_id="c")
            if answer_to(question) in find_answers(found.messages):
                continue
            result = await agent.run(question, conversation=found)
            await store.save(result, scope="user")
            note_acknowledged(folder, answer_to(question))
            note_step(folder)
            await try_out(store)
            note_step(folder)


async def clean_up(store: HoldfastConversationStore) -> None:
    """Undo what a run was doing in `try_out` when it was killed."""
    record = await store.read_record("c")
    if record is not None and record.branches:
        await store.branch("c", from_entry=record.branches[-1], expected_revision=record.revision)
    await store.delete(DRAFT)


async def try_out(store: HoldfastConversationStore) -> None:
    """Leave the history and return to it, and make and delete a fork."""
    record = await store.read_record("c")
    if record is None:
        raise LookupError("the conversation was just saved")
    branch = await store.branch("c", at=1, expected_revision=record.revision)
    await store.branch("c", from_entry=record.head_id, expected_revision=branch.revision)
    await store.fork("c", new_conversation_id=DRAFT)
    await store.delete(DRAFT)


async def check(url: str, folder: Path) -> list[str]:
    """Check that each question is answered once, and that nothing is left of the drafts."""
    async with HoldfastConversationStore.from_url(url) as store:
        entries = await store.load_entries("c") or []
        records = await store.list_conversations(scope="user")
        by_id = [await store.read_entry(each.id) for each in entries]
    answers = find_answers([each.message for each in entries])
    problems = [
        f"{answer!r} was lost" for answer in read_acknowledged(folder) if answer not in answers
    ]
    if answers != [answer_to(question) for question in QUESTIONS]:
        problems.append(f"the answers are {answers}")
    if len(entries) != PER_QUESTION * len(QUESTIONS):
        problems.append(f"there are {len(entries)} messages")
    if by_id != entries:
        problems.append("entries read by their ids are different")
    if [each.conversation_id for each in records] != ["c"]:
        problems.append(f"the conversations are {[each.conversation_id for each in records]}")
    return problems


def answer_to(question: str) -> str:
    """Return the answer to a question."""
    return f"the answer to {question}"


def find_answers(messages: list[ModelMessage]) -> list[str]:
    """Return the texts of the model's messages."""
    return [part.content for each in messages for part in each.parts if isinstance(part, TextPart)]
