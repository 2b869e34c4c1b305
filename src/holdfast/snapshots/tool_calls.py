"""Find tool calls that have no result. Models reject a conversation that ends with one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.snapshots.message_formats import (
    CallKey,
    find_tool_calls,
    find_tool_results,
    is_plain,
)
from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.snapshot import Snapshot, encoded_changes
from holdfast.state.store import Store
from holdfast.values.binary_encoding import decode, unpack_raw
from holdfast.values.references import (
    ReferringData,
    find_references,
    is_keeping_references,
    restore_value,
)


@dataclass(frozen=True, slots=True)
class UnfinishedCall:
    """A tool call without a result."""

    message: str
    """The key of the message that makes the call."""
    call_id: str
    tool: str
    arguments: Any = field(default=None, compare=False)
    """The arguments as the message has them: JSON text with OpenAI, otherwise a dict.

    Large parts are references, except in `Session.unfinished`.
    """

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
        self._contents: dict[str, Mapping[str, bytes]] = {}
        """Where the large values of a message with calls are, by the message's key."""
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
                    self._add(key, data)
        self._seen = state
        found: dict[tuple[str, int], UnfinishedCall] = {}
        for call_key in self._open:
            calls = sorted(self._calls[call_key].items())
            # Results without a call id are matched in order, by the name of the tool.
            found.update(calls if call_key[0] else calls[self._results[call_key] :])
        return [found[index] for index in sorted(found)]

    def unfinished_with_arguments(self, state: Snapshot) -> list[UnfinishedCall]:
        """Return the same with the large values in their arguments, which are read.

        Raises:
            NotFoundError: A large value is not stored.

        """
        return [self._read_arguments(call) for call in self.unfinished(state)]

    def _read_arguments(self, call: UnfinishedCall) -> UnfinishedCall:
        contents = self._contents.get(call.message)
        if contents is None or is_keeping_references() or not find_references(call.arguments):
            return call
        return replace(call, arguments=restore_value(call.arguments, contents))

    def start_finished(self, state: Snapshot) -> None:
        """Start at a state that is known to have no unfinished calls, without reading it."""
        if len(self._seen) == 0:
            self._finished = state

    def _add(self, key: str, data: bytes) -> None:
        message = decode(bytes(data))  # blobs stay references: an image is not read
        calls = [UnfinishedCall(key, *each) for each in find_tool_calls(message)]
        results = list(find_tool_results(message))
        if calls or results:
            self._parts[key] = calls, results
        if calls and isinstance(data, ReferringData):
            self._contents[key] = data.contents
        for number, call in enumerate(calls):
            self._calls.setdefault(key_of_call(call), {})[key, number] = call
        self._results.update(results)
        self._update_open({key_of_call(call) for call in calls} | set(results))

    def _remove(self, key: str) -> None:
        calls, results = self._parts.pop(key)
        self._contents.pop(key, None)
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
