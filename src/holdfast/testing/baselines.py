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

from holdfast.errors import InvalidDocumentError, shown
from holdfast.pytest_plugin import UPDATE, beside_test, is_updating, report_written
from holdfast.sessions.blocking import BlockingSession
from holdfast.sessions.session import Session
from holdfast.snapshots import document, document_files
from holdfast.snapshots.comparing import Difference, differences
from holdfast.snapshots.paths import Places, parsed, without, written
from holdfast.snapshots.session_snapshot import SessionSnapshot
from holdfast.state.snapshot import Snapshot
from holdfast.values import to_json
from holdfast.values.extensions import CODES

Comparable: TypeAlias = BlockingSession | Session | SessionSnapshot | Snapshot

MOST_PLACES = 40
MOST_LINES = 20
LONGEST = 160
NEAR = 40
TAGS = frozenset((*CODES, "$bytes", "$float"))
SIGNS = {"add": "+", "remove": "-", "replace": "~"}


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
    ignored = parsed(ignore)
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
        baseline = SessionSnapshot.from_dict(document_files.read(target), allow_modified=True)
    except InvalidDocumentError:
        if not may_write:
            raise
        write(actual, target, "updated")
        return
    found = differences(without(state, ignored), without(baseline.snapshot, ignored))
    if found and may_write:
        write(actual, target, "updated")
    elif found:
        raise AssertionError(report(found, target, Places(state), Places(baseline.snapshot)))


def state_of(actual: Comparable) -> Snapshot:
    """The state that is compared: of a session as it is in memory, committed or not."""
    if isinstance(actual, Snapshot):
        return actual
    if isinstance(actual, SessionSnapshot):
        return actual.snapshot
    if isinstance(actual, BlockingSession | Session):
        return actual.snapshot()
    raise TypeError(
        "a baseline is compared with a session, a SessionSnapshot or a Snapshot, not "
        f"{shown(actual)}"
    )


def write(actual: Comparable, target: Path, what: str) -> None:
    """Write a baseline: a document, without the events that led there."""
    if not isinstance(actual, SessionSnapshot):
        session = None if isinstance(actual, Snapshot) else actual
        actual = SessionSnapshot.from_snapshot(
            state_of(actual),
            agent_id=session.agent_id if session else "baseline",
            session_id=session.session_id if session else "baseline",
            scope=session.scope if session else "agent",
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    document_files.write(target, document.chunks(actual.to_dict()))
    report_written(target, what)


# --------------------------------------------------------------------------- what it says


def report(found: list[Difference], target: Path, now: Places, then: Places) -> str:
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


def places_of(each: Difference, places: Places) -> Iterator[tuple[str, str, list[str]]]:
    """A sign, a path and details for each place in which an entry differs."""
    steps = places.of(each.namespace, each.key)
    if each.kind != "changed":
        value = each.after if each.kind == "added" else each.before
        sign = SIGNS["add" if each.kind == "added" else "remove"]
        yield sign, written(steps), [shortened(to_json(value))]
        return
    before = to_json(each.before)
    appended = 0
    for field in each.fields:
        way, old, size = followed(before, field["path"])
        if field["path"].endswith("/-"):
            way = (*way, size + appended)
            appended += 1
        else:
            appended = 0
        yield SIGNS[field["op"]], written((*steps, *way)), told(field, old)


def followed(tree: Any, pointer: str) -> tuple[tuple[object, ...], Any, int]:
    """The steps of a JSON Pointer without tags, what it leads to, and how long the last list is."""
    way: list[object] = []
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(tree, list):
            if name == "-":
                return tuple(way), None, len(tree)
            way.append(int(name))
            tree = tree[int(name)]
        else:
            if not (len(tree) == 1 and name in TAGS):
                way.append(name[1:] if name.startswith("$$") and len(tree) == 1 else name)
            tree = tree.get(name)
    return tuple(way), tree, 0


def told(field: dict[str, Any], old: Any) -> list[str]:
    """What was there and what is there now."""
    if field["op"] == "add":
        return [shortened(field["value"])]
    if field["op"] == "remove":
        return [shortened(old)]
    new = field["value"]
    if isinstance(old, str) and isinstance(new, str):
        if "\n" in old or "\n" in new:
            lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), n=1, lineterm=""))
            more = ["…"] if len(lines) > MOST_LINES + 2 else []
            return [line[:LONGEST] for line in lines[2 : MOST_LINES + 2]] + more
        same = next(
            (at for at, pair in enumerate(zip(old, new, strict=False)) if len({*pair}) > 1), 0
        )
        start = max(0, same - NEAR)
        return [f"- {shortened(old, start)}", f"+ {shortened(new, start)}"]
    return [f"- {shortened(old)}", f"+ {shortened(new)}"]


def shortened(value: Any, start: int = 0) -> str:
    """A value on one line; of a long text the part that begins there."""
    if isinstance(value, str) and len(value) > LONGEST:
        part = json.dumps(value[start : start + LONGEST], ensure_ascii=False)
        return f"{'…' if start else ''}{part}{'…' if start + LONGEST < len(value) else ''}"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"
