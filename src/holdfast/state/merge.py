"""Three-way merges."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from holdfast.errors import ConflictError, UnsupportedValueError, short_repr
from holdfast.state.diff import EncodedChange, find_differences, is_equal
from holdfast.state.merge_conflict import MISSING, Conflict
from holdfast.state.snapshot import find_value
from holdfast.state.trie import Trie
from holdfast.values.binary_encoding import decode, encode


def resolve_merge(ours: Trie, theirs: Trie, base: Trie, on_conflict: object) -> list[EncodedChange]:
    """Return what to write to ``ours``, as differences from it to the merged state.

    Raises:
        ConflictError: Both sides changed an entry differently, and ``on_conflict`` is "raise".
        UnsupportedValueError: The function returned a value that cannot be stored.

    """
    decide: Callable[[Conflict], object] | None = None
    if callable(on_conflict):
        decide = cast("Callable[[Conflict], object]", on_conflict)
    elif on_conflict not in ("raise", "ours", "theirs"):
        raise ValueError(
            'on_conflict must be "raise", "ours", "theirs" or a function, '
            f"got {short_repr(on_conflict)}"
        )
    result: list[EncodedChange] = []
    conflicts: list[tuple[str, str]] = []
    for namespace, key, their_data, base_data in find_differences(theirs, base):
        our_data = find_value(ours, namespace, key)
        if _same(our_data, their_data):
            continue
        data = their_data
        if not _same(our_data, base_data):
            if on_conflict == "raise":
                conflicts.append((namespace, key))
                continue
            if on_conflict == "ours":
                continue
            if decide is not None:
                conflict = Conflict(
                    namespace, key, _value(base_data), _value(our_data), _value(their_data)
                )
                data = _encoded(conflict, decide(conflict))
                if _same(our_data, data):
                    continue
        result.append((namespace, key, data, our_data))
    if conflicts:
        names = ", ".join(f"{namespace}/{key}" for namespace, key in conflicts[:5])
        more = f" and {len(conflicts) - 5} more" if len(conflicts) > 5 else ""
        raise ConflictError(
            f"both sides changed {names}{more} differently, nothing was merged; pass "
            'on_conflict="ours", "theirs" or a function',
            conflicts,
        )
    return result


def _encoded(conflict: Conflict, decision: object) -> bytes | None:
    if decision is MISSING:
        return None
    try:
        return encode(decision)
    except UnsupportedValueError as error:
        raise UnsupportedValueError(
            f"on_conflict returned an invalid value for namespace {conflict.namespace!r}, key "
            f"{conflict.key!r}: {error}",
            error.path,
        ) from None


def _same(a: bytes | None, b: bytes | None) -> bool:
    if a is None or b is None:
        return a is b
    return is_equal(a, b)


def _value(data: bytes | None) -> object:
    return MISSING if data is None else decode(data)
