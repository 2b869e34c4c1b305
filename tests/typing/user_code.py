"""User code that strict mypy must accept. It is not run."""

from __future__ import annotations

import datetime as dt
from typing import Any, assert_type

import holdfast
from holdfast.documents.signing import (
    PublicKey,
    Signature,
    SigningKey,
    load_trusted_keys,
    read_signatures,
    sign_document,
    verify_signature,
)


class Money:
    def __init__(self, cents: int) -> None:
        self.cents = cents


def use_store_in_memory() -> None:
    store = holdfast.Store(max_history=10)
    store.set("workflow", "onboarding", {"step": 3, "at": dt.datetime.now(dt.UTC)})
    assert_type(store.get("workflow", "onboarding"), Any)
    assert_type(store.delete("workflow", "onboarding"), bool)
    assert_type(("workflow", "k") in store, bool)
    assert_type(store.keys("workflow"), list[str])
    store.set_many([("n", "k", 1), ("n", "other", [None])])
    assert_type(store.get_many([("n", "k")]), list[Any])

    snapshot: holdfast.Snapshot = store.snapshot()
    assert_type(snapshot.id, int)
    assert_type(snapshot.parent, int | None)
    assert_type(snapshot.keys, list[tuple[str, str]])
    assert_type(snapshot.digest, str)
    assert_type(store.history, list[holdfast.Snapshot])
    assert_type(store.max_history, int | None)
    difference: holdfast.Diff = store.snapshot().diff(snapshot)
    assert_type(difference["added"], list[tuple[str, str]])
    changes: holdfast.Changes = store.snapshot().changes(snapshot)
    store.apply(changes)

    with store.transaction() as inside:
        assert_type(inside, holdfast.Store)
    store.merge(store.fork(), snapshot, on_conflict="ours")
    store.merge(snapshot, snapshot, on_conflict=decide)
    holdfast.register_type(
        Money, name="money", encode=lambda money: money.cents, decode=lambda cents: Money(cents)
    )

    # A type checker must reject these; an unused ignore is an error.
    store.set(7, "k", 1)  # type: ignore[arg-type]
    store.get("n", b"k")  # type: ignore[arg-type]
    store.restore("snapshot")  # type: ignore[arg-type]
    store.merge(snapshot, snapshot, on_conflict="mine")  # type: ignore[arg-type]
    holdfast.register_type(Money, name="money", encode=str, decode=str)  # type: ignore[arg-type]


def decide(conflict: holdfast.Conflict) -> object:
    assert_type(conflict.key, str)
    return holdfast.MISSING if conflict.ours is holdfast.MISSING else conflict.ours


async def use_state_store(store: holdfast.StateStore) -> None:
    async with holdfast.open_state_store("memory:") as opened:
        assert_type(opened, holdfast.StateStore)
    entry = await store.get("a")
    assert_type(entry, holdfast.Entry | None)
    assert_type(await store.get_many(["a"]), dict[str, holdfast.Entry])
    assert_type(await store.put("a", b"1", if_absent=True), str)
    assert_type(await store.put_many([holdfast.Put("a", b"1", if_match="e")]), list[str])
    fence = holdfast.Condition("fence", "etag")
    assert_type(await store.put_many([holdfast.Put("a", b"1")], conditions=[fence]), list[str])
    assert_type(await store.delete("a", if_match="e"), bool)
    assert_type([key async for key in store.list("a/", start_after="a/b", limit=3)], list[str])
    assert_type(store.atomic_put_many, bool)
    await store.close()


async def use_session(store: holdfast.StateStore) -> None:
    session = await holdfast.Session.open(store, agent_id="research-bot", session_id="ses_abc123")
    assert_type(session, holdfast.Session)
    session.add_message("user", "Compare the two reports", name="Ada")
    session.record("tool.called", {"tool": "search"})
    session.set("plan", {"step": 1})
    session.status = "running"
    assert_type(session.status, str)
    mark = session.snapshot()
    assert_type(mark, holdfast.Snapshot)
    session.rollback(mark)
    await session.commit(on_conflict="rebase")
    saved = await session.save(tags={"env": "production"})
    assert_type(saved, holdfast.SessionSnapshot)
    assert_type(saved.tags, dict[str, str])
    await session.restore(saved.snapshot_id)
    assert_type(await session.fork("ses_what_if", at=saved.snapshot_id), holdfast.Session)
    assert_type(await session.once("mail", lambda: 7), int)
    assert_type(session.events[-1], holdfast.Event)
    async for event in session.events:
        assert_type(event.type, str)
    async for step in holdfast.replay(session):
        assert_type(step.after, holdfast.Snapshot)
    async with holdfast.Session.open(store, agent_id="research-bot") as another:
        assert_type(another, holdfast.Session)
    with holdfast.BlockingSession.open("memory:", agent_id="research-bot") as blocking:
        assert_type(blocking.save(), holdfast.SessionSnapshot)
        assert_type(blocking.once("mail", lambda: 7), int)

    # A type checker must reject these; an unused ignore is an error.
    await session.commit(on_conflict="merge")  # type: ignore[arg-type]
    await session.save(tags={"env": 1})  # type: ignore[dict-item]


async def use_archive(store: holdfast.StateStore) -> None:
    archive: holdfast.SnapshotStorage = holdfast.SnapshotArchive(store)
    location = holdfast.SnapshotLocation("ses_abc123", scope_id="research-bot")
    live = holdfast.Store()
    snapshot = holdfast.SessionSnapshot.from_snapshot(
        live.snapshot(), agent_id="research-bot", session_id="ses_abc123"
    )
    await archive.save_snapshot(
        location=location, snapshot_id=snapshot.snapshot_id, is_latest=False, snapshot=snapshot
    )
    assert_type(await archive.load_snapshot(location=location), holdfast.SessionSnapshot | None)
    assert_type(await archive.list_snapshot_ids(location=location, limit=3), list[str])
    page = await archive.list_snapshots(location=location, limit=3)
    assert_type(page.snapshots, list[holdfast.SnapshotInfo])
    assert_type(page.next_token, str | None)
    assert_type(await archive.load_manifest(location=location), holdfast.SnapshotManifest)
    assert_type(await archive.delete_snapshot(location=location, snapshot_id="x"), bool)
    await archive.delete_session(session_id="ses_abc123")


async def use_signatures(store: holdfast.StateStore) -> None:
    key = SigningKey.from_file("release.key", passphrase="secret")
    assert_type(key.public, PublicKey)
    assert_type(key.key_id, str)
    assert_type(key.to_pem(passphrase=b"secret"), bytes)
    trusted = load_trusted_keys("release.pub", "keys")
    assert_type(trusted, list[PublicKey])
    manager = holdfast.SnapshotManager(store)
    document = await manager.export_session("research-bot", sign=key)
    assert_type(document.signed_by, tuple[str, ...])
    result = await manager.import_session(document, trusted=trusted)
    assert_type(result.signed_by, tuple[str, ...])
    manager.from_file("snapshot.json", trusted=(key.public,))
    manager.from_dict({}, trusted=trusted)
    assert_type(sign_document(document, SigningKey.generate()), holdfast.Document)
    assert_type(verify_signature(document, trusted), tuple[PublicKey, ...])
    assert_type(verify_signature(document.to_dict(), trusted), tuple[PublicKey, ...])
    assert_type(read_signatures(document), list[Signature])

    # A type checker must reject these; an unused ignore is an error.
    sign_document(document, key.public)  # type: ignore[arg-type]
    await manager.import_session(document, trusted=[key])  # type: ignore[list-item]
