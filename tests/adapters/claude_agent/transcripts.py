"""Entries of transcripts as Claude Code writes them."""

from __future__ import annotations

from uuid import uuid4

PROJECT = "-srv-agent"
KEY = {"project_key": PROJECT, "session_id": "7b0a4a52-7d5f-4e0e-9d0c-0d3b8f1a2c01"}
SUB = {**KEY, "subpath": "subagents/agent-a1"}


def make_user(content, uuid=None, **fields):
    """Return the entry of a user's message."""
    return {
        "type": "user",
        "uuid": uuid or str(uuid4()),
        "message": {"role": "user", "content": content},
        "cwd": "/srv/agent",
        "timestamp": "2026-11-16T12:00:00.000Z",
        **fields,
    }


def make_assistant(*blocks, uuid=None, stop_reason="end_turn", **fields):
    """Return the entry of a model's message: texts, or blocks such as tool calls."""
    content = [{"type": "text", "text": each} if isinstance(each, str) else each for each in blocks]
    message = {"role": "assistant", "id": "msg_1", "content": content, "stop_reason": stop_reason}
    return {"type": "assistant", "uuid": uuid or str(uuid4()), "message": message, **fields}


CALL = {"type": "tool_use", "id": "toolu_1", "name": "tables", "input": {"day": "monday"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "two"}
TALK = [
    {"type": "queue-operation", "operation": "enqueue", "content": "Is there a table?"},
    make_user("Is there a table?", gitBranch="main"),
    {"type": "attachment", "uuid": str(uuid4()), "attachment": {"type": "date", "n": [1.5, None]}},
    {"type": "mode", "mode": "normal", "permissionMode": "default"},
    make_assistant(CALL, stop_reason="tool_use"),
    make_user([RESULT], toolUseResult={"nested": [{"ok": True}]}),
    make_assistant("Two tables ☃"),
    {"type": "custom-title", "customTitle": "Tables"},
    {"type": "last-prompt", "lastPrompt": "Is there a table?"},
]
TALK = [{**each, "sessionId": KEY["session_id"]} for each in TALK]
