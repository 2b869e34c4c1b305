"""Values of channels as values of a session, and back, exactly.

Messages of LangChain become plain data with a role and a content, as people and other programs
read it. What is plain already stays as it is. Everything else goes through LangGraph's serializer,
which is kept strict: it makes no object of a type that the data names unless it is allowed.
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
    """Makes session values of channel values, and back."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde

    def encoded(self, value: Any, what: str) -> Any:
        """A value as a session keeps it; ``what`` it is, for the error where it cannot be."""
        if isinstance(value, BaseMessage):
            plain = message_to_dict(value)
            if plain is not None and is_storable(plain):
                return plain
        elif not (type(value) is dict and KIND in value) and is_storable(value):
            return value
        return self._serialized(value, what)

    def _serialized(self, value: Any, what: str) -> dict[str, Any]:
        try:
            type_, data = self.serde.dumps_typed(value)
        except Exception as error:
            raise UnsupportedValueError(
                f"{what} has a value that LangGraph's serializer refuses, {short_repr(value)}: {error}. "
                "Keep plain data, messages, dataclasses or pydantic models in the state"
            ) from error
        return {KIND: SERIALIZED, "type": type_, "data": data, "shown": reprlib.repr(value)}

    def decoded(self, kept: Any) -> Any:
        """The value that was kept."""
        if type(kept) is not dict or KIND not in kept:
            return kept
        kind = kept[KIND]
        if isinstance(kind, str) and kind in TEMPLATES:
            return message_from_dict(TEMPLATES[kind], kept)
        if kind == SERIALIZED:
            return self._loaded(kept["type"], kept["data"])
        raise InvalidDocumentError(
            f"this Holdfast knows no value of the kind {short_repr(kind)}: upgrade it"
        )

    def decoded_all(self, kept: list[Any]) -> list[Any]:
        """The values that were kept; most are plain, and stay as they are."""
        decoded = self.decoded
        return [decoded(each) if type(each) is dict and KIND in each else each for each in kept]

    def _loaded(self, type_: str, data: bytes) -> Any:
        try:
            return self.serde.loads_typed((type_, data))
        except Warning:
            raise  # The user has made errors of warnings.
        except Exception as error:
            raise InvalidDocumentError(
                f"LangGraph's serializer cannot read a value of the type {short_repr(type_)}: "
                f"{first_line(error)}"
            ) from error


def first_line(error: Exception) -> str:
    """What an error says, in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def is_storable(value: Any) -> bool:
    """Whether a session can keep a value as it is, exactly."""
    try:
        encode(value)
    except UnsupportedValueError:
        return False
    return is_plain(value, MAX_DEPTH) or is_exact(value)


def is_exact(value: Any) -> bool:
    """Whether all of a value comes back as the very types that it has.

    A session keeps an enum of str as a str and a named tuple as a tuple; a graph that put one in
    wants it back.
    """
    kind = type(value)
    if kind is dict:
        return all(map(is_exact, value)) and all(map(is_exact, value.values()))
    if kind in CONTAINERS:
        return all(map(is_exact, value))
    return kind in NATIVE or kind in registered_types


def message_to_dict(message: BaseMessage) -> dict[str, Any] | None:
    """A message as plain data, without what is empty; None for one of another kind."""
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
        # The `!=` of foreign types may say anything.
        if field in REQUIRED_FIELDS or type(value) is not type(empty) or value != empty:
            data[field] = value
    data[KIND] = name
    return data


def message_from_dict(template: BaseMessage, data: dict[str, Any]) -> BaseMessage:
    """The message that plain data stands for."""
    kind = type(template)
    given = data.copy()
    for name in ADDED_FIELDS:
        given.pop(name, None)
    usual = template.__dict__
    if not usual.keys() >= given.keys() or not isinstance(given.get("content"), str | list):
        # Of another version of LangChain, or changed by hand: let it be checked.
        try:
            return kind(**given)
        except ValueError as error:
            raise InvalidDocumentError(
                f"a message is no {kind.__name__}: {short_repr(data)} ({first_line(error)})"
            ) from error
    message = kind.__new__(kind)
    fields = {**usual}
    for name, empty in MUTABLE_DEFAULTS[kind.__name__]:
        fields[name] = empty()
    fields.update(given)
    # As pydantic does it in model_construct, which would look at every field by name again.
    put = cast("Callable[[object, str, object], None]", object.__setattr__)
    put(message, "__dict__", fields)
    put(message, "__pydantic_fields_set__", set(given))
    put(message, "__pydantic_extra__", {})
    put(message, "__pydantic_private__", None)
    return message


# What is empty in a new message and can be changed: each gets its own.
MUTABLE_DEFAULTS: dict[str, list[tuple[str, type]]] = {
    kind: [(name, type(value)) for name, value in each.__dict__.items() if value in ({}, [])]
    for kind, each in TEMPLATES.items()
}
