"""Find tool calls that have no result. Models reject a conversation that ends with one.

These message formats are known: OpenAI's ``tool_calls`` and
``tool_call_id``, its items of type ``function_call``, ``custom_tool_call`` and
``local_shell_call``, Anthropic's parts ``tool_use`` and ``tool_result``, Bedrock's ``toolUse`` and
``toolResult``, Gemini's ``functionCall`` and ``functionResponse``, and lists of results in Letta's
``tool_returns`` and Grampus' ``tool_results``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.snapshot import Snapshot, encoded_changes
from holdfast.state.store import Store
from holdfast.values.binary_encoding import decode, unpack_raw

ITEM_CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
}
"""Types of OpenAI's items that call a tool of the client, and where their arguments are."""
ITEM_RESULTS = ("function_call_output", "custom_tool_call_output")
RESULT_LISTS = ("tool_returns", "tool_results")

CallKey: TypeAlias = tuple[str, str]
"""What a result is matched by: the id of its call, or an empty id and the name of the tool."""


@dataclass(frozen=True, slots=True)
class UnfinishedCall:
    """A tool call without a result."""

    message: str
    """The key of the message that makes the call."""
    call_id: str
    tool: str
    arguments: Any = field(default=None, compare=False)
    """The arguments as the message has them: JSON text with OpenAI, otherwise a dict."""

    def __str__(self) -> str:
        which = f"the call {self.call_id}" if self.call_id else "a call"
        return f"{which} of {self.tool} in message {self.message} has no result"


class ToolCallIndex:
    """An index of tool calls and results, updated with what changed since the last query.

    A query costs what changed, however long the conversation is. The first one reads the whole
    conversation, unless it is known to have no unfinished calls and only text was added to it.
    """

    def __init__(self) -> None:
        self._seen = Store(max_history=0).snapshot()
        self._finished: Snapshot | None = None
        """A state without unfinished calls, of which nothing is indexed yet."""
        self._parts: dict[str, tuple[list[UnfinishedCall], list[CallKey]]] = {}
        """Calls and results of each message that has any, by the message's key."""
        self._calls: dict[CallKey, dict[tuple[str, int], UnfinishedCall]] = {}
        """The calls that a result can be for, by message and index in it."""
        self._results: Counter[CallKey] = Counter()
        self._open: set[CallKey] = set()
        """Results that are missing."""

    def unfinished(self, state: Snapshot) -> list[UnfinishedCall]:
        """Return the calls without a result in a state, in the order of their messages."""
        if self._finished is not None:
            if adds_only_text(state, self._finished):
                self._finished = state
                return []
            self._finished = None
        for space, key, data in encoded_changes(state, self._seen):
            if space == MESSAGES:
                if key in self._parts:
                    self._remove(key)
                if data is not None and may_have_calls(data):
                    self._add(key, decode(data))
        self._seen = state
        found: dict[tuple[str, int], UnfinishedCall] = {}
        for call_key in self._open:
            calls = sorted(self._calls[call_key].items())
            # Results without a call id are matched in order, by the name of the tool.
            found.update(calls if call_key[0] else calls[self._results[call_key] :])
        return [found[index] for index in sorted(found)]

    def start_finished(self, state: Snapshot) -> None:
        """Start at a state that is known to have no unfinished calls, without reading it."""
        if len(self._seen) == 0:
            self._finished = state

    def _add(self, key: str, message: Any) -> None:
        calls = [UnfinishedCall(key, *each) for each in find_tool_calls(message)]
        results = list(find_tool_results(message))
        if calls or results:
            self._parts[key] = calls, results
        for number, call in enumerate(calls):
            self._calls.setdefault(key_of_call(call), {})[key, number] = call
        self._results.update(results)
        self._update_open({key_of_call(call) for call in calls} | set(results))

    def _remove(self, key: str) -> None:
        calls, results = self._parts.pop(key)
        for number, call in enumerate(calls):
            del self._calls[key_of_call(call)][key, number]
        self._results.subtract(results)
        self._update_open({key_of_call(call) for call in calls} | set(results))

    def _update_open(self, call_keys: set[CallKey]) -> None:
        """Update which of these results are missing."""
        for call_key in call_keys:
            calls, results = len(self._calls.get(call_key, ())), self._results[call_key]
            if calls and (not results if call_key[0] else calls > results):
                self._open.add(call_key)
            else:
                self._open.discard(call_key)


def key_of_call(call: UnfinishedCall) -> CallKey:
    """Return the key by which a call and its result are matched."""
    return (call.call_id, "") if call.call_id else ("", call.tool)


def may_have_calls(data: bytes) -> bool:
    """Tell whether an encoded message is not plain text and has a name that calls or results have.

    Only then it is decoded, which needs its registered types.
    """
    return not is_plain(unpack_raw(data)) and (
        b"type" in data
        or b"tool_call" in data
        or b"toolUse" in data
        or b"toolResult" in data
        or b"functionCall" in data
        or b"functionResponse" in data
    )


def adds_only_text(state: Snapshot, base: Snapshot) -> bool:
    """Tell whether a state has the messages of another, and new ones without calls or results."""
    return not any(
        space == MESSAGES and (data is None or may_have_calls(data) or base.contains(MESSAGES, key))
        for space, key, data in encoded_changes(state, base)
    )


def is_plain(message: Any) -> bool:
    """Tell whether a message is plain text, as most are."""
    return (
        isinstance(message, dict)
        and isinstance(message.get("content"), str)
        and message.keys().isdisjoint(
            ("tool_calls", "tool_call_id", "type", "parts", *RESULT_LISTS)
        )
    )


def find_tool_calls(message: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the id, tool and arguments of each call in a message."""
    for part in message_parts(message):
        kind = part.get("type")
        if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
            yield text(part.get("id")), text(part.get("name")), part.get("input")
        elif isinstance(kind, str) and kind in ITEM_CALLS:
            id_ = text(part.get("call_id") or part.get("id"))
            yield id_, text(part.get("name") or kind), part.get(ITEM_CALLS[kind])
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


def find_tool_results(message: Any) -> Iterator[CallKey]:
    """Yield what each result in a message is matched by."""
    if isinstance(message, dict) and message.get("tool_call_id") is not None:
        yield text(message["tool_call_id"]), ""
    for name in RESULT_LISTS if isinstance(message, dict) else ():
        results = message.get(name)
        for result in results if isinstance(results, list | tuple) else ():
            if isinstance(result, dict) and result.get("tool_call_id") is not None:
                yield text(result["tool_call_id"]), ""
    for part in message_parts(message):
        kind = part.get("type")
        if isinstance(kind, str) and kind.endswith("tool_result"):
            yield text(part.get("tool_use_id")), ""
        elif kind in ITEM_RESULTS:
            yield text(part.get("call_id")), ""
        for name, id_ in (("toolResult", "toolUseId"), ("functionResponse", "id")):
            if isinstance(inner := part.get(name), dict):
                call_id = text(inner.get(id_))
                yield call_id, "" if call_id else text(inner.get("name"))


def message_parts(message: Any) -> Iterator[dict[str, Any]]:
    """Yield a message and the parts of its content."""
    if not isinstance(message, dict):
        return
    yield message
    for name in ("content", "parts"):
        content = message.get(name)
        if isinstance(content, list | tuple):
            yield from (part for part in content if isinstance(part, dict))


def text(value: object) -> str:
    """Return an id or a name as text, whatever it is."""
    return value if isinstance(value, str) else "" if value is None else str(value)
