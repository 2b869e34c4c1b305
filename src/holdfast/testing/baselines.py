"""Compare a session's state with a baseline, a document of the expected state.

The error lists each path that differs, so that a changed prompt, model or tool shows its effect.
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
from holdfast.pytest_plugin import UPDATE, is_updating, report_written, resolve_path
from holdfast.sessions.blocking import BlockingSession
from holdfast.sessions.session import Session
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.state.batch import WriteBatch
from holdfast.state.snapshot import Snapshot, encoded_changes
from holdfast.state.store import Store, write_batch
from holdfast.values import to_json
from holdfast.values.binary_encoding import encode, is_same_value
from holdfast.values.reference_text import describe_reference
from holdfast.values.references import Attachment, BlobReference, externalize

Comparable: TypeAlias = BlockingSession | Session | SessionSnapshot | Document | Snapshot

MAX_CHANGES = 40
MAX_LINES = 20
MAX_LENGTH = 160
CONTEXT = 40


def assert_matches_baseline(
    actual: Comparable,
    path: str | os.PathLike[str],
    ignore: Iterable[str] = (),
    *,
    update: bool | None = None,
) -> None:
    """Fail if a state differs from a baseline, and list the paths that differ.

    Values of 64 KiB or more are compared by their digests, and shown as references.

    ``path`` is relative to the folder of the test. Paths in ``ignore`` may differ:
    ``values.started_at``, ``messages[*].id``. With ``pytest --holdfast-update``, or ``update``,
    a baseline that is missing or differs is written instead.

    Raises:
        AssertionError: The state differs, or the baseline does not exist.
        InvalidDocumentError: The baseline cannot be read.
        ValueError: A path in ``ignore`` is invalid.

    """
    __tracebackhide__ = True
    ignored = parse_paths(ignore)
    state = refer_to_blobs(extract_state(actual))
    target = resolve_path(path)
    may_write = is_updating() if update is None else update
    if not target.exists():
        if not may_write:
            raise AssertionError(
                f"no baseline {target}; if the state is right, run pytest {UPDATE} to write it, "
                "and commit it with the tests"
            )
        write_baseline(actual, target, "wrote")
        return
    try:
        baseline = read_document(target, allow_modified=True)
    except InvalidDocumentError:
        if not may_write:
            raise
        write_baseline(actual, target, "updated")
        return
    then = refer_to_blobs(baseline.snapshot)
    found = diff_states(remove_paths(state, ignored), remove_paths(then, ignored))
    if found and may_write:
        write_baseline(actual, target, "updated")
    elif found:
        raise AssertionError(format_report(found, target, EntryPaths(state), EntryPaths(then)))


def extract_state(actual: Comparable) -> Snapshot:
    """Return the state to compare; a session's pending events are included."""
    if isinstance(actual, Snapshot):
        return actual
    if isinstance(actual, SessionSnapshot | Document):
        return actual.snapshot
    if isinstance(actual, BlockingSession | Session):
        return actual.snapshot()
    raise TypeError(
        f"expected a session, a SessionSnapshot, a Document or a Snapshot, got {short_repr(actual)}"
    )


def refer_to_blobs(state: Snapshot) -> Snapshot:
    """Return a state with references in place of large values, whether they were blobs or not."""
    store = Store(max_history=0)
    batch = WriteBatch([])
    for namespace, key, data in encoded_changes(state, store.snapshot()):
        batch.add(namespace, key, None if data is None else bytes(externalize(data)))
    write_batch(store, batch)
    return store.snapshot()


def write_baseline(actual: Comparable, target: Path, what: str) -> None:
    """Write a baseline, a document without events."""
    if isinstance(actual, SessionSnapshot):
        actual = Document.from_snapshot(actual)
    elif not isinstance(actual, Document):
        session = None if isinstance(actual, Snapshot) else actual
        actual = Document(
            snapshot=extract_state(actual),
            agent_id=session.agent_id if session else "baseline",
            session_id=session.session_id if session else "baseline",
            scope=session.scope if session else "agent",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    write_document(actual, target)
    report_written(target, what)


# ------------------------------------------------------------------------------ error message


def format_report(found: list[Difference], target: Path, now: EntryPaths, then: EntryPaths) -> str:
    """Return the error message: each path that differs, in the form of ``ignore``."""
    places = [
        place
        for each in found
        for place in list_changes(each, then if each.kind == "removed" else now)
    ]
    lines = [f"state differs from baseline {target} in {format_count(len(places), 'place')}:", ""]
    for sign, where, details in places[:MAX_CHANGES]:
        lines.append(f"  {sign} {where}")
        lines += [f"      {line}" for line in details]
    if len(places) > MAX_CHANGES:
        lines.append(f"  … and {format_count(len(places) - MAX_CHANGES, 'more place')}")
    lines += [
        "",
        "Add a path to ignore=[…] if it may differ. If the new state is right, run",
        f"pytest {UPDATE} to update the baseline.",
    ]
    return "\n".join(lines)


def format_count(number: int, what: str) -> str:
    """Return a number with its noun."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def list_changes(each: Difference, places: EntryPaths) -> Iterator[tuple[str, str, list[str]]]:
    """Yield a sign, a path and details for each change of an entry."""
    steps = places.steps_to(each.namespace, each.key)
    if each.kind == "added":
        yield "+", format_path(steps), [shorten(each.after)]
    elif each.kind == "removed":
        yield "-", format_path(steps), [shorten(each.before)]
    else:
        yield from diff_values(each.before, each.after, steps)


def diff_values(
    before: Any, after: Any, steps: tuple[object, ...]
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the same for each change inside a value."""
    if is_same_value(encode(before), encode(after)):
        return
    inner, later = get_children(before), get_children(after)
    if type(before) is not type(after) or inner is None or later is None:
        yield "~", format_path(steps), format_change(before, after)
        return
    for key, value in inner.items():
        if key not in later:
            yield "-", format_path((*steps, key)), [shorten(value)]
    for key, value in later.items():
        if key in inner:
            yield from diff_values(inner[key], value, (*steps, key))
        else:
            yield "+", format_path((*steps, key)), [shorten(value)]


def get_children(value: Any) -> dict[object, Any] | None:
    """Return the items of a value by path step; None if it has no addressable items."""
    if isinstance(value, list | tuple):
        return dict(enumerate(value))
    if isinstance(value, dict) and all(type(key) in (str, int) for key in value):
        return value
    return None


def format_change(old: Any, new: Any) -> list[str]:
    """Return the old and the new value; of long texts only the part that differs."""
    start = 0
    if isinstance(old, str) and isinstance(new, str):
        if "\n" in old or "\n" in new:
            lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=1, lineterm=""))
            more = ["…"] if len(lines) > MAX_LINES + 2 else []
            if lines:
                return [line[:MAX_LENGTH] for line in lines[2 : MAX_LINES + 2]] + more
        pairs = enumerate(zip(old, new, strict=False))
        differ = next((at for at, (a, b) in pairs if a != b), min(len(old), len(new)))
        start = max(0, differ - CONTEXT)
    return [f"- {shorten(old, start)}", f"+ {shorten(new, start)}"]


def shorten(value: Any, start: int = 0) -> str:
    """Return a value on one line; of a long text the part from ``start``."""
    if isinstance(value, str) and len(value) > MAX_LENGTH:
        part = json.dumps(value[start : start + MAX_LENGTH], ensure_ascii=False)
        return f"{'…' if start else ''}{part}{'…' if start + MAX_LENGTH < len(value) else ''}"
    if isinstance(value, BlobReference | Attachment):
        return describe_reference(value)
    text = json.dumps(to_json(value), ensure_ascii=False)
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}… ({len(text):,} characters)"
