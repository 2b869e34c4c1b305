"""A session's state compared with a baseline: a document that was once found to be right.

So a change of a prompt, a model or a tool shows what it changes, in words that a person reads.
"""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

from holdfast.documents.document import Document
from holdfast.documents.files import read_document, write_document
from holdfast.documents.json_diff import Difference, diff_states
from holdfast.documents.json_path import EntryPaths, format_path, parse_paths, remove_paths
from holdfast.errors import InvalidDocumentError, short_repr
from holdfast.pytest_plugin import UPDATE, beside_test, is_updating, report_written
from holdfast.sessions.blocking import BlockingSession
from holdfast.sessions.session import Session
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.state.snapshot import Snapshot
from holdfast.values import to_json
from holdfast.values.binary_encoding import encode, is_same_value

Comparable: TypeAlias = BlockingSession | Session | SessionSnapshot | Document | Snapshot

MOST_PLACES = 40
MOST_LINES = 20
LONGEST = 160
NEAR = 40


def assert_matches_baseline(
    actual: Comparable,
    path: str | os.PathLike[str],
    ignore: Iterable[str] = (),
    *,
    update: bool | None = None,
) -> None:
    """Fail where a state is not that of a baseline, and say where it differs.

    ``path`` is relative to the folder of the test. ``ignore`` are paths to what may differ:
    ``values.started_at``, ``messages[*].id``. Under ``pytest --holdfast-update``, or with
    ``update``, the baseline is written where it is missing or differs, and the test passes.
    """
    __tracebackhide__ = True
    ignored = parse_paths(ignore)
    state = state_of(actual)
    target = beside_test(path)
    may_write = is_updating() if update is None else update
    if not target.exists():
        if not may_write:
            raise AssertionError(
                f"there is no baseline {target}: if the state is right, run pytest {UPDATE} to "
                "write it, and keep it with the tests"
            )
        write(actual, target, "wrote")
        return
    try:
        baseline = read_document(target, allow_modified=True)
    except InvalidDocumentError:
        if not may_write:
            raise
        write(actual, target, "updated")
        return
    found = diff_states(remove_paths(state, ignored), remove_paths(baseline.snapshot, ignored))
    if found and may_write:
        write(actual, target, "updated")
    elif found:
        raise AssertionError(
            report(found, target, EntryPaths(state), EntryPaths(baseline.snapshot))
        )


def state_of(actual: Comparable) -> Snapshot:
    """The state that is compared: of a session as it is in memory, committed or not."""
    if isinstance(actual, Snapshot):
        return actual
    if isinstance(actual, SessionSnapshot | Document):
        return actual.snapshot
    if isinstance(actual, BlockingSession | Session):
        return actual.snapshot()
    raise TypeError(
        f"expected a session, a SessionSnapshot, a Document or a Snapshot, got {short_repr(actual)}"
    )


def write(actual: Comparable, target: Path, what: str) -> None:
    """Write a baseline: a document, without the events that led there."""
    if isinstance(actual, SessionSnapshot):
        actual = Document.from_snapshot(actual)
    elif not isinstance(actual, Document):
        session = None if isinstance(actual, Snapshot) else actual
        actual = Document(
            snapshot=state_of(actual),
            agent_id=session.agent_id if session else "baseline",
            session_id=session.session_id if session else "baseline",
            scope=session.scope if session else "agent",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_document(actual, target)
    report_written(target, what)


# --------------------------------------------------------------------------- what it says


def report(found: list[Difference], target: Path, now: EntryPaths, then: EntryPaths) -> str:
    """What differs, place by place, each as a path that may be ignored."""
    places = [
        place
        for each in found
        for place in places_of(each, then if each.kind == "removed" else now)
    ]
    lines = [f"the state differs from the baseline {target} in {count(len(places), 'place')}:", ""]
    for sign, where, details in places[:MOST_PLACES]:
        lines.append(f"  {sign} {where}")
        lines += [f"      {line}" for line in details]
    if len(places) > MOST_PLACES:
        lines.append(f"  … and {count(len(places) - MOST_PLACES, 'more place')}")
    lines += [
        "",
        "Where it may differ, add the path to ignore=[…]. Where the new state is right, run",
        f"pytest {UPDATE} to make it the baseline.",
    ]
    return "\n".join(lines)


def count(number: int, what: str) -> str:
    """So many of something."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def places_of(each: Difference, places: EntryPaths) -> Iterator[tuple[str, str, list[str]]]:
    """A sign, a path and details for each place in which an entry differs."""
    steps = places.steps_to(each.namespace, each.key)
    if each.kind == "added":
        yield "+", format_path(steps), [shortened(each.after)]
    elif each.kind == "removed":
        yield "-", format_path(steps), [shortened(each.before)]
    else:
        yield from unequal(each.before, each.after, steps)


def unequal(
    before: Any, after: Any, steps: tuple[object, ...]
) -> Iterator[tuple[str, str, list[str]]]:
    """The same for what differs inside a value, as far as a path can say where."""
    if is_same_value(encode(before), encode(after)):
        return
    inner, later = inside(before), inside(after)
    if type(before) is not type(after) or inner is None or later is None:
        yield "~", format_path(steps), told(before, after)
        return
    for key, value in inner.items():
        if key not in later:
            yield "-", format_path((*steps, key)), [shortened(value)]
    for key, value in later.items():
        if key in inner:
            yield from unequal(inner[key], value, (*steps, key))
        else:
            yield "+", format_path((*steps, key)), [shortened(value)]


def inside(value: Any) -> dict[object, Any] | None:
    """What a value holds, by the steps that lead to it; None where no path leads further."""
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, dict) and all(type(key) in (str, int) for key in value):
        return value
    return None


def told(old: Any, new: Any) -> list[str]:
    """What was there and what is there now; of long texts only where they differ."""
    start = 0
    if isinstance(old, str) and isinstance(new, str):
        if "\n" in old or "\n" in new:
            lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=1, lineterm=""))
            more = ["…"] if len(lines) > MOST_LINES + 2 else []
            if lines:
                return [line[:LONGEST] for line in lines[2 : MOST_LINES + 2]] + more
        pairs = enumerate(zip(old, new, strict=False))
        differ = next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))
        start = max(0, differ - NEAR)
    return [f"- {shortened(old, start)}", f"+ {shortened(new, start)}"]


def shortened(value: Any, start: int = 0) -> str:
    """A value on one line; of a long text the part that begins there."""
    if isinstance(value, str) and len(value) > LONGEST:
        part = json.dumps(value[start : start + LONGEST], ensure_ascii=False)
        return f"{'…' if start else ''}{part}{'…' if start + LONGEST < len(value) else ''}"
    text = json.dumps(to_json(value), ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"
