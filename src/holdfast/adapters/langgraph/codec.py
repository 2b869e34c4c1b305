"""Encode channel values as values of a session, and decode them to exactly what they were.

LangChain's messages become dicts with a role and content, readable by people and other programs.
Plain data stays as it is. Everything else goes through LangGraph's serializer, which builds only
objects of allowed types.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from holdfast.errors import InvalidDocumentError, UnsupportedValueError, short_repr
from holdfast.values.binary_encoding import encode
from holdfast.values.extensions import MAX_DEPTH
from holdfast.values.lowering import NATIVE, is_plain, registered_types

KIND = "langchain"
SERIALIZED = "serialized"
ROLES: dict[type[BaseMessage], str] = {
    HumanMessage: "user",
    AIMessage: "assistant",
    SystemMessage: "system",
    ToolMessage: "tool",
}
TEMPLATES: dict[str, BaseMessage] = {
    "HumanMessage": HumanMessage(""),
    "AIMessage": AIMessage(""),
    "SystemMessage": SystemMessage(""),
    "ToolMessage": ToolMessage("", tool_call_id=""),
}
ADDED_FIELDS = ("role", KIND)
REQUIRED_FIELDS = ("content", "tool_call_id")
CONTAINERS = (list, tuple, set, frozenset)


class Codec:
    """Encodes and decodes channel values."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde

    def encode(self, value: Any, what: str) -> Any:
        """Return a channel value as a session stores it; ``what`` names it in errors.

        Raises:
            UnsupportedValueError: LangGraph's serializer refuses the value.

        """
        if isinstance(value, BaseMessage):
            plain = message_to_dict(value)
            if plain is not None and is_storable(plain):
                return plain
        elif not (type(value) is dict and KIND in value) and is_storable(value):
            return value
        return self._serialize(value, what)

    def _serialize(self, value: Any, what: str) -> dict[str, Any]:
        try:
            type_, data = self.serde.dumps_typed(value)
        except Exception as error:
            raise UnsupportedValueError(
                f"{what} has a value that LangGraph's serializer refuses, {short_repr(value)}: "
                f"{error}; use plain data, messages, dataclasses or pydantic models"
            ) from error
        return {KIND: SERIALIZED, "type": type_, "data": data, "shown": reprlib.repr(value)}

    def decode(self, stored: Any) -> Any:
        """Return the channel value of a stored one.

        Raises:
            InvalidDocumentError: The value is damaged, or of a later version.

        """
        if type(stored) is not dict or KIND not in stored:
            return stored
        kind = stored[KIND]
        if isinstance(kind, str) and kind in TEMPLATES:
            return message_from_dict(TEMPLATES[kind], stored)
        if kind == SERIALIZED:
            return self._load(stored["type"], stored["data"])
        raise InvalidDocumentError(f"unknown kind of value {short_repr(kind)}; upgrade Holdfast")

    def decode_all(self, stored: list[Any]) -> list[Any]:
        """Return the channel values of a list of stored ones."""
        decode = self.decode
        return [decode(each) if type(each) is dict and KIND in each else each for each in stored]

    def _load(self, type_: str, data: bytes) -> Any:
        try:
            return self.serde.loads_typed((type_, data))
        except Warning:
            raise  # the user turned warnings into errors
        except Exception as error:
            raise InvalidDocumentError(
                f"LangGraph's serializer cannot read a value encoded as {short_repr(type_)}: "
                f"{first_line(error)}"
            ) from error


def first_line(error: Exception) -> str:
    """Return the first line of an error's message."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def is_storable(value: Any) -> bool:
    """Return whether a session stores a value exactly."""
    try:
        encode(value)
    except UnsupportedValueError:
        return False
    return is_plain(value, MAX_DEPTH) or is_exact(value)


def is_exact(value: Any) -> bool:
    """Return whether all parts of a value have types that a session restores.

    It stores a str enum as a str and a named tuple as a tuple, which a graph would notice.
    """
    kind = type(value)
    if kind is dict:
        return all(map(is_exact, value)) and all(map(is_exact, value.values()))
    if kind in CONTAINERS:
        return all(map(is_exact, value))
    return kind in NATIVE or kind in registered_types


def message_to_dict(message: BaseMessage) -> dict[str, Any] | None:
    """Return a message as a dict without default values, or None if its class is not supported."""
    role = ROLES.get(type(message))
    if role is None or message.__pydantic_extra__ or message.__pydantic_private__:
        return None
    name = type(message).__name__
    usual = TEMPLATES[name].__dict__
    data: dict[str, Any] = {"role": role}
    for field, value in message.__dict__.items():
        if field not in usual:
            return None
        empty = usual[field]
        # The `!=` of other types may return anything.
        if field in REQUIRED_FIELDS or type(value) is not type(empty) or value != empty:
            data[field] = value
    data[KIND] = name
    return data


def message_from_dict(template: BaseMessage, data: dict[str, Any]) -> BaseMessage:
    """Return the message that a dict describes.

    Raises:
        InvalidDocumentError: The fields do not fit the class of the message.

    """
    kind = type(template)
    given = data.copy()
    for name in ADDED_FIELDS:
        given.pop(name, None)
    usual = template.__dict__
    if not usual.keys() >= given.keys() or not isinstance(given.get("content"), str | list):
        # Written by another version of LangChain, or edited: validate it.
        try:
            return kind(**given)
        except ValueError as error:
            raise InvalidDocumentError(
                f"invalid {kind.__name__} {short_repr(data)}: {first_line(error)}"
            ) from error
    message = kind.__new__(kind)
    fields = {**usual}
    for name, empty in MUTABLE_DEFAULTS[kind.__name__]:
        fields[name] = empty()
    fields.update(given)
    # What pydantic's model_construct does, without its loop over all fields.
    put = cast("Callable[[object, str, object], None]", object.__setattr__)
    put(message, "__dict__", fields)
    put(message, "__pydantic_fields_set__", set(given))
    put(message, "__pydantic_extra__", {})
    put(message, "__pydantic_private__", None)
    return message


# Fields whose default is mutable: each message gets its own.
MUTABLE_DEFAULTS: dict[str, list[tuple[str, type]]] = {
    kind: [(name, type(value)) for name, value in each.__dict__.items() if value in ({}, [])]
    for kind, each in TEMPLATES.items()
}
