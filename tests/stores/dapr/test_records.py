"""Records that change together, on a component that cannot do that.

The sidecar is a dictionary that behaves like Redis. Anything may happen between two calls, and any
call may be the last of its program.
"""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servers.process import needs
from support.async_tests import async_test

needs("dapr")

from holdfast.errors import StateStoreError  # noqa: E402
from holdfast.stores.dapr import records as records_module  # noqa: E402
from holdfast.stores.dapr.records import Change, Record, Records  # noqa: E402
from holdfast.stores.dapr.sidecar import Component  # noqa: E402

NAMES = ["a", "b", "c", "d"]


class PowerCut(BaseException):
    """A program was killed."""


class Redis:
    """The shared data: the bytes and the version of each name."""

    def __init__(self, seed: int) -> None:
        self.records: dict[str, tuple[bytes, int]] = {}
        self.random = random.Random(seed)


class Program:
    """The sidecar of one program, until it is killed."""

    display_url = "dapr://test"

    def __init__(self, redis: Redis, *, calls: int | None = None, losses: float = 0.0) -> None:
        self.redis = redis
        self.calls = calls
        self.losses = losses

    def lose(self) -> None:
        if self.redis.random.random() < self.losses:
            raise StateStoreError("the response was lost", transient=True, unknown=True)

    async def yield_to_others(self) -> bool:
        """Let other programs run; return whether to be killed right after this call."""
        for _ in range(self.redis.random.randrange(4)):
            await asyncio.sleep(0)
        if self.calls is None:
            return False
        self.calls -= 1
        if self.calls < 0:
            raise PowerCut
        return self.calls == 0 and self.redis.random.random() < 0.5

    async def read(self, names):
        found = {}
        for name in names:
            await self.yield_to_others()
            self.lose()
            data, version = self.redis.records.get(name, (b"", 0))
            found[name] = (data, str(version or ""))
        return found

    async def save(self, name, value, etag):
        last = await self.yield_to_others()
        version = self.redis.records.get(name, (b"", 0))[1]
        # As in Redis, an etag does not protect an absent record.
        if version and str(version) != etag:
            return "failed to set key"
        self.lose()
        self.redis.records[name] = (value, version + 1)
        if last:
            raise PowerCut
        self.lose()
        return None

    async def delete(self, name, etag=""):
        last = await self.yield_to_others()
        version = self.redis.records.get(name, (b"", 0))[1]
        if etag and version and str(version) != etag:
            return "failed to delete"
        self.lose()
        self.redis.records.pop(name, None)
        if last:
            raise PowerCut
        self.lose()
        return None


def parse_numbers(body: bytes | None) -> list[int]:
    return [int(text) for text in (body or b"").split()]


async def add(records: Records, number: int, names: list[str]) -> None:
    """Append a number to several records at once."""
    while True:
        seen = await records.read(names)
        changes = []
        for name in names:
            body = b"%s %d" % (seen[name].body or b"", number)
            changes.append(Change(seen[name], Record(name, f"token {number}", body)))
        if await records.commit(changes) is None:
            return


@pytest.fixture(autouse=True)
def short_claims(monkeypatch):
    """Void batches of other programs at once."""
    monkeypatch.setattr(records_module, "CLAIM_SECONDS", 0.0)


WORKS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True),
        st.none() | st.integers(1, 25),
    ),
    min_size=2,
    max_size=7,
)


@given(works=WORKS, seed=st.integers(0, 10_000))
def test_a_batch_is_atomic_whichever_program_dies(works, seed):
    redis = Redis(seed)

    async def program(number: int, names: list[str], calls: int | None) -> bool:
        records = Records(Program(redis, calls=calls), "ns", Component("state.redis", frozenset()))
        try:
            await add(records, number, names)
        except PowerCut:
            return False
        return True

    async def run_programs() -> None:
        works_on = [program(number, *work) for number, work in enumerate(works)]
        survived = await asyncio.gather(*works_on)
        reader = Records(Program(redis), "ns", None)
        found = {name: parse_numbers(one.body) for name, one in (await reader.read(NAMES)).items()}
        for number, (names, _) in enumerate(works):
            where = [name for name in NAMES if number in found[name]]
            assert where in ([], sorted(names))
            assert where or not survived[number]
        for held in found.values():
            assert len(held) == len(set(held)), "applied twice"
        # Leftovers do not block later writes.
        await add(reader, 1000, NAMES)
        after = await reader.read(NAMES)
        assert {name: parse_numbers(one.body) for name, one in after.items()} == {
            name: [*held, 1000] for name, held in found.items()
        }
        assert not any(one.claim for one in after.values())

    asyncio.run(run_programs())


@given(seed=st.integers(0, 10_000), count=st.integers(2, 5))
def test_nothing_is_left_if_no_program_dies(seed, count):
    redis = Redis(seed)

    async def run_programs() -> None:
        await asyncio.gather(
            *(add(Records(Program(redis), "ns", None), number, NAMES) for number in range(count))
        )
        reader = Records(Program(redis), "ns", None)
        found = [parse_numbers(one.body) for one in (await reader.read(NAMES)).values()]
        assert all(held == found[0] for held in found)
        assert sorted(found[0]) == list(range(count))

    records_module.CLAIM_SECONDS = 10.0
    asyncio.run(run_programs())
    assert sorted(redis.records) == NAMES


@given(seed=st.integers(0, 10_000))
def test_a_reader_never_sees_a_batch_undone(seed):
    redis = Redis(seed)

    async def run_programs() -> None:
        async def write() -> None:
            records = Records(Program(redis), "ns", None)
            for number in range(6):
                await add(records, number, ["a", "b"])

        async def watch(name: str) -> None:
            records = Records(Program(redis), "ns", None)
            last = 0
            while last < 6:
                now = len(parse_numbers((await records.read([name]))[name].body))
                assert now >= last
                last = now

        await asyncio.gather(write(), watch("a"), watch("b"), watch("b"))

    records_module.CLAIM_SECONDS = 10.0
    asyncio.run(run_programs())


@given(seed=st.integers(0, 10_000))
def test_lost_calls_leave_nothing_in_the_end(seed):
    redis = Redis(seed)
    records_module.CLAIM_SECONDS = 10.0

    async def persist(records: Records, number: int) -> None:
        while True:
            try:
                seen = await records.read(NAMES)
                if number in parse_numbers(seen["a"].body):
                    return
                bodies = {name: b"%s %d" % (one.body or b"", number) for name, one in seen.items()}
                changes = [Change(seen[name], Record(name, "", bodies[name])) for name in NAMES]
                await records.commit(changes)
            except StateStoreError:
                await asyncio.sleep(0)

    async def run_programs() -> None:
        programs = [Program(redis, losses=0.1) for _ in range(3)]
        several = [Records(program, "ns", None) for program in programs]
        await asyncio.gather(*(persist(one, number) for number, one in enumerate(several)))
        for program in programs:
            program.losses = 0.0
        records_module.TOMBSTONE_SECONDS = 0.0
        # Each program cleans up its leftovers, some with each batch.
        for number, one in enumerate(several * 5, 10):
            await persist(one, number)
        found = [parse_numbers(one.body) for one in (await several[0].read(NAMES)).values()]
        assert all(held == found[0] for held in found)
        assert sorted(found[0]) == [0, 1, 2, *range(10, 25)]

    try:
        asyncio.run(run_programs())
    finally:
        records_module.TOMBSTONE_SECONDS = 600.0
    assert sorted(redis.records) == NAMES


def test_a_tombstone_is_removed_after_a_while(monkeypatch):
    redis = Redis(0)

    async def run_programs() -> None:
        records = Records(Program(redis), "ns", None)
        await add(records, 1, ["a", "b", "c"])

        async def remove(*names: str) -> None:
            seen = await records.read(names)
            changes = [Change(seen[name], Record(name, "gone")) for name in names]
            assert await records.commit(changes) is None

        await remove("a", "b")
        found = await records.read(["a", "b"])
        assert [one.body for one in found.values()] == [None, None]
        assert "a" in redis.records
        await add(records, 2, ["b", "c"])  # exists again
        monkeypatch.setattr(records_module, "TOMBSTONE_SECONDS", 0.0)
        await remove("c")
        await add(records, 3, ["d", "e"])
        assert sorted(redis.records) == ["b", "d", "e"]

    asyncio.run(run_programs())


def test_a_tombstone_that_cannot_be_removed_is_left(monkeypatch):
    monkeypatch.setattr(records_module, "TOMBSTONE_SECONDS", 0.0)

    async def run_programs() -> None:
        program = Program(Redis(0))
        records = Records(program, "ns", None)
        await add(records, 1, ["a", "b"])
        seen = await records.read(["a"])

        async def fail(*_: object) -> None:
            raise StateStoreError("no", transient=True)

        assert await records.commit([Change(seen["a"], Record("a", "gone"))]) is None
        monkeypatch.setattr(program, "delete", fail)
        await add(records, 2, ["b", "c"])
        found = await records.read(["a", "b", "c"])
        assert [parse_numbers(one.body) for one in found.values()] == [[], [1, 2], [2]]

    asyncio.run(run_programs())


@async_test
async def test_the_number_of_remembered_batches_is_bounded():
    records = Records(Program(Redis(0)), "ns", None)
    for number in range(3 * records_module.MAX_KNOWN_BATCHES):
        records._waiting_since[f"batch {number}"] = 0.0
    records_module.CLAIM_SECONDS = 10.0
    await records._wait_for("another")
    assert list(records._waiting_since) == ["another"]
