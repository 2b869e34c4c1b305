"""Messages and records as JSON data, in the form that Pydantic AI gives them.

What is read is validated by Pydantic AI's own types, and no class is imported by a name in it. Data
that they refuse was written by another version or edited: it stays as it is in the store, and
reading it is an error.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter
from pydantic_core import PydanticSerializationError

from holdfast.adapters.pydantic_ai.layout import StoredEntry
from holdfast.errors import IntegrityError, InvalidDocumentError, UnsupportedValueError, short_repr

FORMAT_VERSION = 1
RECORDS: TypeAdapter[ConversationRecord] = TypeAdapter(ConversationRecord)


# ---------------------------------------------------------------------------------------- records


def encode_record(record: ConversationRecord) -> dict[str, Any]:
    """Return a record as JSON data.

    Raises:
        UnsupportedValueError: A value in it, such as metadata, has no JSON form.

    """
    try:
        data: dict[str, Any] = json.loads(RECORDS.dump_json(record))
    except PydanticSerializationError as error:
        raise UnsupportedValueError(
            f"record of conversation {record.conversation_id!r} cannot be stored: {error}; "
            "use values that have a JSON form"
        ) from error
    return data


def decode_record(data: Any, conversation_id: str) -> ConversationRecord:
    """Return the record of a conversation.

    A record with another id was copied by Holdfast, as a fork or an import under another name; it
    becomes that of a conversation which was forked there.

    Raises:
        IntegrityError: It is not a record.
        InvalidDocumentError: It has a newer format.

    """
    if not isinstance(data, dict) or "format_version" not in data:
        raise damaged_record_error(conversation_id, short_repr(data))
    found = data["format_version"]
    if found != FORMAT_VERSION:
        raise InvalidDocumentError(
            f"conversation {conversation_id!r} has format_version {short_repr(found)}, and this "
            f"adapter reads {FORMAT_VERSION}; install a version of holdfast that supports it"
        )
    try:
        record = RECORDS.validate_json(json.dumps(data))
    except ValidationError as error:
        raise damaged_record_error(conversation_id, explain(error)) from error
    if record.conversation_id == conversation_id:
        return record
    return replace(
        record,
        conversation_id=conversation_id,
        forked_from=record.conversation_id,
        forked_at=record.head_id,
    )


def damaged_record_error(conversation_id: str, problem: str) -> IntegrityError:
    """Return the error of a record that is not valid."""
    return IntegrityError(
        f"record of conversation {conversation_id!r} is damaged: {problem}; restore the session to "
        "an earlier snapshot, or from a backup"
    )


# --------------------------------------------------------------------------------------- messages


def encode_entries(entries: Sequence[ConversationEntry]) -> list[StoredEntry]:
    """Return entries with their messages as JSON data.

    Raises:
        UnsupportedValueError: A message holds a value without a JSON form.

    """
    return [
        StoredEntry(each.id, each.parent_id, each.kind, encode_message(each.message, each.id))
        for each in entries
    ]


def encode_message(message: ModelMessage, entry_id: str) -> Any:
    """Return a message as JSON data."""
    try:
        (data,) = json.loads(ModelMessagesTypeAdapter.dump_json([message]))
    except PydanticSerializationError as error:
        raise UnsupportedValueError(
            f"message of entry {entry_id!r} cannot be stored: {error}; return values from tools "
            "that have a JSON form"
        ) from error
    return data


def decode_entries(stored: Sequence[StoredEntry]) -> list[ConversationEntry]:
    """Return entries with their messages.

    Raises:
        InvalidDocumentError: A message or an entry is of a kind that is not known here.

    """
    try:
        messages = decode_messages([each.message for each in stored])
    except ValidationError:
        messages = [decode_message(each) for each in stored]
    entries = []
    for each, message in zip(stored, messages, strict=True):
        if each.kind != "message":
            raise unreadable_entry_error(each, f"it is of the kind {short_repr(each.kind)}")
        entries.append(ConversationEntry(id=each.id, parent_id=each.parent_id, message=message))
    return entries


def decode_messages(data: list[Any]) -> list[ModelMessage]:
    """Return messages; raise ValidationError if one is not known."""
    return ModelMessagesTypeAdapter.validate_json(json.dumps(data))


def decode_message(entry: StoredEntry) -> ModelMessage:
    """Return one message; an error names its entry."""
    try:
        (message,) = decode_messages([entry.message])
    except ValidationError as error:
        raise unreadable_entry_error(entry, explain(error)) from error
    return message


def unreadable_entry_error(entry: StoredEntry, problem: str) -> InvalidDocumentError:
    """Return the error of an entry that this version of Pydantic AI does not know."""
    installed = version("pydantic-ai-slim")
    return InvalidDocumentError(
        f"pydantic-ai-slim {installed} cannot read entry {entry.id!r}: {problem}; install the "
        "version that wrote it, or branch from an earlier entry"
    )


def explain(error: ValidationError) -> str:
    """Return the first problem of a validation in one line."""
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{place}: {first['msg']}" if place else first["msg"]
