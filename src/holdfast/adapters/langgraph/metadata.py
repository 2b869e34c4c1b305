"""Normalize checkpoint metadata as JSON would, and match it against filters.

LangGraph's database savers store metadata as JSON: a tuple comes back as a list and a dict key as a
str, and a filter with a list matches a tuple. Values that JSON cannot represent stay as they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointMetadata, get_checkpoint_metadata


def metadata_to_store(config: RunnableConfig, metadata: CheckpointMetadata) -> dict[str, Any]:
    """Return the metadata of a checkpoint, merged with that of its config, to store."""
    return {
        name: to_json_value(value)
        for name, value in get_checkpoint_metadata(config, metadata).items()
    }


def to_json_value(value: Any) -> Any:
    """Return a value as it would come back from JSON."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or kind is float or value is None:
        return value
    if isinstance(value, dict):
        return {to_json_key(key): to_json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json_value(each) for each in value]
    # Enums and other subclasses become what json.dumps writes.
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return int.__int__(value)
    if isinstance(value, float):
        return float.__float__(value)
    return value


def to_json_key(key: Any) -> Any:
    """Return a dict key as it would come back from JSON."""
    if isinstance(key, str):
        return str.__str__(key)
    if key is None or isinstance(key, bool):
        return {None: "null", True: "true", False: "false"}[key]
    if isinstance(key, int):
        return int.__repr__(key)
    if isinstance(key, float):
        return json.dumps(float(key))  # also infinity and NaN
    return key


def matches_filter(metadata: Mapping[str, Any], filter_: Mapping[str, Any] | None) -> bool:
    """Return whether metadata has all values of a filter.

    A name with dots is also a path, as in LangGraph's SqliteSaver: ``user.tier`` is the key
    ``tier`` of the dict ``user``, unless the metadata has the whole name as a key.
    """
    return all(
        find_value(metadata, name) == to_json_value(value)
        for name, value in (filter_ or {}).items()
    )


def find_value(metadata: Mapping[str, Any], name: str) -> Any:
    """Return the value at a name or path, or None."""
    if name in metadata:
        return metadata[name]
    found: Any = metadata
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            return None
        found = found[part]
    return found
