"""A part of all faults at all calls, as `python -m trials.faults` tries them; and what it found.

Writes of the operations on one session are ended one by one in `tests/sessions/test_crashes.py`.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from holdfast import RetentionPolicy, Session, SnapshotArchive, StateStoreError
from holdfast.log import timeline
from holdfast.stores.memory import MemoryStateStore
from holdfast.testing import Fault, FaultyStateStore
from holdfast.transfer.compare import compare_stores
from holdfast.transfer.copy import copy_sessions
from support.async_tests import async_test
from support.copied_sessions import HERE, save_messages

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from trials.faults.trial import Trial
from trials.report import Report
from trials.tokens import Tokens, find_problems


@pytest.mark.parametrize(
    ("store", "kinds"),
    [
        ("memory", ["error", "unknown", "delay", "stale", "cancelled", "crash"]),
        ("memory, one by one", ["error", "unknown", "delay", "stale", "cancelled", "crash"]),
    ],
)
def test_an_operation_with_a_fault_is_done_or_not_and_can_be_repeated(store, kinds):
    report = Report("faults")
    asyncio.run(Trial(report, stores=[store], kinds=kinds, part=0.02, seconds=200).run())
    assert report.problems == []
    assert report.counts[f"cases on {store}"] > 50
    for kind in kinds:
        assert report.counts[f"faults: {kind}"] > 3, kind


def test_a_trial_of_nothing_fails():
    report = Report("faults")
    asyncio.run(Trial(report, only="no such operation").run())
    assert report.problems == ["no operation has 'no such operation' in its name"]
    assert Report("nothing at all").finish() == 1


def test_an_error_that_ends_a_trial_is_reported_after_earlier_problems(capsys):
    report = Report("cut short")
    with report.to_the_end():
        report.problem("one is lost")
        raise TimeoutError("nobody answers")
    with pytest.raises(SystemExit), report.to_the_end():
        raise SystemExit(143)
    assert report.finish() == 1
    for part in capsys.readouterr().err.split("PROBLEM one is lost\n")[1:]:
        assert part.startswith("PROBLEM the trial did not come to its end: TimeoutError: nobody")


@async_test
async def test_duplicates_are_reported_even_if_their_events_were_pruned():
    store = MemoryStateStore()
    session = await Session.open(store, agent_id="bot", session_id="ses")
    for token in ("once", "twice", "twice", "last"):
        session.add_message("user", token)
        await session.save()
    pruned = await session.archive.prune(location=HERE, policy=RetentionPolicy(last=1))
    assert pruned.events_removed > 4
    tokens = Tokens(["once", "twice", "last"], ["once", "twice", "last"])
    assert await find_problems(store, HERE, tokens) == ["bot/ses: twice is stored 2 times"]


@async_test
async def test_a_store_that_cannot_be_read_is_not_damaged(monkeypatch):
    monkeypatch.setattr(timeline, "MAX_SEGMENTS", 2)
    disk = MemoryStateStore()
    await save_messages(disk)
    store = FaultyStateStore(disk)
    archive = SnapshotArchive(store)
    store.plan()
    assert (await archive.verify(location=HERE)).keyframes > 0
    for at in range(1, store.reads + 1):
        store.plan(Fault(at, "error", of="reads"))
        with pytest.raises(StateStoreError):
            await archive.verify(location=HERE)


@async_test
async def test_a_session_created_during_a_copy_is_not_mixed_with_it():
    async def begin(target):
        session = await Session.open(target, agent_id="bot", session_id="ses")
        session.add_message("user", "an agent's own")
        await session.commit()

    source, counted = MemoryStateStore(), FaultyStateStore(MemoryStateStore())
    await save_messages(source)
    await copy_sessions(source, counted)
    outcomes = set()
    for at in range(1, counted.reads + 1):
        disk = MemoryStateStore()
        target = FaultyStateStore(disk, [Fault(at, "delay", of="reads")])
        copied, begun = await asyncio.gather(
            copy_sessions(source, target), begin(disk), return_exceptions=True
        )
        assert (await SnapshotArchive(disk).verify(location=HERE)).damage == [], at
        session = await Session.open(disk, agent_id="bot", session_id="ses")
        contents = [each["content"] for each in session.messages]
        if begun is None and copied.failed:
            assert contents == ["an agent's own"], at
        else:
            assert contents[:8] == list("abcdefgh"), at
            assert await compare_stores(source, disk) == [], at
        outcomes.add(bool(copied.failed))
    assert outcomes == {True, False}
