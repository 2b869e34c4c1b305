"""Write a session and a document as this version stores them, for later versions to read.

    .venv/bin/python tests/compat/write.py v1

rewrites ``tests/compat/v1``:

    session/        a folder of a ``file://`` store with one session
    document.json   the same session as a document
    expected.json   the content of both, as it was in memory

The folder of a released version is never rewritten. If you raise ``format`` or ``schema_version``,
write the next folder, v2; ``test_compat.py`` reads all of them.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import math
import shutil
import sys
import uuid
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import holdfast
from holdfast.log import timeline
from holdfast.values import to_json

HERE = Path(__file__).parent
AGENT, SESSION = "Research bot/ü", "ses 1%"
BERLIN = ZoneInfo("Europe/Berlin")
FEW_SEGMENTS = 6

KINDS: dict[str, dict[str, Any]] = {
    "plain": {
        "none": None,
        "true": True,
        "false": False,
        "text": "Grüße, 世界 \U0001f419\x00\u2028",
    },
    "numbers": {
        "ints": [0, -1, 2**53 - 1, 2**53, -(2**63), 2**64 - 1, 2**64, 3**2000],
        "floats": [0.1, 1.0, 1e16, -0.0, 5e-324, math.inf, -math.inf, math.nan],
        "decimals": [Decimal("-1.2300E-50"), Decimal("-Infinity"), Decimal("NaN")],
    },
    "bytes": {"empty": b"", "all": bytes(range(256))},
    "containers": {
        "list": [1, [2, []], {}],
        "tuple": (1, (2, ()), [3, (4,)]),
        "set": {1, "a", (2, 3), frozenset({4})},
        "frozenset": frozenset({b"x", None, 1.5}),
        "empty set": set(),
    },
    "dicts": {
        "order is kept": {"b": 1, "a": {"d": 2, "c": 3}},
        "keys": {"s": 1, 7: 2, 2.5: 3, False: 4, None: 5, b"b": 6, (1, "x"): 7, 2**64: 8},
        "like a tag": {"$tuple": [1]},
        "like an escaped tag": {"$$tuple": [1]},
    },
    "times": {
        "naive": dt.datetime(2026, 11, 15, 2, 3, 4, 567),
        "utc": dt.datetime(2026, 11, 15, tzinfo=dt.UTC),
        "offset": dt.datetime(1, 2, 3, 4, 5, 6, 7, tzinfo=dt.timezone(dt.timedelta(hours=-9.5))),
        "zone": dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN),
        "dates": [dt.date.min, dt.date(2026, 11, 15), dt.date.max],
        "clock": [dt.time(23, 59, 59, 999_999), dt.time(1, 2, tzinfo=dt.UTC)],
        "timedeltas": [dt.timedelta(days=-3, microseconds=7), dt.timedelta.max],
    },
    "uuid": {"id": uuid.UUID("019a8888-7777-7abc-8def-0123456789ab")},
}
"""Values of every type. Add some, but change none: the folders of old versions contain them."""


async def write(version: str) -> None:
    """Rewrite the folder of a version."""
    folder = HERE / version
    shutil.rmtree(folder, ignore_errors=True)
    home = folder / "session"
    home.mkdir(parents=True)
    # Otherwise a session of forty events would have no keyframe.
    timeline.MAX_SEGMENTS = FEW_SEGMENTS
    async with holdfast.open_state_store(f"file://{home}") as store:
        session = await write_session(store)
        exported = await session.export(tags={"made": "for later"})
        document = replace(exported, extra={**exported.extra, "ticket": "OPS-7"}).to_dict()
        expected = await describe_session(session, document)
    shutil.rmtree(home / "~holdfast")  # locks
    for name, tree in (("document", document), ("expected", expected)):
        text = json.dumps(tree, indent=1, ensure_ascii=False, allow_nan=False)
        (folder / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    print(f"{folder}: {expected['verified']}")


async def write_session(store: holdfast.StateStore) -> holdfast.Session:
    """Write a session that has every kind of event."""
    session = await holdfast.Session.open(store, agent_id=AGENT, session_id=SESSION)
    session.add_message("user", "Compare the two reports", name="Ada")
    session.status = "running"
    await session.save(tags={"env": "production", "grüße": "世界"})
    for name, values in KINDS.items():
        session.set(name, values)
        await session.commit()
    await session.save(tags={"release": "1"})
    await add_tool_calls(session)
    await add_rollbacks(session)
    await session.archive.prune(
        location=session.location,
        policy=holdfast.RetentionPolicy(last=2, protected=["release", "tools"]),
    )
    await add_commits_after_prune(session)
    return session


async def add_tool_calls(session: holdfast.Session) -> None:
    """Add a tool call, and a payment with ``once``."""
    call = {"id": "call_1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    session.add_message("assistant", None, tool_calls=[call])
    session.record(
        "tool.called", {"tool": "search", "at": dt.datetime(2026, 11, 15, tzinfo=dt.UTC)}
    )
    await session.save(tags={"tools": "called"})
    session.record("tool.result", ("two reports", 2))
    session.add_message("tool", "two reports", tool_call_id="call_1")
    await session.commit()
    await session.once("pay:7", lambda: {"receipt": (4711, "EUR")})


async def add_rollbacks(session: holdfast.Session) -> None:
    """Add a rollback, a restore, removed messages and values, and a custom namespace."""
    mark = session.snapshot()
    session.add_message("assistant", "I delete report A")
    session.set("deleted", ["A"])
    session.rollback(mark)
    saved = await session.save(tags={"after": "the rollback"})
    session.add_message("assistant", "B is newer")
    session.record(
        "plan.revised",
        {"reason": "B is newer"},
        changes={"set": [("notes", "b", "newer"), ("notes", "$tuple", 1)], "delete": []},
    )
    await session.save(tags={"before": "the restore"})
    await session.restore(saved.snapshot_id)
    session.add_message("user", "And now?")
    session.add_message("assistant", "Wait")
    session.pop_message()
    session.set("plan", ["read B"])
    session.delete("plan")
    await session.save()


async def add_commits_after_prune(session: holdfast.Session) -> None:
    """Add commits after the prune, with a keyframe and a gap between the messages."""
    session.set("kinds", KINDS)
    for number in range(FEW_SEGMENTS + 1):
        session.add_message("assistant", [{"type": "text", "text": f"part {number}"}])
        await session.commit()
    session.record("message.removed", changes={"set": [], "delete": [("messages", "000000000004")]})
    session.record("notes.kept", changes={"set": [("notes", "b", {"newer": True})], "delete": []})
    session.status = "completed"
    last = await session.save(tags={"end": "yes"})
    latest = holdfast.SessionSnapshot.from_snapshot(
        session.snapshot(), agent_id=AGENT, session_id=SESSION, parent_id=last.snapshot_id
    )
    await session.archive.save_snapshot(
        location=session.location,
        snapshot_id=latest.snapshot_id,
        is_latest=True,
        snapshot=latest,
    )
    there = await session.archive.load_manifest(location=session.location)
    noted = holdfast.SnapshotManifest(started_at=there.started_at, extra={"owner": "Ada"})
    await session.archive.save_manifest(location=session.location, manifest=noted)


async def describe_session(session: holdfast.Session, document: dict[str, Any]) -> dict[str, Any]:
    """Return what a reader must find."""
    archive, location = session.archive, session.location
    manifest = await archive.load_manifest(location=location)
    verified = await session.verify()
    assert verified.ok, verified.damage
    latest = await archive.load_snapshot(location=location)
    return {
        "agent_id": AGENT,
        "session_id": SESSION,
        "started_at": to_json(manifest.started_at),
        "floor": manifest.log_start.seq,
        "extra": manifest.extra,
        "status": session.status,
        "messages": to_json(session.messages),
        "values": {key: to_json(value) for key, value in session.state.items()},
        "digest": session.snapshot().digest,
        "events": [
            summarize_event(event)
            async for event in session.events
            if event.seq > manifest.log_start.seq
        ],
        "snapshots": [
            await summarize_snapshot(archive, location, snapshot_id)
            for snapshot_id in await archive.list_snapshot_ids(location=location)
        ],
        "latest": latest.snapshot_id,
        "verified": {
            name: getattr(verified, name)
            for name in ("events", "segments", "keyframes", "snapshots")
        },
        "document": {
            "snapshot_id": document["snapshot_id"],
            "tags": document["tags"],
            "events": len(document["events"]),
        },
    }


def summarize_event(event: holdfast.Event) -> dict[str, Any]:
    """Return the fields of an event, without its changes."""
    return {
        "seq": event.seq,
        "id": event.id,
        "type": event.type,
        "at": to_json(event.at),
        "data": to_json(event.data),
        "hash": event.hash,
    }


async def summarize_snapshot(
    archive: holdfast.SnapshotArchive, location: holdfast.SnapshotLocation, snapshot_id: str
) -> dict[str, Any]:
    """Return the metadata of a snapshot, and the digest of its state."""
    found = await archive.load_snapshot(location=location, snapshot_id=snapshot_id)
    assert found is not None
    return {
        "snapshot_id": snapshot_id,
        "parent_id": found.parent_id,
        "created_at": to_json(found.created_at),
        "tags": found.tags,
        "seq": found.event_log_count,
        "status": found.state.status,
        "messages": len(found.state.messages),
        "unfinished": found.unfinished,
        "digest": found.digest,
    }


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1]))
