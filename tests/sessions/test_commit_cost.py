"""A save makes one pass over each value, one call of the store, and few calls of functions."""

from __future__ import annotations

import sys
import uuid
from dataclasses import dataclass

import pytest

from holdfast import Session, compiled, register_type
from holdfast.snapshots import keys
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test

SAVES = 10
MAX_CALLS = 90 if compiled else 320
"""Calls of Python functions per turn of two messages and a save, on the in-memory store."""


@dataclass(frozen=True)
class Measured:
    """A value of a registered type, which counts how often it is encoded and decoded."""

    number: int


@pytest.fixture(scope="module")
def passes():
    counts = {"encode": 0, "decode": 0}

    def encode(value):
        counts["encode"] += 1
        return value.number

    def decode(number):
        counts["decode"] += 1
        return Measured(number)

    register_type(Measured, name="test.commit_cost", encode=encode, decode=decode)
    return counts


@async_test
async def test_a_value_is_encoded_once_and_not_decoded(passes):
    session = await open_session()
    await session.commit()
    passes.update(encode=0, decode=0)
    session.set("one", Measured(1))
    session.add_message("user", {"two": Measured(2)})
    session.record("three", Measured(3), changes={"set": [("n", "k", Measured(4))], "delete": []})
    assert passes == {"encode": 4, "decode": 0}
    await session.commit()
    assert passes == {"encode": 4, "decode": 0}
    assert session.get("one") == Measured(1)


@async_test
async def test_a_lost_commit_encodes_nothing_again(passes):
    store = MemoryStateStore()
    session, other = await open_session(store), await open_session(store)
    await session.commit()
    await other.commit(on_conflict="rebase")
    session.set("a", 1)
    await session.commit()
    passes.update(encode=0, decode=0)
    other.set("one", Measured(1))
    await other.commit(on_conflict="rebase")
    assert passes["encode"] == 1


@async_test
async def test_a_save_makes_no_uuid_objects_and_quotes_no_ids(monkeypatch):
    made = []
    monkeypatch.setattr(keys, "quote", lambda text, **_: made.append(text) or text)
    created = uuid.UUID.__init__
    monkeypatch.setattr(
        uuid.UUID, "__init__", lambda *args, **given: made.append(args) or created(*args, **given)
    )
    session = await open_session()
    await save_turn(session)
    made.clear()
    await save_turn(session)
    assert made == []


@async_test
async def test_a_save_makes_few_calls():
    session = await open_session()
    for _ in range(SAVES):
        await save_turn(session)
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        for _ in range(SAVES):
            await save_turn(session)
    finally:
        sys.setprofile(None)
    assert calls / SAVES <= MAX_CALLS


async def save_turn(session: Session) -> None:
    session.add_message("user", "What is new?")
    session.add_message("assistant", "Nothing.")
    await session.save()


async def open_session(store: MemoryStateStore | None = None) -> Session:
    return await Session.open(store or MemoryStateStore(), agent_id="bot", session_id="ses")
