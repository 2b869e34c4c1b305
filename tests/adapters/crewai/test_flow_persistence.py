"""Flows with their state in Holdfast, with the real package."""

from __future__ import annotations

import copy
import datetime as dt
import multiprocessing

import pytest

pytest.importorskip("crewai", reason="runs in make test-crewai")

from crewai.events.event_bus import crewai_event_bus
from crewai.flow.async_feedback.types import HumanFeedbackPending, PendingFeedbackContext
from crewai.flow.persistence import FlowPersistence
from pydantic import BaseModel, model_serializer

from adapters.crewai.flows import make_counter, make_review, make_trip
from holdfast import (
    BlockingSession,
    Catalog,
    IntegrityError,
    Session,
    UnsupportedValueError,
)
from holdfast.adapters.crewai import HoldfastFlowPersistence
from support.async_tests import run_async
from support.observed_store import ObservedStore

# Python 3.12 warns about forks beside threads.
pytestmark = pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")


def run_in_other_processes(*calls):
    """Run functions at the same time, each in a process of its own; all must succeed.

    They are forked, because an import of CrewAI takes seconds.
    """
    processes = [
        multiprocessing.get_context("fork").Process(target=function, args=arguments)
        for function, *arguments in calls
    ]
    for each in processes:
        each.start()
    for each in processes:
        each.join(120)
    assert [each.exitcode for each in processes] == [0] * len(calls)


def answer(url, text):
    crewai_event_bus._executor_initialized = False  # a forked process does not have its threads
    with HoldfastFlowPersistence.from_url(url) as persistence:
        flow = make_review().from_pending("review-1", persistence)
        assert flow.resume(text) == f"published: {text}"
        persistence.save_state("review-1", "end", flow.state)


def write(url, name):
    with HoldfastFlowPersistence.from_url(url) as persistence:
        for _ in range(10):
            persistence.save_state("shared", name, {"id": "shared", "by": name})


def open_session(persistence, session_id):
    async def work():
        return await Session.open(
            persistence.state_store, agent_id="flow", session_id=session_id, must_exist=True
        )

    return run_async(work())


def read_events(persistence, session_id):
    async def work():
        session = await Session.open(
            persistence.state_store, agent_id="flow", session_id=session_id, must_exist=True
        )
        return [each async for each in session.log.read()]

    return run_async(work())


def context(**more):
    return PendingFeedbackContext(
        flow_id="f", flow_class="a.B", method_name="m", method_output="x", message="ok?", **more
    )


# -------------------------------------------------------------------------------------- interface


def test_states_come_back_on_every_backend(new_state_store):
    with HoldfastFlowPersistence(new_state_store()) as persistence:
        assert persistence.load_state("f") is None
        persistence.save_state("f", "one", {"id": "f", "n": 1, "long": list(range(20))})
        persistence.save_state("f", "two", {"id": "f", "m": {"a": [1.5, None]}})
        persistence.save_pending_feedback("g", context(emit=["yes", "no"]), {"id": "g"})
    with HoldfastFlowPersistence(new_state_store()) as persistence:
        assert persistence.load_state("f") == {"id": "f", "m": {"a": [1.5, None]}}
        state, found = persistence.load_pending_feedback("g")
        assert (state, found.emit, found.message) == ({"id": "g"}, ["yes", "no"], "ok?")
        persistence.clear_pending_feedback("g")
        assert persistence.load_pending_feedback("g") is None
        assert persistence.load_state("g") == {"id": "g"}


def test_only_changed_fields_are_written_and_each_save_is_an_event():
    store = ObservedStore()
    persistence = HoldfastFlowPersistence(store)
    state = {"id": "f", "big": "x" * 50_000, "notes": [f"note {'y' * 200}"] * 100, "old": 1}
    state["messages"] = [{"role": "user", "content": "z" * 500} for _ in range(50)]
    persistence.save_state("f", "one", state)
    store.forget()
    state["notes"].append("one more")
    state["messages"].append({"role": "assistant", "content": "yes"})
    del state["old"]
    persistence.save_state("f", "two", {**state, "new": 2})
    assert store.bytes_written < 3000
    event = read_events(persistence, "f")[-1]
    assert (event.type, event.data) == ("crewai.method", {"method": "two"})
    assert {(space, key) for space, key, _ in event.changes["set"]} == {
        ("crewai", "flow"),
        ("crewai/items/notes", "000000000100"),
        ("messages", "000000000050"),
        ("state", "new"),
    }
    assert event.changes["delete"] == [("state", "old")]
    assert persistence.load_state("f") == {**state, "new": 2}
    persistence.save_state("f", "three", {**state, "new": 2})
    assert read_events(persistence, "f")[-1].data == {"method": "three"}


def test_values_of_the_user_beside_the_state_stay_and_edited_fields_reach_the_flow(persistence):
    persistence.save_state("f", "one", {"id": "f", "n": 1, "gone": 1})

    async def edit():
        async with Session.open(
            persistence.state_store, agent_id="flow", session_id="f"
        ) as session:
            session.set("mine", 5)
            session.set("n", 7)
            session.delete("gone")

    run_async(edit())
    assert persistence.load_state("f") == {"id": "f", "n": 7}
    persistence.save_state("f", "two", {"id": "f", "n": 8})
    assert open_session(persistence, "f").get("mine") == 5


def test_lists_that_the_user_sets_reach_the_flow(persistence):
    long, said = list(range(10)), [{"role": "user", "content": "Hello"}]
    persistence.save_state("f", "one", {"id": "f", "steps": long, "messages": said})
    session = open_session(persistence, "f")
    session.set("steps", ["mine"])
    session.set("messages", [])
    run_async(session.commit())
    assert persistence.load_state("f") == {"id": "f", "steps": ["mine"], "messages": []}
    persistence.save_state("f", "two", {"id": "f", "steps": long, "messages": said})
    assert persistence.load_state("f") == {"id": "f", "steps": long, "messages": said}


def test_a_field_that_the_user_deletes_is_not_in_the_state_of_a_paused_flow(persistence):
    persistence.save_pending_feedback("f", context(), {"id": "f", "city": "Oslo", "n": 1})
    session = open_session(persistence, "f")
    session.delete("city")
    run_async(session.commit())
    assert persistence.load_pending_feedback("f")[0] == {"id": "f", "n": 1}
    persistence.save_state("f", "two", {"id": "f", "n": 2})
    assert persistence.load_pending_feedback("f")[0] == {"id": "f", "n": 1}


def test_a_method_may_add_a_field_while_another_is_saved(persistence):
    state = {"id": "f", "inner": {}}

    class Slow(BaseModel):
        @model_serializer
        def dump(self):
            state["late"] = state["inner"]["late"] = 1  # as a method in another thread does
            return {}

    state["slow"] = state["inner"]["slow"] = Slow()
    state["last"] = state["inner"]["last"] = 1
    persistence.save_state("f", "one", state)
    assert persistence.load_state("f").keys() >= {"id", "slow", "last"}


def make_loop():
    """Return a value that contains itself."""
    value = []
    value.append({"value": value})
    return value


class Person(BaseModel):
    name: str
    born: dt.date


class Odd(BaseModel):
    model_config = {"arbitrary_types_allowed": True}
    id: str = "f"
    thing: object = None


def test_states_of_models_are_stored_as_json_and_those_of_dicts_exactly(persistence):
    ada = Person(name="Ada", born=dt.date(1815, 12, 10))
    persistence.save_state("f", "one", ada)
    assert persistence.load_state("f") == {"name": "Ada", "born": "1815-12-10"}
    exact = {"id": "f", "when": dt.date(2026, 1, 1), "pair": (1, {2}), "ints": {1: "a"}}
    persistence.save_state("f", "two", {**exact, "people": [ada], "tuple": (ada,)})
    ada = ada.model_dump(mode="json")
    assert persistence.load_state("f") == {**exact, "people": [ada], "tuple": (ada,)}


@pytest.mark.parametrize(
    ("state", "path"),
    [
        ({"id": "f", "a": {"b": [object()]}}, "$.state.a.b[0]"),
        ({"id": "f", "long": [*range(20), {"x": object()}]}, "$.state.long[20].x"),
        ({"id": "f", 5: 1}, "$.state"),
        ({"id": "f", "loop": make_loop()}, "$.state.loop"),
        ({"id": "f", "\ud800": list(range(20))}, "$.fields[1]"),
        (Odd(thing=object()), "$.state.thing"),
    ],
)
def test_a_value_that_cannot_be_stored_is_refused_with_its_path(persistence, state, path):
    with pytest.raises(UnsupportedValueError) as caught:
        persistence.save_state("f", "one", state)
    assert caught.value.path == path
    assert persistence.load_state("f") is None
    with pytest.raises(ValueError, match="pydantic BaseModel or a dict, got 5"):
        persistence.save_state("f", "one", 5)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("flow", "text"),
        ("flow", {"fields": [5], "lists": [], "method": "m"}),
        ("pending", {"fields": []}),
        ("pending", {"fields": [], "context": {"odd": 1}}),
    ],
)
def test_damaged_entries_are_told(persistence, key, value):
    persistence.save_state("f", "one", {"id": "f"})

    async def edit():
        async with Session.open(
            persistence.state_store, agent_id="flow", session_id="f"
        ) as session:
            session.record("edited", changes={"set": [("crewai", key, value)], "delete": []})

    run_async(edit())
    with pytest.raises(IntegrityError, match="restore the session"):
        (persistence.load_state if key == "flow" else persistence.load_pending_feedback)("f")


def test_the_store_of_a_persistence(monkeypatch):
    with pytest.raises(TypeError, match="must be a StateStore"):
        HoldfastFlowPersistence("sqlite:///x.db")
    with HoldfastFlowPersistence.from_url("memory:", agent_id="trips") as persistence:
        assert persistence.location("f").scope_id == "trips"
        assert isinstance(persistence, FlowPersistence)
        assert copy.deepcopy(persistence) is copy.copy(persistence) is persistence
        dumped = persistence.model_dump(mode="json")
        assert sorted(dumped) == ["agent_id", "persistence_type", "store_name"]
        again = HoldfastFlowPersistence.model_validate(dumped)
        assert again.state_store is persistence.state_store
        assert again.agent_id == "trips"
    monkeypatch.setenv("HOLDFAST_STORE", "memory:")
    elsewhere = HoldfastFlowPersistence.model_validate({**dumped, "store_name": "unknown"})
    assert elsewhere.load_state("f") is None
    with pytest.raises(ValueError, match="agent_id"):
        HoldfastFlowPersistence.from_url("memory:", agent_id="")


# ------------------------------------------------------------------------------------------ flows


def test_a_class_with_persist_is_saved_after_every_method_and_continues(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    with HoldfastFlowPersistence.from_url(url) as persistence:
        assert make_trip(persistence)().kickoff(inputs={"id": "t", "city": "Bergen"}) == (
            "booked Bergen"
        )
        methods = [each.data["method"] for each in read_events(persistence, "t")[1:] if each.data]
        assert methods == ["choose", "book"]
    with HoldfastFlowPersistence.from_url(url) as persistence:
        flow = make_trip(persistence)()
        assert flow.kickoff(inputs={"id": "t"}) == "booked Bergen"
        assert flow.state.steps == ["choose", "book"] * 2
        fork = make_trip(persistence)()
        fork.kickoff(restore_from_state_id="t")
        assert fork.state.id != "t"
        assert len(fork.state.steps) == 6
        assert persistence.load_state("t")["steps"] == ["choose", "book"] * 2
        page = run_async(Catalog(persistence.state_store).sessions("flow"))
        assert {each.session_id for each in page.sessions} == {"t", fork.state.id}


def test_a_method_with_persist_is_saved_alone(persistence):
    flow = make_counter(persistence)()
    assert flow.kickoff(inputs={"id": "c"}) == 1
    assert persistence.load_state("c") == {"id": "c", "count": 1, "seen": [1]}
    assert make_counter(persistence)(persistence=persistence).kickoff(inputs={"id": "c"}) == 2
    assert open_session(persistence, "c").status == "running"


def test_a_flow_in_an_event_loop(persistence):
    async def work():
        return await make_trip(persistence)().kickoff_async(inputs={"id": "t"})

    assert run_async(work()) == "booked Oslo"
    assert persistence.load_state("t")["steps"] == ["choose", "book"]


def test_a_flow_waits_for_a_person_and_resumes_in_another_process(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    with HoldfastFlowPersistence.from_url(url) as persistence:
        flow = make_review()(persistence=persistence)
        paused = flow.kickoff(inputs={"id": "review-1"})
        assert isinstance(paused, HumanFeedbackPending)
        assert open_session(persistence, "review-1").status == "waiting"
    run_in_other_processes((answer, url, "looks good"))
    with HoldfastFlowPersistence.from_url(url) as persistence:
        assert persistence.load_pending_feedback("review-1") is None
        assert persistence.load_state("review-1")["answer"] == "looks good"
        session = open_session(persistence, "review-1")
        assert session.status == "running"
        assert run_async(session.verify()).ok
        with pytest.raises(ValueError, match="No pending feedback"):
            make_review().from_pending("review-1", persistence)


def test_a_restored_session_is_what_the_flow_loads(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    with HoldfastFlowPersistence.from_url(url) as persistence:
        persistence.save_state("f", "one", {"id": "f", "n": 1})
        with BlockingSession.open(url, agent_id="flow", session_id="f") as session:
            saved = session.save()
            persistence.save_state("f", "two", {"id": "f", "n": 2})
            session.refresh()
            session.restore(saved.snapshot_id)
            session.fork("g")
        assert persistence.load_state("f") == {"id": "f", "n": 1}
        assert persistence.load_state("g") == {"id": "g", "n": 1}  # not the id of its origin
        persistence.save_state("g", "two", {"id": "g", "n": 3})
        assert persistence.load_state("f") == {"id": "f", "n": 1}


def test_two_processes_on_one_flow_lose_no_save(tmp_path):
    url = f"sqlite:///{tmp_path}/state.db"
    run_in_other_processes((write, url, "a"), (write, url, "b"))
    with HoldfastFlowPersistence.from_url(url) as persistence:
        events = [each for each in read_events(persistence, "shared") if each.data]
        methods = [each.data.get("method") for each in events]
        assert (methods.count("a"), methods.count("b")) == (10, 10)
        assert persistence.load_state("shared")["by"] == methods[-1]
