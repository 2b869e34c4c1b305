"""Ids that sort by time."""

from __future__ import annotations

import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import ids


def test_an_id_is_a_uuid_of_version_7_with_its_time():
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(ids.new_id())
    after = time.time_ns() // 1_000_000
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert before <= made.int >> 80 <= after + 1


def test_ids_are_in_the_order_in_which_they_are_made():
    made = [ids.new_id() for _ in range(20_000)]
    assert made == sorted(set(made))


def test_ids_of_threads_are_all_different():
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: ids.new_id(), range(5_000)))
    assert len(set(made)) == 5_000


def test_a_clock_that_is_set_back_or_stands_still_does_not_disturb_the_order(monkeypatch):
    clock = ids.Clock()
    first = clock.tick()
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    assert clock.tick() > first
    clock._count = (1 << ids.COUNT_BITS) - 1
    last = clock.tick()
    assert last[:2] == (first[0] + 1, 0)
    assert clock.tick() > last


@pytest.mark.parametrize("millisecond", [0, 1 << 47, (1 << 48) - 2])
def test_an_id_comes_after_one_that_was_made_by_a_clock_ahead(monkeypatch, millisecond):
    there = ids.Clock()
    monkeypatch.setattr(time, "time_ns", lambda: millisecond * 1_000_000)
    monkeypatch.setattr(ids, "_clock", there)
    before = ids.new_id()
    there._count = (1 << ids.COUNT_BITS) - 2
    last = ids.new_id()
    monkeypatch.undo()
    made = [ids.new_id(after=before), ids.new_id(after=last)]
    made.append(ids.new_id(after=made[-1]))
    assert [before, last, *made[1:]] == sorted({before, last, *made[1:]})
    assert before < made[0]
    assert all(uuid.UUID(each).version == 7 for each in made)


@pytest.mark.parametrize(
    "other",
    ["", "zzz", "ffffffff-ffff-4fff-bfff-ffffffffffff", "ffffffff-ffff-7fff-bfff-ffffffffffff"],
)
def test_an_id_of_another_kind_and_the_last_of_all_do_not_disturb(other):
    made = [ids.new_id(), ids.new_id(after=other), ids.new_id()]
    assert made == sorted(set(made))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_makes_ids_of_its_own():
    ids.new_id()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, ids.new_id()[-8:].encode())
        os._exit(0)
    noise = ids.new_id()[-8:]
    os.waitpid(child, 0)
    assert os.read(reading, 8).decode() != noise
    os.close(reading)
    os.close(writing)
