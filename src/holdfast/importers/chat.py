"""Read a list of chat messages, as programs that call a model store it.

Messages of the OpenAI and Anthropic APIs and items of OpenAI's Responses API, in a JSON array, in
an object under ``messages``, or one per line. Each message is stored unchanged. The other fields of
the object (model, tools, system prompt) become values of the session. If each line is such an
object, as in files for fine-tuning, each line becomes a session.
"""

from __future__ import annotations

import re
from typing import Any

from holdfast.documents.document import Document
from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.importers.history import History, choose_ids
from holdfast.importers.source import Source
from holdfast.snapshots.keys import MAX_ID_LENGTH
from holdfast.snapshots.session_snapshot import utc_now
from holdfast.snapshots.session_state import STATE

NAME = "chat"
ITEM_TYPES = re.compile(
    r"(\w+_)?call(_output)?|mcp_\w+|tool_search_\w+|reasoning|compaction|item_reference"
)
"""Types of Responses API items that have no role."""
MESSAGES = "messages"


def recognises(source: Source) -> bool:
    """Return whether this is a list of messages, has one, or starts with a line of messages."""
    if source.is_json:
        return is_chat(source.json)
    if not source.is_text or not source.text.lstrip().startswith(b"{"):
        return False
    try:
        _, first = next(source.lines())
    except (InvalidDocumentError, StopIteration):
        return False
    return is_message(first) or is_conversation(first)


def is_chat(tree: Any) -> bool:
    """Return whether the first message is one; `read` reports which later one is not."""
    if isinstance(tree, list):
        return bool(tree) and is_message(tree[0])
    return is_conversation(tree) or is_message(tree)


def is_conversation(tree: Any) -> bool:
    """Return whether this is an object with messages."""
    if not isinstance(tree, dict) or not isinstance(tree.get(MESSAGES), list):
        return False
    return not tree[MESSAGES] or is_message(tree[MESSAGES][0])


def is_message(item: Any) -> bool:
    """Return whether this has a role, or the type of a Responses API item."""
    if not isinstance(item, dict):
        return False
    if "role" in item:
        return isinstance(item["role"], str)
    type_ = item.get("type")
    return isinstance(type_, str) and ITEM_TYPES.fullmatch(type_) is not None


def read(source: Source) -> Document | list[Document]:
    """Return the conversation, or a list of them if each line is one.

    Raises:
        InvalidDocumentError: An item is not a message, or cannot be stored.

    """
    if source.is_json:
        tree = source.json
        if isinstance(tree, dict):
            if MESSAGES not in tree and is_message(tree):
                return build_document(source, [tree], {}, source.stem)
            return read_conversation(source, tree, source.stem)
        return build_document(source, tree, {}, source.stem)
    lines = list(source.lines())
    if not lines:
        raise InvalidDocumentError(f"{source.name} is empty")
    if not is_conversation(lines[0][1]):
        return build_document(source, [item for _, item in lines], {}, source.stem, lines)
    if source.session_id is not None and len(lines) > 1:
        raise InvalidDocumentError(
            f"{source.name} has {len(lines)} conversations, one per line, which cannot all become "
            f"the session {short_repr(source.session_id)}; omit --session, or import one line"
        )
    digits = len(str(len(lines)))
    stem = source.stem[: MAX_ID_LENGTH - digits - 1]
    return [
        read_conversation(source, tree, f"{stem}-{n:0{digits}}")
        for n, (_, tree) in enumerate(lines, 1)
    ]


def read_conversation(source: Source, tree: Any, session_id: str) -> Document:
    """Return the document of an object with messages and other fields."""
    if not isinstance(tree, dict) or not isinstance(tree.get(MESSAGES), list):
        raise InvalidDocumentError(
            f"{source.name} has a conversation without messages: {short_repr(tree)}"
        )
    values = {name: value for name, value in tree.items() if name != MESSAGES}
    return build_document(source, tree[MESSAGES], values, session_id)


def build_document(
    source: Source,
    messages: list[Any],
    values: dict[str, Any],
    session_id: str,
    lines: list[tuple[int, Any]] | None = None,
) -> Document:
    """Return the document of a conversation, with one event per message."""
    history = History(*choose_ids(source, None, session_id), utc_now())
    for number, message in enumerate(messages):
        where = f"line {lines[number][0]}" if lines else f"message {number}"
        if not is_message(message):
            raise InvalidDocumentError(
                f"{where} of {source.name} is not a message with a role: {short_repr(message)}"
            )
        history.append(message, utc_now(), f"{where} of {source.name}")
    if values:
        where = f"a field beside the messages of {source.name}"
        history.add("state.set", utc_now(), None, {STATE: values}, where)
    return history.document(NAME)
