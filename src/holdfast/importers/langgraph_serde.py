"""Decode the values in LangGraph's databases without importing anything that they name.

LangGraph stores an object as a msgpack extension: the name of its type and the data to build it
from. LangChain's messages and types that Holdfast stores natively (times, UUIDs, decimals, sets)
are built here, from a fixed table. Any other object stays an `Extension` with its bytes unchanged:
`HoldfastSaver` stores them, and LangGraph's serializer decodes them with its allowlist when a graph
loads the thread. Pickles are refused.
"""

from __future__ import annotations

import datetime as dt
import decimal
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ormsgpack
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.importers.langgraph_database import parse_json

CONSTRUCTORS = range(6)
"""Codes of the extensions that name a type; others are arrays and values of delta channels."""
MAX_DEPTH = 64
"""Extensions can be nested, and each level is decoded by a nested call."""
MAX_CACHED_MESSAGES = 100_000
ENCODINGS = ("null", "bytes", "bytearray", "msgpack")

BUILDERS: dict[tuple[str, str], Callable[[Any], Any]] = {
    ("datetime", "datetime"): dt.datetime.fromisoformat,
    ("datetime", "date"): lambda parts: dt.date(*parts),
    ("datetime", "time"): lambda fields: dt.time(**fields),
    ("datetime", "timedelta"): lambda parts: dt.timedelta(*parts),
    ("datetime", "timezone"): lambda parts: dt.timezone(*parts),
    ("uuid", "UUID"): uuid.UUID,
    ("decimal", "Decimal"): decimal.Decimal,
    ("builtins", "set"): set,
    ("builtins", "frozenset"): frozenset,
}
MESSAGES: dict[str, Callable[..., Any]] = {
    kind.__name__: kind for kind in (HumanMessage, AIMessage, SystemMessage, ToolMessage)
}
BUILD_ERRORS = (ArithmeticError, LookupError, TypeError, ValueError)


@dataclass(slots=True)
class Extension:
    """A msgpack extension that is not decoded: an object of a type outside the tables."""

    code: int
    data: bytes
    content: Any = field(compare=False, default=None)

    def __repr__(self) -> str:
        """Show the type and content for people; `HoldfastSaver` stores it beside the bytes."""
        if isinstance(self.content, list):
            return f"{self.content[1]}({self.content[2]!r})"
        return f"Extension({self.code}, {len(self.data)} bytes)"


class ExtensionSerializer(JsonPlusSerializer):
    """LangGraph's serializer, which writes an `Extension` as the bytes it was read from."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return the encoding and bytes of a value."""
        return super().dumps_typed(to_msgpack(obj))


def to_msgpack(value: Any) -> Any:
    """Return a value with each `Extension` replaced by one that ormsgpack writes."""
    if type(value) is list:
        return [to_msgpack(each) for each in value]
    if type(value) is dict:
        return {key: to_msgpack(each) for key, each in value.items()}
    if isinstance(value, Extension):
        return ormsgpack.Ext(value.code, value.data)
    return value


class Serde:
    """Decodes the values of one database."""

    def __init__(self) -> None:
        self._depth = 0
        self._extensions = 0
        self._messages: dict[bytes, Any] = {}
        """Decoded messages by their bytes: a message is in every checkpoint that follows it."""

    def decode(self, encoding: object, data: object, where: str) -> Any:
        """Return a stored value; ``where`` names it in errors.

        Raises:
            InvalidDocumentError: The value is damaged, encrypted or a pickle.

        """
        if encoding == "pickle":
            raise InvalidDocumentError(
                f"{where} is a pickle, which could run code; write the thread again with a "
                "serializer without pickle_fallback"
            )
        if encoding == "json":
            return parse_json(data, where, object_hook=build_from_json)
        if encoding not in ENCODINGS:
            problem = "is encrypted" if "+" in str(encoding) else "has an unknown encoding"
            raise InvalidDocumentError(f"{where} {problem}: {short_repr(encoding)}")
        if encoding == "null":
            return None
        if not isinstance(data, bytes):
            raise InvalidDocumentError(
                f"{where} is damaged: expected bytes, got {short_repr(data)}"
            )
        if encoding == "bytes":
            return data
        if encoding == "bytearray":
            return bytearray(data)
        self._depth = 0
        try:
            return self._unpack(data)
        except (LookupError, RecursionError, TypeError, ValueError) as error:
            raise InvalidDocumentError(
                f"{where} is damaged or nested too deeply: {error!s:.400}"
            ) from error

    def _unpack(self, data: bytes) -> Any:
        return ormsgpack.unpackb(
            data, ext_hook=self._decode_extension, option=ormsgpack.OPT_NON_STR_KEYS
        )

    def _decode_extension(self, code: int, data: bytes) -> Any:
        if code not in CONSTRUCTORS:
            self._extensions += 1
            return Extension(code, data)
        if data in self._messages:
            return self._messages[data]
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} nested objects")
        extensions = self._extensions
        content = self._unpack(data)
        self._depth -= 1
        module, name, arguments = content[:3]
        # An object around one that is not decoded is not decoded either.
        if self._extensions == extensions:
            try:
                built = build(module, name, arguments)
            except BUILD_ERRORS:
                pass
            else:
                if name in MESSAGES:
                    if len(self._messages) >= MAX_CACHED_MESSAGES:
                        self._messages.clear()
                    self._messages[data] = built
                return built
        self._extensions += 1
        return Extension(code, data, content)


def build(module: object, name: object, arguments: Any) -> Any:
    """Return an object of a type in the tables above.

    Raises:
        LookupError: The type is not in the tables.
        ArithmeticError, TypeError, ValueError: The arguments do not fit the type.

    """
    if name in MESSAGES and str(module).startswith("langchain"):
        return MESSAGES[str(name)](**arguments)
    return BUILDERS[str(module), str(name)](arguments)


def build_from_json(tree: dict[str, Any]) -> Any:
    """Return the object that LangChain's JSON describes, or its content if it is not built.

    Old versions of LangGraph stored JSON. `HoldfastSaver` does not decode it, so other objects
    cannot be kept for later.
    """
    names, arguments = tree.get("id"), tree.get("args", [])
    is_constructor = tree.get("lc") in (1, 2) and tree.get("type") == "constructor"
    if not is_constructor or not isinstance(names, list) or not isinstance(arguments, list):
        return tree
    if not names or not all(isinstance(each, str) for each in names):
        return tree
    content = tree.get("kwargs") or (arguments[0] if len(arguments) == 1 else arguments)
    try:
        return build(".".join(names[:-1]), names[-1], content)
    except BUILD_ERRORS:
        return content
