"""A conversation of 500 turns with a snapshot each: all load, and a prune reclaims their space.

Loaded snapshots are compared with plain lists of messages.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import random
import shutil
from pathlib import Path

import pytest

from holdfast import RetentionPolicy, Session, SnapshotArchive, SnapshotLocation, open_state_store
from holdfast.testing.state_store_suite import read_all
from support.async_tests import async_test, run_async

AGENT, SESSION = "research-bot", "ses_abc123"
LOCATION = SnapshotLocation(SESSION, scope_id=AGENT)
TURNS = 500
KEPT = 10
SIZES = {"user": 200, "assistant": 800, "tool": 2000}
WORDS = (
    "the agent reads report writes found user plan later tool answer because table of compares two "
    "numbers and a source which says that revenue grew while costs stayed flat in every quarter"
)
# Bytes of a tombstone or a record.
SMALL = 450


@dataclasses.dataclass
class Conversation:
    """The messages of each turn, and the snapshots that were saved."""

    exchanges: list[list[dict[str, str]]]
    plans: list[dict[str, object]]
    ids: list[str]
    path: Path

    def messages(self, turns: int) -> list[dict[str, str]]:
        """Return the conversation after a number of turns."""
        return [message for turn in self.exchanges[:turns] for message in turn]

    def compressed_size(self, turns: int) -> int:
        """Return the size of the state after a number of turns, compressed like a keyframe."""
        state = [self.messages(turns), self.plans[turns - 1]]
        return len(gzip.compress(json.dumps(state).encode(), 1))


def make_conversation(turns: int, scale: float, path: Path) -> Conversation:
    """Return a conversation in pseudo-English, the same each time."""
    rng = random.Random("500 turns")
    words = WORDS.split()

    def text(size: float) -> str:
        return " ".join(rng.choices(words, k=int(size)))[: int(size)]

    exchanges = [
        [{"role": role, "content": text(size * scale)} for role, size in SIZES.items()]
        for _ in range(turns)
    ]
    plans = [{"step": step, "goal": text(40), "open": [step, 7]} for step in range(turns)]
    return Conversation(exchanges, plans, [], path)


async def take_turn(session, messages, plan):
    for message in messages:
        session.add_message(**message)
    session.set("plan", plan)
    return (await session.save()).snapshot_id


async def record(made: Conversation) -> Conversation:
    """Record a conversation in a session, and save a snapshot after every turn."""
    async with open_state_store(f"sqlite:///{made.path}") as state_store:
        session = await Session.open(state_store, agent_id=AGENT, session_id=SESSION)
        for messages, plan in zip(made.exchanges, made.plans, strict=True):
            made.ids.append(await take_turn(session, messages, plan))
    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A database with all turns."""
    return run_async(
        record(make_conversation(TURNS, 1, tmp_path_factory.mktemp("turns") / "state.db"))
    )


async def check_snapshots(archive, made, turns):
    """Check that the snapshots of these turns have the conversation up to them."""
    for turn in turns:
        found = await archive.load_snapshot(location=LOCATION, snapshot_id=made.ids[turn])
        assert found.state.messages == made.messages(turn + 1)
        assert found.state.values == {"plan": made.plans[turn]}


async def measure_sizes(state_store):
    """Return the bytes of all values, and of keys and values."""
    entries = await read_all(state_store)
    values = sum(map(len, entries.values()))
    return values, values + sum(map(len, entries))


@async_test
async def test_each_of_500_snapshots_loads_the_conversation_up_to_its_turn(whole):
    async with open_state_store(f"sqlite:///{whole.path}") as state_store:
        archive = SnapshotArchive(state_store)
        assert await archive.list_snapshot_ids(location=LOCATION) == whole.ids
        await check_snapshots(archive, whole, [*range(0, TURNS, 25), TURNS - 1])
        verified = await archive.verify(location=LOCATION)
        assert verified.damage == []
        assert verified.snapshots == TURNS


@async_test
async def test_500_snapshots_take_little_more_space_than_the_conversation(whole):
    once = sum(len(json.dumps(turn)) for turn in (whole.exchanges, whole.plans))
    async with open_state_store(f"sqlite:///{whole.path}") as state_store:
        values, _ = await measure_sizes(state_store)
    assert values < 1.25 * once + TURNS * 2 * SMALL
    assert whole.path.stat().st_size < 2 * once


@pytest.fixture(scope="module")
def pruned(whole, tmp_path_factory):
    """The same conversation, pruned to its last snapshots."""
    copy = tmp_path_factory.mktemp("pruned") / "state.db"
    shutil.copy(whole.path, copy)
    made = dataclasses.replace(whole, path=copy)
    result = run_async(prune(made))
    assert result.kept == whole.ids[-KEPT:]
    assert result.removed == whole.ids[:-KEPT]
    return made


async def prune(made):
    async with open_state_store(f"sqlite:///{made.path}") as state_store:
        archive = SnapshotArchive(state_store)
        return await archive.prune(location=LOCATION, policy=RetentionPolicy(last=KEPT))


@async_test
async def test_prune_reclaims_the_space_of_long_messages(whole, pruned):
    await check_space(pruned, whole.path.stat().st_size)


@async_test
async def test_prune_reclaims_the_space_of_short_messages(tmp_path):
    made = await record(make_conversation(TURNS, 0.1, tmp_path / "state.db"))
    before = made.path.stat().st_size
    await prune(made)
    await check_space(made, before)


async def check_space(made, before):
    after = made.path.stat().st_size
    async with open_state_store(f"sqlite:///{made.path}") as state_store:
        values, entries = await measure_sizes(state_store)
    # The state in keyframes, the last turns in segments, and small entries: tombstones and records.
    last = sum(len(json.dumps(turn)) for turn in made.exchanges[-KEPT:])
    assert values < 1.25 * made.compressed_size(TURNS) + 1.5 * last + TURNS * SMALL
    assert after < before / 2
    # SQLite stores each key twice, in the table and in its index, and does not fill pages.
    assert after < 2 * entries


@async_test
async def test_after_a_prune_the_last_10_load_and_the_session_continues(pruned, tmp_path):
    copy = tmp_path / "state.db"
    shutil.copy(pruned.path, copy)
    kept = range(TURNS - KEPT, TURNS)
    async with open_state_store(f"sqlite:///{copy}") as state_store:
        archive = SnapshotArchive(state_store)
        assert await archive.list_snapshot_ids(location=LOCATION) == pruned.ids[-KEPT:]
        await check_snapshots(archive, pruned, kept)
        assert (await archive.verify(location=LOCATION)).damage == []
        session = await Session.open(
            state_store, agent_id=AGENT, session_id=SESSION, must_exist=True
        )
        assert session.messages == pruned.messages(TURNS)
        later = await take_turn(session, pruned.exchanges[0], {"step": TURNS})
    async with open_state_store(f"sqlite:///{copy}") as state_store:
        archive = SnapshotArchive(state_store)
        found = await archive.load_snapshot(location=LOCATION, snapshot_id=later)
        assert found.state.messages == pruned.messages(TURNS) + pruned.exchanges[0]
        assert found.parent_id == pruned.ids[-1]
        session = await Session.open(state_store, agent_id=AGENT, session_id=SESSION)
        await session.restore(pruned.ids[-KEPT])
        assert session.messages == pruned.messages(TURNS - KEPT + 1)
        await check_snapshots(archive, pruned, kept)
        assert (await archive.verify(location=LOCATION)).damage == []
