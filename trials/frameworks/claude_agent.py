"""The Claude Agent SDK: four questions, each answered with a tool, by the real Claude Code.

Claude Code talks to a scripted API. Each process starts it with an empty folder, so that all it
knows comes from the store.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from claude_agent_sdk import (
    ClaudeAgentOptions,
    ClaudeSDKClient,
    create_sdk_mcp_server,
    project_key_for_directory,
    tool,
)
from claude_agent_sdk.types import SessionKey, SessionStoreEntry

from holdfast.adapters.claude_agent import HoldfastSessionStore
from trials.frameworks.scenario import note_acknowledged, note_step, read_acknowledged

sys.path.append(str(Path(__file__).parents[2] / "examples"))

from scripted_claude import ScriptedClaude, find_last_text

SESSION = "0b8f6a52-32a5-4a0e-8d53-a0a8e1f0c9d4"
QUESTIONS = [f"question {number}" for number in range(4)]
STEPS = 3 * len(QUESTIONS)
TOOL = "mcp__books__look_up"


class ReportingStore(HoldfastSessionStore):
    """Reports what was acknowledged."""

    folder: Path

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Append entries, and report their uuids."""
        await super().append(key, entries)
        for entry in entries:
            if "uuid" in entry:
                note_acknowledged(self.folder, entry["uuid"])


async def run(url: str, folder: Path) -> None:
    """Ask the questions that have no answer yet."""

    def answer(messages: list[dict[str, Any]]) -> str | dict[str, Any]:
        note_step(folder)
        text = find_last_text(messages)
        if text in QUESTIONS:
            return {"name": TOOL, "input": {"question": text}}
        return text

    @tool("look_up", "Look something up", {"question": str})
    async def look_up(arguments: dict[str, Any]) -> dict[str, Any]:
        note_step(folder)
        return {"content": [{"type": "text", "text": answer_to(arguments["question"])}]}

    config = folder / f"claude-{os.getpid()}"
    async with ReportingStore.from_url(url) as store:
        store.folder = folder
        entries = await store.load(make_key(folder)) or []
        missing = [each for each in QUESTIONS if answer_to(each) not in find_answers(entries)]
        with ScriptedClaude(answer) as claude:
            options = ClaudeAgentOptions(
                session_store=store,
                session_store_flush="eager",
                session_id=None if entries else SESSION,
                resume=SESSION if entries else None,
                cwd=folder,
                env={**claude.env(config), "HOME": str(config)},
                tools=[],
                mcp_servers={"books": create_sdk_mcp_server("books", tools=[look_up])},
                allowed_tools=[TOOL],
                setting_sources=[],
            )
            if missing:
                async with ClaudeSDKClient(options) as client:
                    for question in missing:
                        await client.query(question)
                        async for _ in client.receive_response():
                            pass


async def check(url: str, folder: Path) -> list[str]:
    """Check that each question is answered once, and that nothing acknowledged is lost."""
    async with HoldfastSessionStore.from_url(url) as store:
        entries: list[Any] = list(await store.load(make_key(folder)) or [])
        listed = await store.list_session_summaries(make_key(folder)["project_key"])
    answers = find_answers(entries)
    problems = []
    if answers != [answer_to(question) for question in QUESTIONS]:
        problems.append(f"the answers are {answers}")
    uuids = Counter(each["uuid"] for each in entries if "uuid" in each)
    problems += [f"entry {each} was lost" for each in read_acknowledged(folder) if not uuids[each]]
    problems += [
        f"entry {each} is there {count} times" for each, count in uuids.items() if count > 1
    ]
    calls = {each["id"] for each in find_parts(entries, "tool_use")}
    results = Counter(each["tool_use_id"] for each in find_parts(entries, "tool_result"))
    problems += [f"result of {each} has no call" for each in results if each not in calls]
    if [each["session_id"] for each in listed] != [SESSION]:
        problems.append(f"the listed sessions are {listed}")
    return problems


def make_key(folder: Path) -> SessionKey:
    """Return the SDK's key of the transcript."""
    return {"project_key": project_key_for_directory(folder), "session_id": SESSION}


def answer_to(question: str) -> str:
    """Return the answer to a question."""
    return f"the answer to {question}"


def find_answers(entries: list[Any]) -> list[str]:
    """Return the answers in the assistant's messages."""
    texts = [
        each["text"]
        for each in find_parts([one for one in entries if one["type"] == "assistant"], "text")
    ]
    return [text for text in texts if text.startswith(answer_to(""))]


def find_parts(entries: list[Any], kind: str) -> list[Any]:
    """Return the parts of a kind in all messages."""
    return [
        part
        for entry in entries
        if entry["type"] in ("user", "assistant")
        for part in entry["message"]["content"]
        if isinstance(part, dict) and part["type"] == kind
    ]
