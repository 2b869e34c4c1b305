"""Encode channel values as values of a session, and decode them to exactly what they were.

LangChain's messages become dicts with a role and content, readable by people and other programs.
Plain data stays as it is. Everything else goes through LangGraph's serializer.

Stored data names the types of its objects. Building any type it names would let everyone who can
write to the store run code in the process that reads it. So the serializer builds only these: types
that LangGraph lists as safe, data classes of LangChain and LangGraph that the framework puts into
the state of a graph, and types that the user allows. Other objects come back as the plain data in
them, with a warning.
"""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain
from typing import Any, TypeAlias, cast

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.errors import InvalidDocumentError, UnsupportedValueError, short_repr
from holdfast.values.extensions import MAX_DEPTH
from holdfast.values.json_encoding import EncodedValue, encode_value
from holdfast.values.lowering import NATIVE, is_plain, registered_types

KIND = "langchain"
SERIALIZED = "serialized"
TREE = "tree"
UNSUPPORTED = object()
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
ADDED_FIELDS = frozenset(("role", KIND))
REQUIRED_FIELDS = ("content", "tool_call_id")
CONTAINERS = (list, tuple, set, frozenset)


class Codec:
    """Encodes and decodes channel values."""

    def __init__(self, serde: SerializerProtocol) -> None:
        self.serde = serde

    def encode(self, value: Any, what: str) -> EncodedValue:
        """Return a channel value as a session stores it, encoded; ``what`` names it in errors.

        Raises:
            UnsupportedValueError: LangGraph's serializer refuses the value.

        """
        try:
            return encode_value(self._to_tree(value, what))
        except UnsupportedValueError:  # too deep, or text that is not valid
            return encode_value(self._serialize(value, what))

    def encode_dict(
        self, fields: Mapping[str, Any], values: Mapping[str, Any], what: str
    ) -> EncodedValue:
        """Return a dict of plain fields, and of values as `encode` stores them, encoded.

        Raises:
            UnsupportedValueError: LangGraph's serializer refuses a value.

        """
        try:
            trees = {name: self._to_tree(value, what) for name, value in values.items()}
            return encode_value({**fields, **trees})
        except UnsupportedValueError:
            trees = {name: self._serialize(value, what) for name, value in values.items()}
            return encode_value({**fields, **trees})

    def _to_tree(self, value: Any, what: str) -> Any:
        """Return a channel value as a session stores it. It shares parts with the value."""
        kind = type(value)
        tree = UNSUPPORTED
        if kind in ROLES:
            tree = message_to_dict(value)
        elif kind is not dict or KIND not in value:
            if is_exact(value):
                return value
            if kind is list or kind is dict:
                tree = messages_to_tree(value)
        return tree if is_exact(tree) else self._serialize(value, what)

    def _serialize(self, value: Any, what: str) -> dict[str, Any]:
        try:
            type_, data = self.serde.dumps_typed(value)
        except Exception as error:
            raise UnsupportedValueError(
                f"{what} has a value that LangGraph's serializer refuses, {short_repr(value)}: "
                f"{error}; use plain data, messages, dataclasses or pydantic models"
            ) from error
        return {KIND: SERIALIZED, "type": type_, "data": bytes(data), "shown": reprlib.repr(value)}

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
        if kind == TREE:
            return self._decode_tree(stored["value"])
        raise InvalidDocumentError(f"unknown kind of value {short_repr(kind)}; upgrade Holdfast")

    def decode_all(self, stored: list[Any]) -> list[Any]:
        """Return the channel values of a list of stored ones."""
        decode = self.decode
        return [decode(each) if type(each) is dict and KIND in each else each for each in stored]

    def _decode_tree(self, tree: Any) -> Any:
        if type(tree) is list:
            return [self._decode_tree(each) for each in tree]
        if type(tree) is dict and KIND not in tree:
            return {name: self._decode_tree(each) for name, each in tree.items()}
        return self.decode(tree)

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


def is_exact(value: Any) -> bool:
    """Return whether all parts of a value have types that a session restores.

    It stores a str enum as a str and a named tuple as a tuple, which a graph would notice.
    """
    return is_plain(value, MAX_DEPTH) or has_exact_types(value, MAX_DEPTH)


def has_exact_types(value: Any, room: int) -> bool:
    """Return the same for a value that is nested at most ``room`` levels deep."""
    kind = type(value)
    if kind is dict or kind in CONTAINERS:
        parts = chain(value, value.values()) if kind is dict else value
        return room > 0 and all(has_exact_types(part, room - 1) for part in parts)
    return kind in NATIVE or kind in registered_types


def messages_to_tree(value: Any) -> Any:
    """Return lists and dicts with messages in them as a tree that a session stores."""
    return {KIND: TREE, "value": replace_messages(value)}


def replace_messages(value: Any) -> Any:
    """Return the same lists and dicts, with each message as a dict."""
    kind = type(value)
    if kind is list:
        return [replace_messages(each) for each in value]
    if kind is dict:
        # One with the key of encoded values cannot be told from them.
        return UNSUPPORTED if KIND in value else {k: replace_messages(v) for k, v in value.items()}
    return message_to_dict(value) if kind in ROLES else value


def message_to_dict(message: BaseMessage) -> Any:
    """Return a message as a dict without default values, or a value that cannot be stored."""
    if message.__pydantic_extra__ or message.__pydantic_private__:
        return UNSUPPORTED
    kind = type(message)
    name = kind.__name__
    usual = TEMPLATES[name].__dict__
    data: dict[str, Any] = {"role": ROLES[kind]}
    for field, value in message.__dict__.items():
        if field not in usual:
            return UNSUPPORTED
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
    kind, usual = type(template), template.__dict__
    fields = {**usual}
    for name, empty in MUTABLE_DEFAULTS[kind.__name__]:
        fields[name] = empty()
    fields.update(data)
    given = data.keys() - ADDED_FIELDS
    for name in ADDED_FIELDS:
        fields.pop(name, None)
    if len(fields) == len(usual) and isinstance(data.get("content"), str | list):
        return build_message((kind, given), fields)
    # Written by another version of LangChain, or edited: validate it.
    try:
        return kind(**{name: data[name] for name in given})
    except ValueError as error:
        raise InvalidDocumentError(
            f"invalid {kind.__name__} {short_repr(data)}: {first_line(error)}"
        ) from error


MessageOutline: TypeAlias = tuple[type[BaseMessage], Iterable[str]]
"""The class of a message, and the names of its fields that are not default values."""


def build_message(outline: MessageOutline, fields: dict[str, Any]) -> BaseMessage:
    """Return a message with the given fields, as pydantic's model_construct, without its loops."""
    kind, given = outline
    message = kind.__new__(kind)
    put = cast("Callable[[object, str, object], None]", object.__setattr__)
    put(message, "__dict__", fields)
    put(message, "__pydantic_fields_set__", set(given))
    put(message, "__pydantic_extra__", {})
    put(message, "__pydantic_private__", None)
    return message


def outline_message(message: BaseMessage) -> MessageOutline | None:
    """Return the outline of a message that can be built from its fields, or None."""
    stored = message_to_dict(message)
    if stored is UNSUPPORTED or message.__dict__.keys() != TEMPLATES[stored[KIND]].__dict__.keys():
        return None
    return type(message), tuple(name for name in stored if name not in ADDED_FIELDS)


# Fields whose default is mutable: each message gets its own.
MUTABLE_DEFAULTS: dict[str, list[tuple[str, type]]] = {
    kind: [(name, type(value)) for name, value in each.__dict__.items() if value in ({}, [])]
    for kind, each in TEMPLATES.items()
}


# ------------------------------------------------------------------------------ serializer

AllowedType: TypeAlias = tuple[str, ...] | type
"""A type, or its module and name."""

FRAMEWORK_TYPES: frozenset[tuple[str, str]] = frozenset(
    {
        ("langchain_core.agents", "AgentAction"),
        ("langchain_core.agents", "AgentActionMessageLog"),
        ("langchain_core.agents", "AgentFinish"),
        ("langchain_core.agents", "AgentStep"),
        ("langchain_core.outputs.chat_generation", "ChatGeneration"),
        ("langchain_core.outputs.chat_generation", "ChatGenerationChunk"),
        ("langchain_core.outputs.chat_result", "ChatResult"),
        ("langchain_core.outputs.generation", "Generation"),
        ("langchain_core.outputs.generation", "GenerationChunk"),
        ("langchain_core.outputs.llm_result", "LLMResult"),
        ("langchain_core.outputs.run_info", "RunInfo"),
        ("langchain_core.prompt_values", "ChatPromptValue"),
        ("langchain_core.prompt_values", "ChatPromptValueConcrete"),
        ("langchain_core.prompt_values", "ImagePromptValue"),
        ("langchain_core.prompt_values", "StringPromptValue"),
        ("langgraph.store.base", "SearchItem"),
    }
)
"""Data classes that are always allowed, besides those that LangGraph lists as safe.

Each only holds values. Excluded are types that hold callables (policies), read files (``Blob``) or
can be run (prompts, tools, other runnables).
"""

ENCODINGS = frozenset(("null", "bytes", "bytearray", "msgpack"))
"""The encodings that the serializer writes; others, such as "json", are refused."""
MAX_WARNINGS = 1000

_blocked: ContextVar[list[tuple[str, str]] | None] = ContextVar("blocked", default=None)


class BlockedTypeWarning(UserWarning):
    """An object came back as plain data because its type is not allowed."""


class AllowlistSerializer(JsonPlusSerializer):
    """Builds only objects of allowed types, and warns once per other type."""

    def __init__(self, allowed_types: Collection[AllowedType] | None = None) -> None:
        super().__init__(allowed_msgpack_modules=[*FRAMEWORK_TYPES, *(allowed_types or ())])
        self._warned: set[tuple[str, str]] = set()

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value that was serialized.

        Raises:
            ValueError: The data is in an encoding that this serializer does not write.

        """
        if data[0] not in ENCODINGS:
            raise ValueError(f"unknown encoding {data[0]!r}; expected one of {sorted(ENCODINGS)}")
        with collect_blocked() as blocked:
            value = super().loads_typed(data)
        for module, name in blocked:
            self._warn(module, name)
        return value

    def _warn(self, module: str, name: str) -> None:
        """Warn of a type once, and of a limited number of types: the data may name any."""
        if (module, name) in self._warned or len(self._warned) >= MAX_WARNINGS:
            return
        self._warned.add((module, name))
        warnings.warn(
            f"type {short_repr(f'{module}.{name}')} is not allowed, so its objects come back as "
            f"plain data; pass allowed_types=[{short_repr((module, name))}] to HoldfastSaver to "
            "build them",
            BlockedTypeWarning,
            stacklevel=2,
        )


@contextmanager
def collect_blocked() -> Iterator[list[tuple[str, str]]]:
    """Collect the types that LangGraph's serializer refuses to build within the block."""
    blocked: list[tuple[str, str]] = []
    token = _blocked.set(blocked)
    try:
        yield blocked
    finally:
        _blocked.reset(token)


def note_blocked(event: SerdeEvent) -> None:
    """Add a refused type to those being collected."""
    blocked = _blocked.get()
    if blocked is not None and event["kind"] == "msgpack_blocked":
        blocked.append((event["module"], event["name"]))


register_serde_event_listener(note_blocked)
