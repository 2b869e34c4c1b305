"""A2A's protobuf messages as the protocol's JSON, and back.

The JSON is what clients see on the wire. A message that it does not hold exactly, as one with
fields of a newer protocol, is stored with its protobuf bytes beside the JSON, and these count.
"""

from __future__ import annotations

from typing import Any, TypeVar

from a2a.types.a2a_pb2 import (
    Message,
    StreamResponse,
    Task,
    TaskArtifactUpdateEvent,
    TaskStatusUpdateEvent,
)
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import Error, MessageToDict, ParseDict
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtobufMessage

from holdfast.errors import IntegrityError, short_repr

PROTOBUF = "_protobuf"
"""The field of the exact bytes. A field of a protobuf message has no such JSON name."""

Event = Message | Task | TaskStatusUpdateEvent | TaskArtifactUpdateEvent
M = TypeVar("M", bound=ProtobufMessage)


def encode_message(message: ProtobufMessage) -> dict[str, Any]:
    """Return the JSON of a message, with its bytes if the JSON does not hold it exactly."""
    exact = message.SerializeToString(deterministic=True)
    tree: dict[str, Any] = {}
    try:
        tree = MessageToDict(message)
        parsed = ParseDict(tree, type(message)())
        if parsed.SerializeToString(deterministic=True) == exact:
            return tree
    except (Error, ValueError, RecursionError):
        tree = {}  # has no JSON, such as an infinite number
    return {**tree, PROTOBUF: exact}


def decode_message(kind: type[M], tree: object, name: str) -> M:
    """Return the message that an entry holds. ``name`` is the entry in errors.

    Raises:
        IntegrityError: It does not hold such a message.

    """
    if not isinstance(tree, dict):
        raise damaged_entry_error(name, f"it must be a dict, got {short_repr(tree)}")
    message: M = kind()
    try:
        if PROTOBUF in tree:
            message.ParseFromString(tree[PROTOBUF])
        else:
            ParseDict(tree, message)
    except (Error, DecodeError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise damaged_entry_error(name, str(error)) from error
    return message


def encode_event(event: Event) -> tuple[str, dict[str, Any]]:
    """Return the kind of a task's event, such as status_update, and its JSON."""
    response = to_stream_response(event)
    return str(response.WhichOneof("payload")), encode_message(response)


def decode_event(tree: object, name: str) -> Event:
    """Return the event that was stored with a task.

    Raises:
        IntegrityError: It is not an event.

    """
    response = decode_message(StreamResponse, tree, name)
    kind = response.WhichOneof("payload")
    if kind is None:
        raise damaged_entry_error(name, "it has no payload")
    event: Event = getattr(response, kind)
    return event


def damaged_entry_error(name: str, problem: str) -> IntegrityError:
    """Return the error for an entry that cannot be read."""
    return IntegrityError(
        f"{name} is not what an A2A task store wrote: {problem:.400}; "
        "restore the session to an earlier state"
    )
