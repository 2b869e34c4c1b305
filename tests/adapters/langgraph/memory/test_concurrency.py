"""Several writers of one namespace, and what calls cost as memories grow."""

from __future__ import annotations

import asyncio
import multiprocessing

from langgraph.store.base import PutOp

from holdfast.adapters.langgraph import HoldfastStore
from support.async_tests import async_test
from support.observed_store import ObservedStore

USER = ("users", "7")
COUNT = 10


def write_items(url, name, barrier):
    with HoldfastStore.from_url(url) as memory:
        memory.get(USER, "shared")
        barrier.wait(60)
        for number in range(COUNT):
            memory.put(USER, f"{name}{number}", {"n": number})
            memory.put(USER, "shared", {"by": name, "n": number})
            if number % 2:
                memory.delete(USER, f"{name}{number}")


def test_concurrent_processes_lose_no_items(tmp_path):
    url = f"sqlite:///{tmp_path}/memory.db"
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(3)
    running = [
        context.Process(target=write_items, args=(url, name, barrier), daemon=True)
        for name in "abc"
    ]
    for each in running:
        each.start()
    for each in running:
        each.join(60)
        assert each.exitcode == 0
    with HoldfastStore.from_url(url) as memory:
        found = {each.key: each.value for each in memory.search(USER, limit=100)}
        shared = found.pop("shared")
        assert found == {f"{n}{i}": {"n": i} for n in "abc" for i in range(0, COUNT, 2)}
        assert shared["n"] == COUNT - 1
        assert len(memory.history(USER, "shared")) == 3 * COUNT


@async_test
async def test_two_stores_on_every_backend_lose_no_items(new_state_store):
    async with HoldfastStore(new_state_store()) as one, HoldfastStore(new_state_store()) as two:

        async def work(memory, name):
            for number in range(4):
                await memory.aput(USER, f"{name}{number}", {"n": number})

        await asyncio.gather(work(one, "a"), work(two, "b"), one.aput(USER, "c", {"n": 0}))
        for memory in (one, two):
            keys = {each.key for each in await memory.asearch(USER)}
            assert keys == {f"{name}{number}" for name in "ab" for number in range(4)} | {"c"}


def test_a_deletion_sees_what_another_store_put(memory):
    other = HoldfastStore(memory.state_store)
    memory.put(USER, "a", {"n": 1})
    assert other.get(USER, "a") is not None
    memory.put(USER, "b", {"n": 1})
    other.delete(USER, "b")
    assert memory.get(USER, "b") is None


def test_a_put_writes_its_item_alone():
    store = ObservedStore()
    with HoldfastStore(store) as memory:
        memory.batch([PutOp(USER, f"k{number}", {"text": "x" * 100}) for number in range(500)])
        store.forget()
        memory.put(USER, "k7", {"text": "y" * 100})
        assert store.bytes_written < 3000
        assert not [key for key in store.read if "keyframes" in key]


def test_a_search_reads_only_the_namespaces_below_its_prefix():
    store = ObservedStore()
    memory = HoldfastStore(store)
    memory.batch([PutOp(("users", f"{n:03}"), "a", {"n": n}) for n in range(60)])
    memory.put(("users", "007", "notes"), "a", {"n": 0})
    store.forget()
    assert len(HoldfastStore(store).search(("users", "007"))) == 2
    read = {key.split("/")[1] for key in store.read}
    assert read == {"users.007", "users.007.notes"}
    assert store.listed < 40


def test_a_list_reads_only_the_last_segments_of_what_it_returns():
    store = ObservedStore()
    memory = HoldfastStore(store)
    for number in range(40):
        name = ("users", f"{number:03}")
        memory.batch([PutOp(name, f"{n}", {"text": "x" * 100}) for n in range(30)])
        memory.put(name, "last", {})
    store.forget()
    assert len(memory.list_namespaces(limit=3)) == 3
    assert len({key.split("/")[1] for key in store.read}) <= 16
    assert not [key for key in store.read if key.endswith("0000000001.json")]
