"""LangGraph's serializer, restricted to allowed types, with a warning for others.

Stored data names the types of its objects. Building any type it names would let everyone who can
write to the store run code in the process that reads it. So only these are built: types that
LangGraph lists as safe, data classes of LangChain and LangGraph that the framework puts into the
state of a graph, and types that the user allows. Other objects come back as the plain data in them.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias

from langgraph.checkpoint.serde.event_hooks import SerdeEvent, register_serde_event_listener
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from holdfast.errors import short_repr

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
