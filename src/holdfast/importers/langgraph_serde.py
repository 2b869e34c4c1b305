"""Values of LangGraph's checkpoints as plain data. Nothing that the data names is ever imported.

LangGraph's own serializer reads them, in its strict mode, and with a hook that makes no objects:
where the data names a type, what is kept is what the type was to be made of. A few types that a
session has itself (times, UUIDs, decimals, sets) become what they were, and LangChain's messages
become messages with a role. Pickles are not read at all.
"""

from __future__ import annotations

import datetime as dt
import decimal
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.extras import MissingExtraError, require_extra

KIND = "langchain"
"""The field of a message that says which class of LangChain it was."""
ROLES = {
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
    "FunctionMessage": "function",
    "ChatMessage": "chat",
    "RemoveMessage": "remove",
}
EXT_NUMPY = 6
EXT_DELTA_SNAPSHOT = 7
DEEPEST = 64
"""Objects in objects, of which each is a text of its own inside that of the other."""
MOST_MESSAGES = 100_000
PLAIN_TYPES = ("null", "bytes", "bytearray", "msgpack")


class Message(dict[str, Any]):
    """A message of LangChain as plain data, which can still be told from any other dict."""


@dataclass(frozen=True, slots=True)
class Whole:
    """The whole value of a channel of which other checkpoints have only the changes."""

    value: Any


def path_of(kind: type[PurePosixPath | PureWindowsPath]) -> Callable[[Any], str]:
    """How the parts of a path become its text."""
    return lambda parts: str(kind(*parts))


def time_of(fields: Any) -> dt.time:
    """A time of day; its zone, if it has one, came as the seconds of its offset or not at all."""
    zone = fields.get("tzinfo")
    given = {name: value for name, value in fields.items() if name != "tzinfo"}
    return dt.time(**given, tzinfo=dt.timezone(*zone) if isinstance(zone, list) else None)


MADE: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("datetime", "datetime"): dt.datetime.fromisoformat,
    ("datetime", "date"): lambda parts: dt.date(*parts),
    ("datetime", "time"): time_of,
    ("datetime", "timedelta"): lambda parts: dt.timedelta(*parts),
    ("uuid", "UUID"): uuid.UUID,
    ("decimal", "Decimal"): decimal.Decimal,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
    **{
        (module, name): path_of(kind)
        for module in ("pathlib", "pathlib._local")
        for name, kind in (("PosixPath", PurePosixPath), ("WindowsPath", PureWindowsPath))
    },
}
"""What a session has itself, by the names that the data has for it."""


class Serde:
    """Reads the values of one database."""

    def __init__(self) -> None:
        with require_extra("langgraph"):
            from langgraph.checkpoint.serde.jsonplus import (  # noqa: PLC0415 - an extra
                JsonPlusSerializer,
            )
        try:
            self._serializer = JsonPlusSerializer(
                allowed_msgpack_modules=None, __unpack_ext_hook__=self._plain
            )
        except TypeError:
            raise MissingExtraError("langgraph", "needs a newer langgraph-checkpoint") from None
        self._depth = 0
        self._messages: dict[bytes, Message] = {}
        """Messages that were read, by their bytes: each is in every checkpoint that follows it."""

    def value(self, type_: object, data: object, where: str) -> Any:
        """What a row says; ``where`` it is, for the error where it says nothing."""
        if type_ == "pickle":
            raise InvalidDocumentError(
                f"{where} is a pickle, which could run code, and is never read: write the thread "
                "anew with a serializer that has no pickle_fallback"
            )
        if type_ == "json":
            return self.json(data, where)
        if type_ not in PLAIN_TYPES:
            hint = "is encrypted" if "+" in str(type_) else "is of a kind that is not known"
            raise InvalidDocumentError(f"{where} {hint}, {short_repr(type_)}: it cannot be read")
        if not isinstance(data, bytes) and not (data is None and type_ == "null"):
            raise InvalidDocumentError(f"{where} has no bytes: {short_repr(data)}")
        self._depth = 0
        try:
            return self._serializer.loads_typed((str(type_), data or b""))
        except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
            raise InvalidDocumentError(
                f"{where} is damaged, or nested too deep: {error!s:.400}"
            ) from error

    def json(self, data: object, where: str) -> Any:
        """What a text of JSON says, as older versions wrote it."""
        try:
            return json.loads(data, object_hook=self._constructed)  # type: ignore[arg-type]
        except (LookupError, RecursionError, TypeError, ValueError) as error:
            raise InvalidDocumentError(
                f"{where} is damaged: it is no JSON ({error!s:.400})"
            ) from error

    def _plain(self, code: int, data: bytes) -> Any:
        """What an extension type of msgpack holds."""
        if not 0 <= code <= EXT_DELTA_SNAPSHOT:
            return {"ext": code, "data": bytes(data)}
        known = self._messages.get(data)
        if known is not None:
            return known
        self._depth += 1
        if self._depth > DEEPEST:
            raise ValueError("it is nested too deep")
        inner = self._serializer.loads_typed(("msgpack", data))
        self._depth -= 1
        if code == EXT_DELTA_SNAPSHOT:
            return Whole(inner)
        if code == EXT_NUMPY:
            dtype, shape, order, content = inner
            return {"dtype": dtype, "shape": shape, "order": order, "data": content}
        module, name, made_of = inner[:3]
        found = plain(module, name, made_of)
        if isinstance(found, Message):
            if len(self._messages) >= MOST_MESSAGES:
                self._messages.clear()
            self._messages[bytes(data)] = found
        return found

    def _constructed(self, tree: dict[str, Any]) -> Any:
        """What an object of LangChain's JSON holds."""
        names, arguments = tree.get("id"), tree.get("args", [])
        is_constructor = tree.get("lc") in (1, 2) and tree.get("type") == "constructor"
        if not is_constructor or not isinstance(names, list) or not isinstance(arguments, list):
            return tree
        if not names or not all(isinstance(each, str) for each in names):
            return tree
        single = arguments[0] if len(arguments) == 1 else arguments
        return plain(".".join(names[:-1]), names[-1], tree.get("kwargs") or single)


def plain(module: object, name: object, made_of: Any) -> Any:
    """What is kept in place of an object of a type that the data names."""
    if not isinstance(module, str) or not isinstance(name, str):
        raise TypeError(
            f"a type is named by two texts, not by {short_repr(module)} and {short_repr(name)}"
        )
    role = ROLES.get(name.removesuffix("Chunk"))
    if role is not None and module.startswith("langchain") and isinstance(made_of, dict):
        return message(name, role, made_of)
    make = MADE.get((module, name))
    if make is None:
        return made_of
    try:
        return make(made_of)
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        return made_of  # such as a set of lists, which msgpack makes of tuples


def message(name: str, role: str, fields: dict[str, Any]) -> Message:
    """A message with a role, without what is empty."""
    more = fields.get("additional_kwargs")
    if role == "system" and isinstance(more, dict):
        role = str(more.get("__openai_role__", role))
    found = Message(role=fields.get("role", role), content=fields.get("content"))
    for field, value in fields.items():
        is_empty = value is None or value is False or value in ({}, [])
        if field == "tool_call_id" or not (is_empty or field == "type"):
            found[field] = value
    if name == "ToolMessage" and found.get("status") == "success":
        del found["status"]
    found[KIND] = name
    return found
