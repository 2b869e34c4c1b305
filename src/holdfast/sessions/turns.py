"""Tool calls that have no result yet: a conversation that ends so is accepted by no model.

Calls and results are found in messages of the shapes in use: OpenAI's ``tool_calls`` and
``tool_call_id``, its items of type ``function_call``, Anthropic's parts ``tool_use`` and
``tool_result``, Bedrock's ``toolUse`` and ``toolResult``, Gemini's ``functionCall`` and
``functionResponse``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store


@dataclass(frozen=True, slots=True)
class UnfinishedCall:
    """A tool call without its result."""

    message: str
    """The key of the message that makes the call."""
    call_id: str
    tool: str

    def __str__(self) -> str:
        which = f"the call {self.call_id}" if self.call_id else "a call"
        return f"{which} of {self.tool} in message {self.message} has no result"


class CallLedger:
    """Which calls have results, brought up to date by what changed since the last look."""

    def __init__(self) -> None:
        self._seen = Store(max_history=0).snapshot()
        self._calls: dict[str, list[UnfinishedCall]] = {}
        self._results: dict[str, list[tuple[str, str]]] = {}

    def unfinished(self, state: Snapshot) -> list[UnfinishedCall]:
        """The calls without a result in a state, in the order of their messages."""
        changes = state.changes(self._seen)
        for space, key, message in changes["set"]:
            if space == MESSAGES:
                self._forget(key)
                if is_plain(message):
                    continue
                if calls := [UnfinishedCall(key, *each) for each in calls_of(message)]:
                    self._calls[key] = calls
                if results := list(results_of(message)):
                    self._results[key] = results
        for space, key in changes["delete"]:
            if space == MESSAGES:
                self._forget(key)
        self._seen = state
        results = [each for key in sorted(self._results) for each in self._results[key]]
        answered = set(results)
        # Calls without an id are answered in turn, each by one result of their tool's name.
        unnamed = Counter(each[1] for each in results if not each[0])
        found = []
        for key in sorted(self._calls):
            for call in self._calls[key]:
                if call.call_id:
                    is_answered = (call.call_id, "") in answered
                else:
                    is_answered = unnamed[call.tool] > 0
                    unnamed[call.tool] -= 1
                if not is_answered:
                    found.append(call)
        return found

    def _forget(self, key: str) -> None:
        self._calls.pop(key, None)
        self._results.pop(key, None)


def is_plain(message: Any) -> bool:
    """Whether a message is text alone, as most are."""
    return (
        isinstance(message, dict)
        and isinstance(message.get("content"), str)
        and message.keys().isdisjoint(("tool_calls", "tool_call_id", "type", "parts"))
    )


def calls_of(message: Any) -> Iterator[tuple[str, str]]:
    """Ids and tools of the calls in a message."""
    for part in parts_of(message):
        kind = part.get("type")
        if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            yield text(part.get("id")), text(part.get("name"))
        elif kind == "function_call":
            yield text(part.get("call_id") or part.get("id")), text(part.get("name"))
        for name, id_ in (("toolUse", "toolUseId"), ("functionCall", "id")):
            if isinstance(inner := part.get(name), dict):
                yield text(inner.get(id_)), text(inner.get("name"))
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    for call in calls if isinstance(calls, list | tuple) else ():
        if isinstance(call, dict):
            function = call.get("function")
            named = function if isinstance(function, dict) else call
            yield text(call.get("id")), text(named.get("name"))


def results_of(message: Any) -> Iterator[tuple[str, str]]:
    """Ids of the calls that a message answers; of those without one, no id and the tool's name."""
    if isinstance(message, dict) and message.get("tool_call_id") is not None:
        yield text(message["tool_call_id"]), ""
    for part in parts_of(message):
        kind = part.get("type")
        if isinstance(kind, str) and kind.endswith("tool_result"):
            yield text(part.get("tool_use_id")), ""
        elif kind == "function_call_output":
            yield text(part.get("call_id")), ""
        for name, id_ in (("toolResult", "toolUseId"), ("functionResponse", "id")):
            if isinstance(inner := part.get(name), dict):
                call_id = text(inner.get(id_))
                yield call_id, "" if call_id else text(inner.get("name"))


def parts_of(message: Any) -> Iterator[dict[str, Any]]:
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
