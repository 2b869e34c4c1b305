"""Which items a search finds, and which namespaces a list includes."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from langgraph.store.base import MatchCondition

from holdfast.errors import short_repr

EQUALITY: dict[str, Callable[[Any, Any], bool]] = {"$eq": operator.eq, "$ne": operator.ne}
ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def matches_filter(value: Mapping[str, Any], wanted: Mapping[str, Any] | None) -> bool:
    """Tell whether the value of an item matches a filter.

    Raises:
        ValueError: The filter has an unknown operator, or compares with what has no order.

    """
    return not wanted or all(matches(value.get(key), each) for key, each in wanted.items())


def matches(value: Any, wanted: Any) -> bool:
    """Tell whether a value equals what is wanted, or satisfies its operators."""
    if isinstance(wanted, dict):
        if is_operators(wanted):
            return all(apply_operator(value, name, other) for name, other in wanted.items())
        return isinstance(value, dict) and all(
            matches(value.get(key), each) for key, each in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(map(matches, value, wanted))
        )
    return bool(value == wanted)


def is_operators(wanted: dict[Any, Any]) -> bool:
    """Tell whether a dict in a filter holds operators, and is not a nested object."""
    return any(isinstance(key, str) and key.startswith("$") for key in wanted)


def apply_operator(value: Any, name: str, other: Any) -> bool:
    """Apply an operator; numbers and texts have an order among themselves, other values none."""
    if name in EQUALITY:
        return bool(EQUALITY[name](value, other))
    if name not in ORDER:
        raise ValueError(
            f"unknown operator {short_repr(name)}; use one of {', '.join([*EQUALITY, *ORDER])}"
        )
    number, bound = to_float(value), to_float(other)
    if bound is None and not isinstance(other, str):
        raise ValueError(f"{name} compares numbers and texts, got {short_repr(other)}")
    if number is not None and bound is not None:
        return ORDER[name](number, bound)
    return isinstance(value, str) and isinstance(other, str) and ORDER[name](value, other)


def to_float(value: Any) -> float | None:
    """Return a number, or the number in a text, as a float."""
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def validate_filter(wanted: object) -> None:
    """Check the operators of a filter.

    Raises:
        TypeError: The filter is not a dict.
        ValueError: It has an unknown operator, or compares with what has no order.

    """
    if not isinstance(wanted, Mapping):
        raise TypeError(
            f'filter must be a dict such as {{"kind": "food"}}, got {short_repr(wanted)}'
        )
    pending: list[Any] = list(wanted.values())
    while pending:
        each = pending.pop()
        if isinstance(each, dict):
            if is_operators(each):
                for name, other in each.items():
                    apply_operator(None, name, other)
            else:
                pending += each.values()
        elif isinstance(each, list | tuple):
            pending += each


def matches_condition(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    """Tell whether a namespace starts or ends with a path, in which ``*`` stands for any label.

    Raises:
        ValueError: The match type is unknown.

    """
    path = condition.path
    if condition.match_type == "prefix":
        part = namespace[: len(path)]
    elif condition.match_type == "suffix":
        part = namespace[-len(path) :] if path else ()
    else:
        raise ValueError(
            f"unknown match type {short_repr(condition.match_type)}; use prefix or suffix"
        )
    return len(part) == len(path) and all(
        wanted in ("*", label) for label, wanted in zip(part, path, strict=True)
    )


def literal_prefix(conditions: tuple[MatchCondition, ...]) -> tuple[str, ...]:
    """Return the labels that all matching namespaces start with."""
    longest: tuple[str, ...] = ()
    for condition in conditions:
        if condition.match_type == "prefix":
            path = tuple(condition.path)
            labels = path[: path.index("*")] if "*" in path else path
            longest = max(longest, labels, key=len)
    return longest
