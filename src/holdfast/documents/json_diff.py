"""The difference between two states: by entry and field, and as a JSON Patch (RFC 6902)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.documents.encode import encode_state
from holdfast.documents.json_path import EntryPaths, JsonPath, Steps, step_matches
from holdfast.snapshots.session_state import MESSAGES
from holdfast.state.snapshot import Snapshot
from holdfast.values import to_json


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry that differs between two states."""

    namespace: str
    key: str
    kind: str
    """``added``, ``removed`` or ``changed``."""
    before: Any
    after: Any
    only: tuple[Steps, ...] = ()
    """The paths inside the entry that ``fields`` is limited to; all if empty."""

    @property
    def fields(self) -> list[dict[str, Any]]:
        """The changes inside the entry, as JSON Patch operations."""
        if self.kind == "added":
            return [{"op": "add", "path": "", "value": to_json(self.after)}]
        if self.kind == "removed":
            return [{"op": "remove", "path": ""}]
        found = make_patch(to_json(self.before), to_json(self.after))
        if not self.only:
            return list(found)
        return [
            each
            for each in found
            if any(is_on_path(split_pointer(each["path"]), steps) for steps in self.only)
        ]


def diff_states(later: Snapshot, base: Snapshot) -> list[Difference]:
    """Return the entries that differ, sorted by namespace and key."""
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


def make_state_patch(later: Snapshot, base: Snapshot) -> list[dict[str, Any]]:
    """Return a JSON Patch from the document of ``base`` to that of ``later``."""
    return list(make_patch(encode_state(base), encode_state(later), "/state"))


def make_patch(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Yield the JSON Patch operations from one JSON value to another."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in before:
            if name not in after:
                yield {"op": "remove", "path": f"{path}/{escape_pointer(name)}"}
        for name, value in after.items():
            if name in before:
                yield from make_patch(before[name], value, f"{path}/{escape_pointer(name)}")
            else:
                yield {"op": "add", "path": f"{path}/{escape_pointer(name)}", "value": value}
    elif isinstance(before, list) and isinstance(after, list):
        shared = min(len(before), len(after))
        for number in range(shared):
            yield from make_patch(before[number], after[number], f"{path}/{number}")
        for number in range(len(before) - 1, shared - 1, -1):
            yield {"op": "remove", "path": f"{path}/{number}"}
        for value in after[shared:]:
            yield {"op": "add", "path": f"{path}/-", "value": value}
    elif type(before) is not type(after) or before != after or repr(before) != repr(after):
        # 0.0 and -0.0 are equal, but not the same.
        yield {"op": "replace", "path": path, "value": after}


def escape_pointer(name: str) -> str:
    """Escape a name for a JSON Pointer."""
    return name.replace("~", "~0").replace("/", "~1")


def split_pointer(pointer: str) -> list[str]:
    """Split a JSON Pointer into names."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


# ------------------------------------------------------------------------------------- selection


def select_differences(
    found: list[Difference], paths: Sequence[JsonPath], later: Snapshot, base: Snapshot
) -> list[Difference]:
    """Return the differences at or inside some paths, limited to these.

    An entry that was added or removed is returned whole if a path leads into it.
    """
    if not paths:
        return found
    now, then = EntryPaths(later), EntryPaths(base)
    kept = []
    for each in found:
        places = then if each.kind == "removed" else now
        inside = [rest for _, rest in places.matching(paths, each.namespace, each.key)]
        if () in inside:
            kept.append(each)
        elif each.kind == "changed":
            narrowed = replace(each, only=tuple(inside))
            if inside and narrowed.fields:
                kept.append(narrowed)
        else:
            value = to_json(each.after if each.kind == "added" else each.before)
            if any(path_exists(value, rest) for rest in inside):
                kept.append(each)
    return kept


def select_operations(
    operations: Iterable[dict[str, Any]], paths: Sequence[JsonPath], later: Snapshot
) -> list[dict[str, Any]]:
    """Return the operations of a state patch that change something at or inside some paths."""
    if not paths:
        return list(operations)
    count = later.count(MESSAGES)
    wanted = [resolve_message_index(path.steps, count) for path in paths]
    return [each for each in operations if any(is_operation_at(each, steps) for steps in wanted)]


def is_operation_at(operation: dict[str, Any], steps: Steps) -> bool:
    """Return whether an operation on a document's state changes something at a path."""
    parts = split_pointer(operation["path"])[1:]  # without "state"
    if not is_on_path(parts, steps):
        return False
    return operation["op"] != "add" or path_exists(operation["value"], steps[len(parts) :])


def resolve_message_index(steps: Steps, count: int) -> Steps:
    """Return the steps with a negative message index replaced by a positive one."""
    if steps[0] == MESSAGES and len(steps) > 1 and isinstance(steps[1], int) and steps[1] < 0:
        return (MESSAGES, count + steps[1], *steps[2:])
    return steps


def is_on_path(parts: Sequence[str], steps: Steps) -> bool:
    """Return whether a pointer leads to a path, above it, or into it."""
    return all(
        step_matches(step, part)
        or (part.isdecimal() and step_matches(step, int(part)))
        or (part == "-" and not isinstance(step, str))
        for part, step in zip(parts, steps, strict=False)
    )


def path_exists(tree: Any, steps: Steps) -> bool:
    """Return whether a path exists in JSON data."""
    if not steps:
        return True
    if isinstance(tree, dict):
        return any(
            step_matches(steps[0], name) and path_exists(inner, steps[1:])
            for name, inner in tree.items()
        )
    if isinstance(tree, list):
        return any(
            step_matches(steps[0], number, len(tree)) and path_exists(inner, steps[1:])
            for number, inner in enumerate(tree)
        )
    return False
