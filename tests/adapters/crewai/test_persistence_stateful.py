"""HoldfastFlowPersistence behaves as CrewAI's SQLiteFlowPersistence under random operations."""

from __future__ import annotations

import shutil
import tempfile

import pytest

pytest.importorskip("crewai", reason="runs in make test-crewai")

from crewai.flow.async_feedback.types import PendingFeedbackContext
from crewai.flow.persistence import SQLiteFlowPersistence
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule
from pydantic import create_model

from holdfast import Catalog, SnapshotArchive
from holdfast.adapters.crewai import HoldfastFlowPersistence
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.backends import SharedMemory

IDS = st.sampled_from(["f", "g", "odd/id"])
METHODS = st.sampled_from(["one", "two"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.sampled_from(["", "ü", "long" * 9]),
    lambda inner: (
        st.lists(inner, max_size=10)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=8,
)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": VALUES}),
    max_size=4,
)
DICTS = st.fixed_dictionaries(
    {"id": IDS}, optional={"plan": VALUES, "x/y": VALUES, "messages": MESSAGES | VALUES}
)


def to_model(fields):
    """The same state as a pydantic model."""
    return create_model("State", **dict.fromkeys(fields, (object, None)))(**fields)


STATES = DICTS | DICTS.filter(lambda fields: "x/y" not in fields).map(to_model)
CONTEXTS = st.builds(
    PendingFeedbackContext,
    flow_id=IDS,
    flow_class=st.just("a.B"),
    method_name=METHODS,
    method_output=VALUES,
    message=st.just("ok?"),
    emit=st.none() | st.just(["yes", "no"]),
    metadata=st.dictionaries(st.sampled_from(["a"]), VALUES, max_size=1),
    llm=st.none() | st.just("model"),
    trace_context=st.none() | st.just((1, 2)),
)
WHICH = st.integers(0, 1)


class Persistences(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.content = MemoryStateStore()
        self.expected = SQLiteFlowPersistence(f"{self.folder}/flows.db")
        stores = [SharedMemory(self.content) for _ in range(2)]
        self.found = [HoldfastFlowPersistence(each) for each in stores]  # as in two processes

    @rule(id_=IDS, method=METHODS, state=STATES, which=WHICH)
    def save_state(self, id_, method, state, which):
        self.expected.save_state(id_, method, state)
        self.found[which].save_state(id_, method, state)

    @rule(id_=IDS, context=CONTEXTS, state=STATES, which=WHICH)
    def save_pending(self, id_, context, state, which):
        self.expected.save_pending_feedback(id_, context, state)
        self.found[which].save_pending_feedback(id_, context, state)

    @rule(id_=IDS, which=WHICH)
    def clear_pending(self, id_, which):
        self.expected.clear_pending_feedback(id_)
        self.found[which].clear_pending_feedback(id_)

    @rule(id_=IDS, which=WHICH)
    def load(self, id_, which):
        assert self.found[which].load_state(id_) == self.expected.load_state(id_)
        found = self.found[which].load_pending_feedback(id_)
        assert found == self.expected.load_pending_feedback(id_)

    def teardown(self):
        for id_ in ("f", "g", "odd/id"):
            self.load(id_, 0)

        async def verify():
            archive = SnapshotArchive(self.content)
            for entry in (await Catalog(self.content).sessions("flow")).sessions:
                assert (await archive.verify(location=entry.location)).ok

        run_async(verify())
        shutil.rmtree(self.folder)


TestPersistences = Persistences.TestCase
TestPersistences.settings = settings(stateful_step_count=12)
