"""Tool calls that have no result yet: a conversation that ends so is accepted by no model.

Calls and results are found in messages of the shapes in use: OpenAI's ``tool_calls`` and
``tool_call_id``, its items of type ``function_call``, Anthropic's parts ``tool_use`` and
``tool_result``, Bedrock's ``toolUse`` and ``toolResult``, Gemini's ``functionCall`` and
``functionResponse``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store

Answer: TypeAlias = tuple[str, str]
"""The id of the call that it is for; without one, an empty id and the tool's name."""


@dataclass(frozen=True, slots=True)
class UnfinishedCall:
    """A tool call without its result."""

    message: str
    """The key of the message that makes the call."""
    call_id: str
    tool: str
    arguments: Any = field(default=None, compare=False)
    """What the tool is called with, as the message has it: JSON text with OpenAI, else a dict."""

    def __str__(self) -> str:
        which = f"the call {self.call_id}" if self.call_id else "a call"
        return f"{which} of {self.tool} in message {self.message} has no result"


class ToolCallIndex:
    """Which calls have results, brought up to date by what changed since the last look.

    A look costs what changed, however long the conversation is.
    """

    def __init__(self) -> None:
        self._seen = Store(max_history=0).snapshot()
        self._parts: dict[str, tuple[list[UnfinishedCall], list[Answer]]] = {}
        """Calls and answers by the key of their message, of those that have any."""
        self._calls: dict[Answer, dict[tuple[str, int], UnfinishedCall]] = {}
        """The calls that one answer is for, by message and place in it."""
        self._answers: Counter[Answer] = Counter()
        self._open: set[Answer] = set()
        """Answers that are still to come."""

    def unfinished(self, state: Snapshot) -> list[UnfinishedCall]:
        """The calls without a result in a state, in the order of their messages."""
        changes = state.changes(self._seen)
        for space, key in changes["delete"]:
            if space == MESSAGES:
                self._forget(key)
        for space, key, message in changes["set"]:
            if space == MESSAGES:
                self._forget(key)
                self._note(key, message)
        self._seen = state
        found: dict[tuple[str, int], UnfinishedCall] = {}
        for answer in self._open:
            calls = sorted(self._calls[answer].items())
            # Calls without an id are answered in turn, each by one result of their tool's name.
            found.update(calls if answer[0] else calls[self._answers[answer] :])
        return [found[place] for place in sorted(found)]

    def _note(self, key: str, message: Any) -> None:
        """Take in a message."""
        if is_plain(message):
            return
        calls = [UnfinishedCall(key, *each) for each in find_tool_calls(message)]
        answers = list(find_tool_results(message))
        if calls or answers:
            self._parts[key] = calls, answers
        for number, call in enumerate(calls):
            self._calls.setdefault(awaited(call), {})[key, number] = call
        self._answers.update(answers)
        self._look_at({awaited(call) for call in calls} | set(answers))

    def _forget(self, key: str) -> None:
        """Take out a message."""
        calls, answers = self._parts.pop(key, ([], []))
        for number, call in enumerate(calls):
            del self._calls[awaited(call)][key, number]
        self._answers.subtract(answers)
        self._look_at({awaited(call) for call in calls} | set(answers))

    def _look_at(self, touched: set[Answer]) -> None:
        """Say anew which of these answers are still to come."""
        for answer in touched:
            calls = len(self._calls.get(answer, ()))
            is_open = calls > self._answers[answer] if not answer[0] else not self._answers[answer]
            if calls and is_open:
                self._open.add(answer)
            else:
                self._open.discard(answer)


def awaited(call: UnfinishedCall) -> Answer:
    """The answer that a call waits for."""
    return (call.call_id, "") if call.call_id else ("", call.tool)


def is_plain(message: Any) -> bool:
    """Whether a message is text alone, as most are."""
    return (
        isinstance(message, dict)
        and isinstance(message.get("content"), str)
        and message.keys().isdisjoint(("tool_calls", "tool_call_id", "type", "parts"))
    )


def find_tool_calls(message: Any) -> Iterator[tuple[str, str, Any]]:
    """Ids, tools and arguments of the calls in a message."""
    for part in message_parts(message):
        kind = part.get("type")
        if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            yield text(part.get("id")), text(part.get("name")), part.get("input")
        elif kind == "function_call":
            id_ = text(part.get("call_id") or part.get("id"))
            yield id_, text(part.get("name")), part.get("arguments")
        for name, id_, given in (("toolUse", "toolUseId", "input"), ("functionCall", "id", "args")):
            if isinstance(inner := part.get(name), dict):
                yield text(inner.get(id_)), text(inner.get("name")), inner.get(given)
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    for call in calls if isinstance(calls, list | tuple) else ():
        if isinstance(call, dict):
            function = call.get("function")
            named = function if isinstance(function, dict) else call
            arguments = named.get("arguments", named.get("args"))
            yield text(call.get("id")), text(named.get("name")), arguments


def find_tool_results(message: Any) -> Iterator[Answer]:
    """Ids of the calls that a message answers; of those without one, no id and the tool's name."""
    if isinstance(message, dict) and message.get("tool_call_id") is not None:
        yield text(message["tool_call_id"]), ""
    for part in message_parts(message):
        kind = part.get("type")
        if isinstance(kind, str) and kind.endswith("tool_result"):
            yield text(part.get("tool_use_id")), ""
        elif kind == "function_call_output":
            yield text(part.get("call_id")), ""
        for name, id_ in (("toolResult", "toolUseId"), ("functionResponse", "id")):
            if isinstance(inner := part.get(name), dict):
                call_id = text(inner.get(id_))
                yield call_id, "" if call_id else text(inner.get("name"))


def message_parts(message: Any) -> Iterator[dict[str, Any]]:
    """A message itself and the parts of its content."""
    if not isinstance(message, dict):
        return
    yield message
    for name in ("content", "parts"):
        content = message.get(name)
        if isinstance(content, list | tuple):
            yield from (part for part in content if isinstance(part, dict))


def text(value: object) -> str:
    """An id or a name as text, whatever it is."""
    return value if isinstance(value, str) else "" if value is None else str(value)
