"""HoldfastTaskStore behaves as the SDK's stores under random operations.

Tasks, lists and pages are compared with ``InMemoryTaskStore``. Versions follow the rules of
``VersionedDatabaseTaskStore``, which the machine keeps in a dict.
"""

from __future__ import annotations

import pytest

pytest.importorskip("a2a")

from a2a.server.cluster.task_store import ConcurrentTaskModificationError
from a2a.server.tasks.inmemory_task_store import InMemoryTaskStore
from a2a.types.a2a_pb2 import Artifact, ListTasksRequest, Part, Task, TaskState
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import encode_page_token
from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from adapters.a2a.tasks import CANCELED, MISSING, caller, make_status, say
from holdfast import Session
from holdfast.adapters.a2a import HoldfastTaskEventStream, HoldfastTaskStore
from holdfast.adapters.a2a.layout import TERMINAL_STATES
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.backends import SharedMemory

IDS = st.sampled_from(["t1", "t2", "t:3", "t/4%"])
OWNERS = st.sampled_from(["", "alice", "bob"])
STATES = st.sampled_from([0, *TaskState.values()])
TIMES = st.one_of(st.none(), st.integers(1, 5))
STATUSES = st.builds(
    lambda state, seconds, nanos, text: make_status(
        state, seconds, nanos, None if text is None else say(text)
    ),
    STATES,
    TIMES,
    st.sampled_from([0, 1, 999_999_999]),
    st.one_of(st.none(), st.sampled_from(["a", "b"])),
)
TEXTS = st.text(max_size=3)
PARTS = st.one_of(
    st.builds(lambda text: Part(text=text), TEXTS),
    st.builds(lambda raw: Part(raw=raw), st.binary(max_size=3)),
)
ARTIFACTS = st.builds(
    lambda name, parts: Artifact(artifact_id=name, name=name, parts=parts),
    st.sampled_from(["x", "y"]),
    st.lists(PARTS, max_size=3),
)


@st.composite
def task_edits(draw):
    """A function that changes a task in place."""
    kind = draw(st.sampled_from(["status", "say", "chunk", "artifacts", "history", "metadata"]))
    status, artifacts = draw(STATUSES), draw(st.lists(ARTIFACTS, max_size=3))
    texts, part = draw(st.lists(TEXTS, max_size=3)), draw(PARTS)

    def edit(task):
        if kind == "status":
            task.status.CopyFrom(status)
        elif kind == "say":
            task.history.extend(say(each) for each in texts)
        elif kind == "chunk" and task.artifacts:
            task.artifacts[-1].parts.append(part)
        elif kind == "artifacts":
            del task.artifacts[:]
            task.artifacts.extend(artifacts)
        elif kind == "history":
            del task.history[len(texts) :]
        else:
            task.ClearField("metadata")
            task.metadata.update({each: index for index, each in enumerate(texts)})
            task.context_id = texts[0] if texts else "c1"

    return edit


class TaskStores(RuleBasedStateMachine):
    """Two task stores that get the same calls."""

    @initialize()
    def begin(self):
        self.content = MemoryStateStore()
        self.stores = [HoldfastTaskStore(SharedMemory(self.content)) for _ in range(2)]
        self.theirs = InMemoryTaskStore()
        self.read = {}
        """Tasks and versions that a writer has read, which may be stale."""
        self.current = {}
        """The current versions."""
        self.events = {}
        """The events of each task since it was created."""

    @rule(
        name=IDS,
        owner=OWNERS,
        edits=st.lists(task_edits(), min_size=1, max_size=2),
        index=st.integers(0, 1),
        must_read=st.booleans(),
        is_plain=st.booleans(),
    )
    def save(self, name, owner, edits, index, must_read, is_plain):
        key, context = (name, owner), caller(owner)
        if must_read or key not in self.read:
            stored = run_async(self.stores[index].get(name, context))
            task = Task(id=name, context_id="c1") if stored is None else stored.task
            self.read[key] = (task, MISSING if stored is None else stored.version)
        task = Task()
        task.CopyFrom(self.read[key][0])
        for edit in edits:
            edit(task)
        if is_plain:
            run_async(self.stores[index].as_task_store.save(task, context))
            version = run_async(self.stores[index].get(name, context)).version
        else:
            is_refused = self.must_be_refused(key, task)
            event = task if index else None
            save = self.stores[index].save(
                task, event=event, prev_version=self.read[key][1], context=context
            )
            if is_refused:
                with pytest.raises(ConcurrentTaskModificationError):
                    run_async(save)
                return
            version = run_async(save)
            if event is not None:
                self.events.setdefault(key, []).append((version, task))
        run_async(self.theirs.save(task, context))
        assert version.is_after(self.current.get(key, MISSING)) or key not in self.current
        self.current[key] = version
        self.read[key] = (task, version)

    def must_be_refused(self, key, task):
        theirs = run_async(self.theirs.get(key[0], caller(key[1])))
        if task.status.state == CANCELED:
            return theirs is None or theirs.status.state in TERMINAL_STATES
        return self.read[key][1] != self.current.get(key, MISSING)

    @rule(name=IDS, owner=OWNERS, index=st.integers(0, 1))
    def get(self, name, owner, index):
        stored = run_async(self.stores[index].get(name, caller(owner)))
        theirs = run_async(self.theirs.get(name, caller(owner)))
        if theirs is None:
            assert stored is None
        else:
            assert (stored.task, stored.version) == (theirs, self.current[name, owner])
            self.read[name, owner] = (stored.task, stored.version)

    @rule(name=IDS, owner=OWNERS, index=st.integers(0, 1))
    def delete(self, name, owner, index):
        run_async(self.stores[index].delete(name, caller(owner)))
        run_async(self.theirs.delete(name, caller(owner)))
        for known in (self.current, self.read, self.events):
            known.pop((name, owner), None)

    @rule(name=IDS, owner=OWNERS)
    def set_value_beside(self, name, owner):
        if (name, owner) in self.current:
            location = self.stores[0].location(name, owner)

            async def work():
                async with Session.open(
                    SharedMemory(self.content), agent_id="a2a", session_id=location.session_id
                ) as session:
                    session.set("beside", len(session.events))

            run_async(work())

    @rule(
        owner=OWNERS,
        index=st.integers(0, 1),
        context_id=st.sampled_from(["", "c1", "other"]),
        state=STATES,
        since=TIMES,
        page_size=st.integers(1, 4),
    )
    def list_pages(self, owner, index, context_id, state, since, page_size):
        params = ListTasksRequest(context_id=context_id, status=state, page_size=page_size)
        if since is not None:
            params.status_timestamp_after.CopyFrom(Timestamp(seconds=since))
        while True:
            ours = run_async(self.stores[index].list(params, caller(owner)))
            assert ours == run_async(self.theirs.list(params, caller(owner)))
            if not ours.next_page_token:
                break
            params.page_token = ours.next_page_token

    @rule(owner=OWNERS, token=st.one_of(IDS.map(encode_page_token), st.sampled_from(["?", "x"])))
    def list_with_another_token(self, owner, token):
        params = ListTasksRequest(page_token=token)

        def list_or_fail(store):
            try:
                return run_async(store.list(params, caller(owner)))
            except InvalidParamsError as error:
                return str(error)

        assert list_or_fail(self.stores[0]) == list_or_fail(self.theirs)

    @rule(name=IDS, owner=OWNERS, index=st.integers(0, 1), start=st.integers(0, 3))
    def subscribe(self, name, owner, index, start):
        events = self.events.get((name, owner), [])
        if (name, owner) not in self.current:
            return
        after = events[start - 1][0] if 0 < start <= len(events) else MISSING
        wanted = events[start:] if 0 < start <= len(events) else events

        async def work():
            store = self.stores[index]
            await store.get(name, caller(owner))
            stream, found = HoldfastTaskEventStream(store), []
            subscription = stream.subscribe(name, after=after)
            for _ in wanted:
                found.append(await anext(subscription))
            await subscription.aclose()
            return [(each.version, each.event) for each in found]

        assert run_async(work()) == wanted

    @invariant()
    def versions_are_known(self):
        assert self.current.keys() >= self.events.keys()


TaskStores.TestCase.settings = settings(settings.default, stateful_step_count=20)
TestTaskStores = TaskStores.TestCase
