"""UUIDv7 ids."""

from __future__ import annotations

import os
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

import pytest

from holdfast import ids


def test_an_id_is_a_uuid7_with_the_current_time():
    before = time.time_ns() // 1_000_000
    made = uuid.UUID(ids.new_id())
    after = time.time_ns() // 1_000_000
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert before <= made.int >> 80 <= after + 1


def test_ids_sort_in_creation_order():
    made = [ids.new_id() for _ in range(20_000)]
    assert made == sorted(set(made))


def test_ids_are_unique_across_threads():
    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(lambda _: ids.new_id(), range(5_000)))
    assert len(set(made)) == 5_000


def test_ids_sort_even_if_the_clock_is_set_back(monkeypatch):
    clock = ids.Clock()
    first = clock.tick()
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    assert clock.tick() > first
    clock._count = (1 << ids.COUNT_BITS) - 1
    last = clock.tick()
    assert last[:2] == (first[0] + 1, 0)
    assert clock.tick() > last


@pytest.mark.parametrize("millisecond", [0, 1 << 47, (1 << 48) - 2])
def test_an_id_can_follow_one_from_a_clock_that_is_ahead(monkeypatch, millisecond):
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
def test_other_ids_and_the_greatest_id_are_ignored_as_predecessors(other):
    made = [ids.new_id(), ids.new_id(after=other), ids.new_id()]
    assert made == sorted(set(made))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_process_generates_different_ids():
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
