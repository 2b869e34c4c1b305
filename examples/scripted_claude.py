"""A server that answers the requests of the Claude Agent SDK by a script: no network, no API key.

It speaks the part of Anthropic's Messages API that Claude Code uses: one endpoint that streams text
and tool calls.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from uuid import uuid4

Script = Callable[[list[dict[str, Any]]], "str | dict[str, Any]"]
"""Returns the answer to the messages of a request: a text, or a tool call (name and input)."""


class ScriptedClaude:
    """A server on this machine, for the block.

    Requests without tools, by which Claude Code makes titles, get a fixed answer.
    """

    def __init__(self, script: Script) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.reply(b"{}", "application/json")

            def do_GET(self) -> None:
                self.reply(b"{}", "application/json")

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                request = json.loads(self.rfile.read(length) or b"{}")
                if "count_tokens" in self.path:
                    self.reply(b'{"input_tokens": 1}', "application/json")
                elif "/v1/messages" not in self.path:
                    self.reply(b"{}", "application/json")
                else:
                    answer = script(request["messages"]) if request.get("tools") else "A talk"
                    message = make_message(request.get("model", "claude"), answer)
                    if request.get("stream"):
                        self.reply(encode_stream(message), "text/event-stream")
                    else:
                        self.reply(json.dumps(message).encode(), "application/json")

            def reply(self, body: bytes, kind: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *parts: object) -> None:
                """Print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def env(self, folder: str | Path) -> dict[str, str]:
        """Return the variables for Claude Code: this server, and a folder for its files."""
        return {
            "ANTHROPIC_BASE_URL": self.url,
            "ANTHROPIC_API_KEY": "sk-ant-scripted",
            "CLAUDE_CONFIG_DIR": str(folder),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def make_message(model: str, answer: str | dict[str, Any]) -> dict[str, Any]:
    """Return an answer as a message of the API."""
    block: dict[str, Any] = {"type": "text", "text": answer}
    if not isinstance(answer, str):
        block = {"type": "tool_use", "id": f"toolu_{uuid4().hex[:24]}", **answer}
    return {
        "id": f"msg_{uuid4().hex[:24]}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [block],
        "stop_reason": "end_turn" if isinstance(answer, str) else "tool_use",
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "output_tokens": 5},
    }


def encode_stream(message: dict[str, Any]) -> bytes:
    """Return a message as the events of a stream."""
    (block,) = message["content"]
    start: dict[str, Any]
    if block["type"] == "text":
        start = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": block["text"]}
    else:
        start = {**block, "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    opening = {**message, "content": [], "stop_reason": None}
    ending = {"stop_reason": message["stop_reason"], "stop_sequence": None}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": opening},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ending, "usage": {"output_tokens": 5}},
        {"type": "message_stop"},
    ]
    text = "".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n" for each in events)
    return text.encode()


def find_last_text(messages: list[dict[str, Any]]) -> str:
    """Return the last text of a person or a tool, without what Claude Code adds to it."""
    content = [each["content"] for each in messages if each["role"] == "user"][-1]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts: list[str] = []
    for part in parts:
        inner = part.get("content") if part["type"] == "tool_result" else part.get("text")
        if isinstance(inner, list):
            inner = "".join(each.get("text", "") for each in inner)
        if isinstance(inner, str) and not inner.startswith("<system-reminder>"):
            texts.append(inner)
    return texts[-1] if texts else ""
