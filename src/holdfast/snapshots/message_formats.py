"""Read the messages of model providers and frameworks: role, parts, tool calls and results.

Messages are stored as their framework hands them over. These formats are known:

OpenAI             ``tool_calls`` and ``tool_call_id``; items such as ``function_call``
Anthropic          parts ``tool_use`` and ``tool_result``; Claude Code's entries around a message
Bedrock, Gemini    parts ``toolUse``, ``toolResult``, ``functionCall``, ``functionResponse``
ADK                events whose ``content`` is a message of Gemini
Pydantic AI        ``parts`` with a ``part_kind``
Agent Framework    ``contents``: ``function_call`` and ``function_result``
Letta, Grampus     lists of results: ``tool_returns``, ``tool_results``
A2A                roles ``ROLE_USER`` and ``ROLE_AGENT``
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from holdfast.values.reference_text import describe_reference, format_size
from holdfast.values.references import Attachment, BlobReference

CallKey: TypeAlias = tuple[str, str]
"""What a result is matched by: the id of its call, or an empty id and the name of the tool."""

ITEM_CALLS = {
    "function_call": "arguments",
    "custom_tool_call": "input",
    "local_shell_call": "action",
}
"""Types of OpenAI's items that call a tool of the client, and where their arguments are."""
ITEM_RESULTS = ("function_call_output", "custom_tool_call_output", "function_result")
RESULT_LISTS = ("tool_returns", "tool_results")
PARTS = ("content", "parts", "contents")
ROLES = {
    "ROLE_USER": "user",
    "ROLE_AGENT": "assistant",
    "request": "user",
    "response": "assistant",
}
"""The roles of A2A, and the kinds of Pydantic AI's messages."""
MEDIA_TYPES = ("media_type", "mime_type", "mediaType", "mimeType")
MEDIA = ("image", "audio", "video", "file", "document", "media", "binary")
"""Words in the types of parts that are no text."""
MAX_MEDIA_DEPTH = 4


def unwrap_message(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message inside an entry of Claude Code or an event of ADK, or the message."""
    inner = message.get("message")
    if isinstance(inner, dict) and isinstance(inner.get("role"), str):
        return inner
    content = message.get("content")
    if isinstance(content, dict) and isinstance(content.get("parts"), list | tuple):
        return content
    return message


def message_role(message: Any) -> str | None:
    """Return the role of a message, such as ``"user"``, or the type of an item."""
    if not isinstance(message, dict):
        return None
    inner = unwrap_message(message)
    found = inner.get("role") or (inner.get("kind") if "parts" in inner else None)
    if not isinstance(found, str):
        found = inner.get("type")
    return ROLES.get(found, found) if isinstance(found, str) else None


def message_parts(message: Any) -> Iterator[dict[str, Any]]:
    """Yield a message and the parts of its content."""
    if not isinstance(message, dict):
        return
    inner = unwrap_message(message)
    yield inner
    for name in PARTS:
        content = inner.get(name)
        if isinstance(content, list | tuple):
            yield from (part for part in content if isinstance(part, dict))


def message_texts(message: dict[str, Any]) -> Iterator[str | dict[str, Any]]:
    """Yield the texts and results of a message, and its parts that are no text nor tool call."""
    inner = unwrap_message(message)
    for name in (*PARTS, "output"):
        content = inner.get(name)
        if isinstance(content, str):
            if content:
                yield content
            continue
        if isinstance(content, BlobReference | Attachment):
            yield describe_reference(content)
            continue
        for part in content if isinstance(content, list | tuple) else ():
            if isinstance(part, str):
                yield part
            elif isinstance(part, BlobReference | Attachment):
                yield describe_reference(part)
            elif isinstance(part, dict) and next(part_calls(part), None) is None:
                found = part_text(part)
                if found is None:
                    found = part_media(part)
                yield part if found is None else found
    for name in RESULT_LISTS:
        results = inner.get(name)
        for result in results if isinstance(results, list | tuple) else ():
            if isinstance(result, dict) and result.get("tool_call_id") is not None:
                given = result.get("func_response", result.get("output"))
                if isinstance(given, BlobReference):
                    given = describe_reference(given)
                yield given if isinstance(given, str) else result


def part_text(part: dict[str, Any]) -> str | None:
    """Return the text of a part, a large one as its reference, or None if it is something else."""
    found = part.get("text")
    if found is None and "part_kind" in part:
        found = part.get("content")
    elif found is None and part.get("type") == "function_result":
        found = part.get("result")
    if isinstance(found, BlobReference):
        return describe_reference(found)
    return found if isinstance(found, str) else None


def part_media(part: dict[str, Any]) -> str | None:
    """Return what is known of an image or another file in a part, if its content is a reference."""
    found = find_media(part, MAX_MEDIA_DEPTH)
    if isinstance(found, Attachment):
        return describe_reference(found)
    if found is None:
        return None
    named = find_media_type(part, MAX_MEDIA_DEPTH)
    if named is None:
        kinds = (text(part.get("type") or part.get("part_kind")), *map(text, part))
        named = next((kind for kind in kinds if any(word in kind for word in MEDIA)), None)
    return None if named is None else f"<{named}, {format_size(found.size)}>"


def find_media(value: Any, room: int) -> BlobReference | Attachment | None:
    """Return the first reference inside a part."""
    if isinstance(value, BlobReference | Attachment):
        return value
    items = value.values() if isinstance(value, dict) else value
    if room and isinstance(value, dict | list | tuple):
        for item in items:
            if (found := find_media(item, room - 1)) is not None:
                return found
    return None


def find_media_type(value: Any, room: int) -> str | None:
    """Return the first media type inside a part."""
    if isinstance(value, dict) and room:
        for name in MEDIA_TYPES:
            if isinstance(found := value.get(name), str):
                return found
        for item in value.values():
            if (inner := find_media_type(item, room - 1)) is not None:
                return inner
    return None


def part_calls(part: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the id, tool and arguments of the call in a part, if it has one."""
    kind = part.get("type")
    if kind in ("tool_use", "server_tool_use", "mcp_tool_use"):
        yield text(part.get("id")), text(part.get("name")), part.get("input")
    elif isinstance(kind, str) and kind in ITEM_CALLS:
        id_ = text(part.get("call_id") or part.get("id"))
        yield id_, text(part.get("name") or kind), part.get(ITEM_CALLS[kind])
    elif text(part.get("part_kind")).endswith("tool-call"):
        yield text(part.get("tool_call_id")), text(part.get("tool_name")), part.get("args")
    for name, id_, given in (("toolUse", "toolUseId", "input"), ("functionCall", "id", "args")):
        if isinstance(inner := part.get(name), dict):
            yield text(inner.get(id_)), text(inner.get("name")), inner.get(given)


def find_tool_calls(message: Any) -> Iterator[tuple[str, str, Any]]:
    """Yield the id, tool and arguments of each call in a message."""
    calls: Any = None
    for number, part in enumerate(message_parts(message)):
        yield from part_calls(part)
        if number == 0:
            calls = part.get("tool_calls")
    for call in calls if isinstance(calls, list | tuple) else ():
        if isinstance(call, dict):
            function = call.get("function")
            named = function if isinstance(function, dict) else call
            arguments = named.get("arguments", named.get("args"))
            yield text(call.get("id")), text(named.get("name")), arguments


def find_tool_results(message: Any) -> Iterator[CallKey]:
    """Yield what each result in a message is matched by."""
    for part in message_parts(message):
        kind, part_kind = part.get("type"), text(part.get("part_kind"))
        if isinstance(kind, str) and kind.endswith("tool_result"):
            yield text(part.get("tool_use_id")), ""
        elif kind in ITEM_RESULTS:
            yield text(part.get("call_id")), ""
        elif part.get("tool_call_id") is not None and not part_kind.endswith("tool-call"):
            yield text(part["tool_call_id"]), ""
        for name in RESULT_LISTS:
            results = part.get(name)
            for result in results if isinstance(results, list | tuple) else ():
                if isinstance(result, dict) and result.get("tool_call_id") is not None:
                    yield text(result["tool_call_id"]), ""
        for name, id_ in (("toolResult", "toolUseId"), ("functionResponse", "id")):
            if isinstance(inner := part.get(name), dict):
                call_id = text(inner.get(id_))
                yield call_id, "" if call_id else text(inner.get("name"))


def is_plain(message: Any) -> bool:
    """Tell whether a message is plain text, as most are."""
    return (
        isinstance(message, dict)
        and isinstance(message.get("content"), str)
        and message.keys().isdisjoint(
            ("tool_calls", "tool_call_id", "type", "parts", *RESULT_LISTS)
        )
    )


def text(value: object) -> str:
    """Return an id or a name as text, whatever it is."""
    return value if isinstance(value, str) else "" if value is None else str(value)
