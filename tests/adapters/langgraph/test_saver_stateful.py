"""HoldfastSaver behaves as LangGraph's InMemorySaver under random operations."""

from __future__ import annotations

import copy

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, rule
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer

from adapters.langgraph.graphs import at
from adapters.langgraph.samples import ALLOWED, MESSAGES, SAMPLES, exact
from holdfast import Catalog, SnapshotArchive
from holdfast.adapters.langgraph import HoldfastSaver
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.backends import SharedMemory

CHANNELS = ["plan", "messages", "items", "__start__", "branch:to:x", "odd/name é"]
SPECIAL = ["__error__", "__interrupt__", "__resume__", "__scheduled__"]
SPACES = ["", "sub:1", "sub:1|deeper:2"]


def row(found):
    """A checkpoint tuple in a form that can be compared."""
    if found is None:
        return None
    place = found.config["configurable"]
    parent = found.parent_config and found.parent_config["configurable"]["checkpoint_id"]
    checkpoint = dict(found.checkpoint)
    values = checkpoint.pop("channel_values")
    return (
        (place["thread_id"], place["checkpoint_ns"], place["checkpoint_id"], parent),
        {name: exact(value) for name, value in values.items()},
        exact({name: checkpoint[name] for name in sorted(checkpoint)}),
        exact(dict(found.metadata)),
        [(task, channel, exact(value)) for task, channel, value in found.pending_writes],
    )


def check(ours, theirs):
    """Compare part by part, so that a failure shows what differs."""
    if ours is None or theirs is None:
        assert ours is theirs
        return
    assert ours[0] == theirs[0]
    assert ours[1].keys() == theirs[1].keys()
    for name, value in theirs[1].items():
        if value[0] is list and ours[1][name][0] is list:
            for mine, other in zip(ours[1][name][1], value[1], strict=True):
                assert mine == other
        assert ours[1][name] == value
    assert ours[2:] == theirs[2:]


def check_all(ours, theirs):
    assert [each[0] for each in ours] == [each[0] for each in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        check(mine, other)


class Savers(RuleBasedStateMachine):
    """Two savers that get the same calls."""

    checkpoints = Bundle("checkpoints")

    @initialize(target=checkpoints)
    def begin(self):
        self.content = MemoryStateStore()
        self.ours = self.another()
        serde = JsonPlusSerializer(allowed_msgpack_modules=ALLOWED)
        self.theirs = InMemorySaver(serde=serde)
        self.number = 0
        self.values = {}
        return self.new_id("t", "")

    def another(self):
        return HoldfastSaver(SharedMemory(self.content), allowed_types=ALLOWED)

    def new_id(self, thread, ns):
        """A checkpoint that is not there yet."""
        self.number += 1
        return thread, ns, f"1f1e0000-0000-6000-8000-{self.number:012}"

    @rule(
        target=checkpoints,
        parent=checkpoints,
        fresh=st.booleans(),
        changed=st.dictionaries(st.sampled_from(CHANNELS), SAMPLES, max_size=3),
        messages=st.lists(MESSAGES, max_size=3),
        cut=st.sampled_from([0, 0, 1]),
        gone=st.sampled_from([None, *CHANNELS]),
        metadata=st.dictionaries(st.sampled_from(["run_id", "other"]), st.sampled_from("ab")),
        thread=st.sampled_from("tu"),
        ns=st.sampled_from(SPACES),
    )
    def put(self, parent, fresh, changed, messages, cut, gone, metadata, thread, ns):
        """A checkpoint after another, or a first one."""
        known = parent in self.values and not fresh
        if known:
            thread, ns, before = parent
        place = self.new_id(thread, ns)
        values, versions = self.values[parent] if known else ({}, {})
        # The objects of the one before, as a graph has them.
        values = dict(values)
        values.update(copy.deepcopy(changed))
        new = set(changed)
        if messages or cut:
            old = values.get("messages")
            old = old if isinstance(old, list) else []
            values["messages"] = [*old[cut:], *messages]
            new.add("messages")
        if gone in values:
            del values[gone]
            new.add(gone)
        versions = dict(versions)
        for name in new:
            versions[name] = self.ours.get_next_version(versions.get(name), None)
        self.values[place] = values, versions
        config = at(thread, checkpoint_ns=ns)
        if known:
            config["configurable"]["checkpoint_id"] = before
        checkpoint = {
            **empty_checkpoint(),
            "id": place[2],
            "channel_values": values,
            "channel_versions": versions,
            "versions_seen": {"node": {name: versions[name] for name in sorted(versions)}},
        }
        step = {"source": "loop", "step": self.number, "parents": {}, **metadata}
        for saver in (self.ours, self.theirs):
            copied = {**checkpoint, "channel_values": dict(values)}
            answer = saver.put(config, copied, dict(step), {name: versions[name] for name in new})
            assert answer == at(thread, checkpoint_ns=ns, checkpoint_id=place[2])
        return place

    @rule(
        place=checkpoints,
        writes=st.one_of(
            st.lists(st.tuples(st.sampled_from(CHANNELS), SAMPLES), max_size=3),
            st.lists(st.tuples(st.sampled_from([*CHANNELS, *SPECIAL]), SAMPLES), max_size=2),
        ),
        task=st.sampled_from(["task 1", "task 2"]),
        path=st.sampled_from(["", "~pull, a", "~push, 1"]),
    )
    def put_writes(self, place, writes, task, path):
        """What a task wrote, early, late or again."""
        thread, ns, id_ = place
        config = at(thread, checkpoint_ns=ns, checkpoint_id=id_)
        for saver in (self.ours, self.theirs):
            saver.put_writes(config, list(writes), task, path)

    @rule()
    def start_again(self):
        """Another process goes on."""
        self.ours = self.another()

    @rule(place=checkpoints)
    def get(self, place):
        thread, ns, id_ = place
        for config in (
            at(thread, checkpoint_ns=ns, checkpoint_id=id_),
            at(thread, checkpoint_ns=ns),
            at(thread),
            at("unknown"),
        ):
            check(row(self.ours.get_tuple(config)), row(self.theirs.get_tuple(config)))

    @rule(
        place=checkpoints,
        filters=st.sampled_from([None, {}, {"source": "loop"}, {"run_id": "a"}, {"step": 1}]),
        limit=st.sampled_from([None, 0, 1, 3]),
        with_ns=st.booleans(),
        before=st.booleans(),
    )
    def list(self, place, filters, limit, with_ns, before):
        thread, ns, id_ = place
        config = at(thread, checkpoint_ns=ns) if with_ns else at(thread)
        options = {"filter": filters, "before": at(checkpoint_id=id_) if before else None}
        ours = [row(each) for each in self.ours.list(config, limit=limit, **options)]
        theirs = sorted(
            (row(each) for each in self.theirs.list(config, **options)),
            key=lambda each: each[0][2],
            reverse=True,
        )
        check_all(ours, theirs[:limit])

    @rule(place=checkpoints, channels=st.lists(st.sampled_from(CHANNELS), unique=True))
    def history_of_channels(self, place, channels):
        """What a delta channel is made of."""
        thread, ns, id_ = place
        for config in (
            at(thread, checkpoint_ns=ns, checkpoint_id=id_),
            at(thread, checkpoint_ns=ns),
        ):
            ours = self.ours.get_delta_channel_history(config=config, channels=channels)
            theirs = self.theirs.get_delta_channel_history(config=config, channels=channels)
            assert exact(dict(ours)) == exact(dict(theirs))

    @rule()
    def list_all(self):
        ours = [row(each) for each in self.ours.list(None)]
        theirs = [row(each) for each in self.theirs.list(None)]
        check_all(ours, sorted(theirs, key=lambda each: each[0][2], reverse=True))

    @rule(thread=st.sampled_from("tu"))
    def delete(self, thread):
        if self.number % 5 == 0:
            for saver in (self.ours, self.theirs):
                saver.delete_thread(thread)
            self.values = {key: each for key, each in self.values.items() if key[0] != thread}

    def teardown(self):
        if hasattr(self, "content"):
            run_async(self.verify())

    async def verify(self):
        archive = SnapshotArchive(self.content)
        for entry in (await Catalog(self.content).sessions("langgraph")).sessions:
            found = await archive.verify(location=entry.location)
            assert found.ok, found


Savers.TestCase.settings = settings(settings.default, stateful_step_count=25)
TestSavers = Savers.TestCase
