"""What differs between two states: which entries, and inside them which fields.

The same as JSON Patch (RFC 6902), which leads from the ``state`` of one document to that of
another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from holdfast.snapshots.document import state_json
from holdfast.state.snapshot import Snapshot
from holdfast.values import to_json


@dataclass(frozen=True, slots=True)
class Difference:
    """One entry that differs. ``fields`` are the changes inside it, as JSON Patch operations."""

    namespace: str
    key: str
    kind: str
    """``added``, ``removed`` or ``changed``."""
    before: Any
    after: Any

    @property
    def fields(self) -> list[dict[str, Any]]:
        """What changed inside it; the whole value where it was added or removed."""
        if self.kind == "added":
            return [{"op": "add", "path": "", "value": to_json(self.after)}]
        if self.kind == "removed":
            return [{"op": "remove", "path": ""}]
        return list(patch(to_json(self.before), to_json(self.after)))


def differences(later: Snapshot, base: Snapshot) -> list[Difference]:
    """Every entry that differs, sorted by namespace and key."""
    found = []
    diff = later.diff(base)
    for kind, pairs in (
        ("added", diff["added"]),
        ("removed", diff["removed"]),
        ("changed", diff["changed"]),
    ):
        found += [
            Difference(space, key, kind, base.get(space, key), later.get(space, key))
            for space, key in pairs
        ]
    return sorted(found, key=lambda each: (each.namespace, each.key))


def state_patch(later: Snapshot, base: Snapshot) -> list[dict[str, Any]]:
    """JSON Patch that leads from the document of ``base`` to the state of ``later``."""
    return list(patch(state_json(base), state_json(later), "/state"))


def patch(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """The operations that make ``after`` of ``before``, both JSON data."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before:
            if name not in after:
                yield {"op": "remove", "path": f"{path}/{escaped(name)}"}
        for name, value in after.items():
            if name in before:
                yield from patch(before[name], value, f"{path}/{escaped(name)}")
            else:
                yield {"op": "add", "path": f"{path}/{escaped(name)}", "value": value}
    elif isinstance(before, list) and isinstance(after, list):
        shared = min(len(before), len(after))
        for number in range(shared):
            yield from patch(before[number], after[number], f"{path}/{number}")
        for number in range(len(before) - 1, shared - 1, -1):
            yield {"op": "remove", "path": f"{path}/{number}"}
        for value in after[shared:]:
            yield {"op": "add", "path": f"{path}/-", "value": value}
    elif type(before) is not type(after) or before != after or repr(before) != repr(after):
        # The signs of two zeros differ, though they are equal.
        yield {"op": "replace", "path": path, "value": after}


def escaped(name: str) -> str:
    """A name as a part of a JSON Pointer."""
    return name.replace("~", "~0").replace("/", "~1")
