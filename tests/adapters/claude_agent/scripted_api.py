"""Run the real Claude Code against a scripted API: the server is that of the examples."""

from __future__ import annotations

import sys
from pathlib import Path

from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    ResultMessage,
    TextBlock,
    create_sdk_mcp_server,
    query,
    tool,
)

EXAMPLES = str(Path(__file__).parents[3] / "examples")
if EXAMPLES not in sys.path:
    sys.path.append(EXAMPLES)

from scripted_claude import ScriptedClaude, find_last_text  # noqa: E402

__all__ = ["ScriptedClaude", "ask", "find_texts", "script"]

TOOL = "mcp__restaurant__free_tables"
HELPER = {"description": "Look", "prompt": "find chairs", "subagent_type": "helper"}


def script(messages):
    """Look for a table with the tool, for chairs with a sub-agent; otherwise count messages."""
    text = find_last_text(messages)
    if text == "Is there a table?":
        return {"name": TOOL, "input": {"day": "monday"}}
    if text == "Are there chairs?":
        return {"name": "Agent", "input": HELPER}
    if text.startswith("two tables"):
        return f"There are {text}"
    return f"{text} ({len([each for each in messages if each['role'] == 'user'])})"


async def ask(env, store, folder, words, *, on_tool=None, **options):
    """Run one turn; return the id of the session and the answer."""

    @tool("free_tables", "Look for free tables", {"day": str})
    async def free_tables(arguments):
        if on_tool is not None:
            await on_tool()
        return {"content": [{"type": "text", "text": f"two tables on {arguments['day']}"}]}

    settings = ClaudeAgentOptions(
        session_store=store,
        cwd=folder,
        env={**env, "HOME": str(folder)},
        tools=["Agent"],
        agents={"helper": AgentDefinition("Finds chairs", "Find chairs.", tools=[])},
        mcp_servers={"restaurant": create_sdk_mcp_server("restaurant", tools=[free_tables])},
        allowed_tools=[TOOL, "Agent"],
        setting_sources=[],
        **options,
    )
    texts, session_id = [], None
    async for message in query(prompt=words, options=settings):
        if isinstance(message, AssistantMessage):
            texts += [each.text for each in message.content if isinstance(each, TextBlock)]
        if isinstance(message, ResultMessage):
            session_id = message.session_id
    return session_id, texts[-1]


def find_texts(entries):
    """Return the texts of the messages in a transcript, and the names of called tools."""
    found = []
    for entry in entries:
        if entry["type"] not in ("user", "assistant"):
            continue
        content = entry["message"]["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        for part in parts:
            found.append(part.get("text") or part.get("name") or part.get("type"))
    return found
