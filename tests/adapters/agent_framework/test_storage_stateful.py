"""HoldfastCheckpointStorage behaves as the framework's InMemoryCheckpointStorage."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("agent_framework")

from agent_framework import (
    InMemoryCheckpointStorage,
    Message,
    WorkflowCheckpoint,
    WorkflowCheckpointException,
    WorkflowEvent,
    WorkflowMessage,
)
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from adapters.agent_framework.workflows import exact
from holdfast import Catalog, SnapshotArchive
from holdfast.adapters.agent_framework import HoldfastCheckpointStorage
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.backends import SharedMemory

IDS = st.sampled_from(["c1", "c2", "c3", "c4", "odd/id"])
NAMES = st.sampled_from(["flow", "other flow"])
TEXTS = st.sampled_from(["", "a", "ü", "long " * 20])
MESSAGES = st.builds(lambda text: Message("user", [text]), TEXTS)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | MESSAGES,
    lambda inner: (
        st.lists(inner, max_size=10)
        | st.dictionaries(st.sampled_from(["a", "b/c", "agent_framework"]), inner, max_size=3)
        | st.tuples(inner, inner)
    ),
    max_leaves=6,
)
STATES = st.dictionaries(st.sampled_from(["plan", "notes", "_edge", "x/y"]), VALUES, max_size=4)
EXECUTORS = st.dictionaries(st.sampled_from(["e1", "e/2"]), STATES, max_size=2)
FLOWS = st.dictionaries(
    st.sampled_from(["e1", "e/2"]),
    st.lists(st.builds(WorkflowMessage, VALUES, st.just("e1")), max_size=3),
    max_size=2,
)
REQUESTS = st.dictionaries(
    st.sampled_from(["r1", "r2"]),
    st.builds(lambda data: WorkflowEvent.request_info("r1", "e1", data, str), TEXTS),
    max_size=2,
)


class Storages(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.content = MemoryStateStore()
        self.expected = InMemoryCheckpointStorage()
        self.found = [HoldfastCheckpointStorage(SharedMemory(self.content)) for _ in range(2)]
        self.last = {}

    def storage(self, which):
        """One of two storages, as in two processes."""
        return self.found[which]

    @rule(
        id_=IDS,
        name=NAMES,
        second=st.integers(0, 5),
        state=STATES,
        executors=st.none() | EXECUTORS,
        flows=FLOWS,
        requests=REQUESTS,
        keep=st.booleans(),
        which=st.integers(0, 1),
    )
    def save(self, id_, name, second, state, executors, flows, requests, keep, which):
        known = self.expected._checkpoints.get(id_)
        if known is not None:  # the id of another workflow's checkpoint is not used again
            name = known.workflow_name
        state = {**(copy.deepcopy(self.last) if keep else {}), **state}
        if executors is not None:
            state["_executor_state"] = executors
        self.last = state
        checkpoint = WorkflowCheckpoint(
            workflow_name=name,
            graph_signature_hash="hash",
            checkpoint_id=id_,
            timestamp=f"2026-11-16T12:00:0{second}+00:00",
            messages=flows,
            state=state,
            pending_request_info_events=requests,
            iteration_count=second,
            metadata={"n": second},
        )
        run_async(self.expected.save(checkpoint))
        assert run_async(self.storage(which).save(checkpoint)) == id_

    @rule(id_=IDS, which=st.integers(0, 1))
    def load(self, id_, which):
        try:
            expected = exact(run_async(self.expected.load(id_)))
        except WorkflowCheckpointException as error:
            with pytest.raises(WorkflowCheckpointException, match=str(error)):
                run_async(self.storage(which).load(id_))
        else:
            assert exact(run_async(self.storage(which).load(id_))) == expected

    @rule(id_=IDS, which=st.integers(0, 1))
    def delete(self, id_, which):
        expected = run_async(self.expected.delete(id_))
        assert run_async(self.storage(which).delete(id_)) is expected

    @rule(name=NAMES, which=st.integers(0, 1))
    def compare(self, name, which):
        for method in ("list_checkpoint_ids", "list_checkpoints", "get_latest"):
            expected = run_async(getattr(self.expected, method)(workflow_name=name))
            found = run_async(getattr(self.storage(which), method)(workflow_name=name))
            assert exact(found) == exact(expected), method

    def teardown(self):
        for name in ("flow", "other flow"):
            self.compare(name, 0)

        async def verify():
            archive = SnapshotArchive(self.content)
            for entry in (await Catalog(self.content).sessions("agent-framework")).sessions:
                assert (await archive.verify(location=entry.location)).ok

        run_async(verify())


TestStorages = Storages.TestCase
