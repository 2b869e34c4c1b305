"""Paths into the state of a document.

    values.customer.name     messages[3].content     messages[*].id     namespaces.crm["a.b"].phone
    status                   messages[-1]            session.owner      /values/customer/name

``[*]`` and ``*`` match everything. A path that starts with a slash is a JSON Pointer (RFC 6901), in
which ``*`` means the same. A leading ``state`` is optional.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from holdfast.errors import short_repr
from holdfast.snapshots.session_state import MESSAGES, SESSION, STATE, STATUS
from holdfast.state.snapshot import Snapshot
from holdfast.state.store import Store
from holdfast.values.lowering import registered_names, registered_types


class Wildcard:
    """The step ``*``."""

    def __repr__(self) -> str:
        return "*"


WILDCARD: Final = Wildcard()
REMOVED: Final = object()
IGNORED: Final = "(ignored)"

Step: TypeAlias = str | int | Wildcard
Steps: TypeAlias = tuple[Step, ...]

ROOTS = ("values", "messages", "namespaces", "status", "session")
STEP_PATTERN = re.compile(
    r"""(?: ^ | \. ) (?P<name> [^.\[\]]+ )
      | \[ (?P<index> -?\d+ | \* ) \]
      | \[ (?P<quoted> "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' ) \]""",
    re.VERBOSE,
)
PLAIN_NAME = re.compile(r"[^\W\d][\w/:@-]*")


@dataclass(frozen=True, slots=True)
class JsonPath:
    """A path that leads to one or more values of a state."""

    text: str
    steps: Steps

    def __str__(self) -> str:
        return self.text


def parse_path(text: str, roots: Sequence[str] = ROOTS) -> JsonPath:
    """Parse a path that starts with one of the roots.

    Raises:
        ValueError: It is not a valid path.

    """
    if not isinstance(text, str):
        raise TypeError(f"path must be a str such as values.customer.name, got {short_repr(text)}")
    steps = parse_pointer(text) if text.startswith("/") else parse_dotted_path(text)
    if len(steps) > 1 and steps[0] == "state" and steps[1] in roots:
        steps = steps[1:]
    if steps[0] not in roots:
        meant = "" if text.startswith("/") else f" (did you mean values.{text}?)"
        raise invalid_path_error(text, f"must start with one of {', '.join(roots)}{meant}")
    if steps[0] == MESSAGES and len(steps) > 1:
        if isinstance(steps[1], str) and not steps[1].isdecimal():
            raise invalid_path_error(text, f"must name a message, such as messages[*].{steps[1]}")
        steps = (MESSAGES, int(steps[1]) if isinstance(steps[1], str) else steps[1], *steps[2:])
    if steps[0] == STATUS and len(steps) > 1:
        raise invalid_path_error(text, "the status has no parts")
    return JsonPath(text, steps)


def parse_paths(texts: Iterable[str], roots: Sequence[str] = ROOTS) -> tuple[JsonPath, ...]:
    """Parse several paths.

    Raises:
        ValueError: One of them is not a valid path.

    """
    if isinstance(texts, str):
        raise TypeError(f"paths must be a list of str, got a str; pass [{texts!r}]")
    return tuple(parse_path(text, roots) for text in texts)


def parse_dotted_path(text: str) -> Steps:
    """Return the steps of ``values.customer[0].name``."""
    rest = text.removeprefix("$.")
    steps: list[Step] = []
    at = 0
    while at < len(rest) or not steps:
        found = STEP_PATTERN.match(rest, at)
        if found is None:
            raise invalid_path_error(
                text, f"unexpected {short_repr(rest[at:])}" if rest[at:] else "it is empty"
            )
        at = found.end()
        name, index, quoted = found["name"], found["index"], found["quoted"]
        if quoted:
            steps.append(unquote_name(text, quoted))
        elif "*" in (name, index):
            steps.append(WILDCARD)
        else:
            steps.append(name if index is None else int(index))
    return tuple(steps)


def unquote_name(text: str, quoted: str) -> str:
    """Return a name without its single or double quotes."""
    inner = quoted[1:-1]
    if quoted[0] == "'":
        inner = inner.replace("\\'", "'").replace('"', '\\"')
    try:
        return str(json.loads(f'"{inner}"'))
    except ValueError:
        raise invalid_path_error(text, f"{quoted} is not a valid JSON string") from None


def parse_pointer(text: str) -> Steps:
    """Return the steps of ``/values/customer/0/name``."""
    if re.search(r"~(?![01])", text):
        raise invalid_path_error(text, "in a JSON Pointer, write ~ as ~0 and / in a name as ~1")
    names = [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]
    return tuple(WILDCARD if name == "*" else name for name in names)


def invalid_path_error(text: str, reason: str) -> ValueError:
    """Return the error for an invalid path."""
    return ValueError(
        f"invalid path {short_repr(text)}: {reason}; use a path such as values.customer.name, "
        "messages[*].content, namespaces.crm.phone or /values/customer/name"
    )


def format_path(steps: Iterable[object]) -> str:
    """Return steps as the text of a path."""
    text = ""
    for step in steps:
        if isinstance(step, str) and PLAIN_NAME.fullmatch(step):
            text += f".{step}" if text else step
        elif type(step) is int or step is WILDCARD:
            text += f"[{step}]"
        else:
            text += f"[{json.dumps(step if isinstance(step, str) else str(step))}]"
    return text


# ------------------------------------------------------------------------------ in a whole state


class EntryPaths:
    """Maps the entries of a state to their paths in a document."""

    def __init__(self, state: Snapshot) -> None:
        keys = [key for _, key, _ in state.items(MESSAGES)]
        self._index = {key: number for number, key in enumerate(keys)}

    def steps_to(self, namespace: str, key: str) -> Steps:
        """Return the steps to an entry. A message that is not in the state has its key as index."""
        if namespace == MESSAGES:
            number = int(key) if key.isascii() and key.isdecimal() else key
            return (MESSAGES, self._index.get(key, number))
        if namespace == STATE:
            return ("values", key)
        if namespace == SESSION:
            return (STATUS,) if key == STATUS else (SESSION, key)
        return ("namespaces", namespace, key)

    def matching(
        self, paths: Iterable[JsonPath], namespace: str, key: str
    ) -> Iterator[tuple[JsonPath, Steps]]:
        """Yield the paths to or into an entry, each with its remaining steps inside the entry."""
        entry = self.steps_to(namespace, key)
        for path in paths:
            steps = path.steps
            if (
                namespace == MESSAGES
                and len(steps) > 1
                and isinstance(steps[1], int)
                and steps[1] < 0
            ):
                steps = (MESSAGES, len(self._index) + steps[1], *steps[2:])
            if all(step_matches(step, name) for step, name in zip(steps, entry, strict=False)):
                yield path, steps[len(entry) :]


def remove_paths(state: Snapshot, paths: Sequence[JsonPath]) -> Snapshot:
    """Return a state without the values that some paths lead to."""
    if not paths:
        return state
    entry_paths = EntryPaths(state)
    store = Store(max_history=0)
    for namespace, key, value in state.items():
        kept = value
        for _, rest in entry_paths.matching(paths, namespace, key):
            kept = transform_at(kept, rest, lambda _: REMOVED)
            if kept is REMOVED:
                break
        if kept is not REMOVED:
            store.set(namespace, key, kept)
    return store.snapshot()


# ------------------------------------------------------------------------------ in one value


def step_matches(step: object, key: object, size: int | None = None) -> bool:
    """Return whether a step matches a key, or an index of a list of this size."""
    if step is WILDCARD:
        return True
    if isinstance(step, str):
        return step == key or (type(key) is int and step == str(key))
    return type(key) is int and (step == key or (size is not None and step == key - size))


def transform_at(value: Any, steps: Steps, change: Callable[[Any], Any]) -> Any:
    """Return a value with ``change`` applied to everything that the steps lead to.

    A value that becomes ``REMOVED`` is left out. In a list a placeholder replaces it, unless it is
    last, so that the indexes of the items after it stay the same.
    """
    if not steps:
        return change(value)
    step, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        items = {
            key: transform_at(item, rest, change) if step_matches(step, key) else item
            for key, item in value.items()
        }
        return {key: item for key, item in items.items() if item is not REMOVED}
    if isinstance(value, list | tuple):
        found = [
            transform_at(item, rest, change) if step_matches(step, number, len(value)) else item
            for number, item in enumerate(value)
        ]
        kept = [IGNORED if item is REMOVED else item for item in found]
        while any(item is REMOVED for item in found) and kept and kept[-1] == IGNORED:
            kept.pop()
        return type(value)(kept)
    if isinstance(value, set | frozenset) and step is WILDCARD:
        members = (transform_at(item, rest, change) for item in value)
        return type(value)([item for item in members if item is not REMOVED])
    if type(value) in registered_types:
        return rebuild_registered(value, lambda content: transform_at(content, steps, change))
    return value


def rebuild_registered(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return an object of a registered type with its content changed.

    If the type rejects the new content, the content itself is returned.
    """
    name, content_of = registered_types[type(value)]
    content = content_of(value)
    new = change(content)
    if new == content:
        return value
    try:
        return registered_names[name][1](new)
    except Exception:  # noqa: BLE001 - user code may raise anything
        return new
