"""Sessions compared with a model: any operations of several writers, with faults at any write.

Several processes work on a few sessions of one store. What was acknowledged is found by the next
process; what failed is done or not done, and its writer continues from either without losing or
repeating anything; every kept snapshot loads as it was saved.
"""

from __future__ import annotations

import datetime as dt
import os
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test

from holdfast import ConflictError, NotFoundError, RetentionPolicy, SessionSnapshot, Snapshot, Store
from holdfast.ids import new_id
from holdfast.snapshots.keys import deletion_mark_key, session_prefix
from support.faults import WAYS, Fault
from support.session_actions import Agent, acts, names, pairs, values
from support.session_model import (
    STARTED,
    Draft,
    Entries,
    Kept,
    Place,
    Step,
    course,
    going_back,
    message_pair,
    same,
    way,
)
from support.session_processes import AGENT, FAILED, Process, Writer, entries_of, events_of, started

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", settings().max_examples // 5))
LIMITS = {
    "few segments": {"MAX_SEGMENTS": 2, "MAX_CHAIN": 2, "KEYFRAME_SLACK": 1 << 16},
    "no slack": {"MAX_SEGMENTS": 256, "MAX_CHAIN": 3, "KEYFRAME_SLACK": 0},
}
MOST_WRITERS = 5
MOST_PLACES = 3

numbers = st.integers(0, 11)
faults = st.one_of(
    st.none(),
    st.none(),
    st.builds(
        lambda at, way: Fault(at, *way),
        st.sampled_from([1, 1, 1, 2, 2, 3, 4, 5, 8, 13]),
        st.sampled_from(WAYS),
    ),
)
choices = st.sampled_from(["rebase", "raise"])
tags = st.dictionaries(st.sampled_from(["env", "reason"]), st.sampled_from(["x", "y"]), max_size=2)


class SessionMachine(Agent):
    def __init__(self) -> None:
        super().__init__()
        self.marks: list[tuple[Snapshot, Entries]] = []
        self.effects = 0

    # ------------------------------------------------------------------------------ in memory

    @rule(number=numbers, todo=acts)
    def act(self, number: int, todo: list[Any]) -> None:
        self.do(self.writer(number), todo)

    @rule(number=numbers, todo=acts)
    def mark(self, number: int, todo: list[Any]) -> None:
        writer = self.writer(number)
        self.marks.append((writer.session.snapshot(), writer.entries))
        self.do(writer, todo)

    @precondition(lambda self: self.marks)
    @rule(number=numbers, which=numbers)
    def roll_back(self, number: int, which: int) -> None:
        writer = self.writer(number)
        snapshot, entries = self.marks[-1 - which % len(self.marks)]
        writer.session.rollback(snapshot)
        writer.add(going_back(writer.entries, entries))

    # --------------------------------------------------------------------------------- commits

    @rule(number=numbers, todo=acts, on_conflict=choices, fault=faults)
    def commit(self, number: int, todo: list[Any], on_conflict: str, fault: Fault | None) -> None:
        writer = self.writer(number)
        self.do(writer, todo)
        self.write(writer, fault, on_conflict, writer.session.commit(on_conflict=on_conflict))

    @rule(number=numbers, todo=acts)
    def record_while_committing(self, number: int, todo: list[Any]) -> None:
        writer = self.writer(number)
        draft = writer.draft
        if not draft.pending or draft.known < writer.place.seq or writer.place.deleted:
            return
        writer.process.store.meanwhile = lambda: self.do(writer, todo)
        self.run(writer.session.commit())
        later = writer.draft.pending[len(draft.pending) :]
        writer.place.append(draft.pending)
        writer.place.acknowledged = True
        writer.draft = Draft(writer.place.seq, later)

    @rule(number=numbers, todo=acts, on_conflict=choices, fault=faults, tags=tags)
    def save(
        self,
        number: int,
        todo: list[Any],
        on_conflict: str,
        fault: Fault | None,
        tags: dict[str, str],
    ) -> None:
        writer = self.writer(number)
        place = writer.place
        self.do(writer, todo)
        work = writer.session.save(tags=tags, on_conflict=on_conflict)
        gone = 0 if place.deleted else self.pruned_through(place)
        if not writer.draft.pending and (place.deleted or writer.draft.known < gone):
            with pytest.raises(ConflictError):
                self.run(work)
            return
        saved = self.write(writer, fault, on_conflict, work)
        place = self.current(place)
        page = self.run(self.archive.list_snapshots(location=place.location))
        new = [info for info in page.snapshots if info.snapshot_id not in place.kept]
        for info in new:
            place.kept[info.snapshot_id] = Kept(place.states[info.seq], tags, info.created_at)
        if saved is FAILED:
            assert len(new) <= (0 if fault is None else 1)
        else:
            assert [info.snapshot_id for info in new] == [saved.snapshot_id]
            assert saved.tags == tags
            assert same(entries_of(saved.snapshot), writer.entries)
            assert saved.event_log_count == writer.draft.known

    @rule(number=numbers, which=numbers, fault=faults, by_id=st.booleans())
    def restore(self, number: int, which: int, fault: Fault | None, by_id: bool) -> None:
        writer = self.writer(number)
        if not writer.place.kept:
            with pytest.raises(NotFoundError):
                self.run(writer.session.restore(new_id()))
            return
        snapshot_id, kept = pick(writer.place.kept, which)
        moment = snapshot_id if by_id else self.loaded(writer.place, snapshot_id)
        writer.add(going_back(writer.entries, kept.entries))
        self.write(writer, fault, "raise", writer.session.restore(moment))

    @rule(number=numbers, which=numbers, fault=faults, at=st.sampled_from(["now", "kept", "mark"]))
    def fork(self, number: int, which: int, fault: Fault | None, at: str) -> None:
        writer = self.writer(number)
        if len(self.places) >= MOST_PLACES:
            self.fork_onto_what_is_there(writer, self.place(which))
            return
        moment, entries = None, writer.entries
        if at == "kept" and writer.place.kept:
            moment, kept = pick(writer.place.kept, which)
            entries = kept.entries
        elif at == "mark" and self.marks:
            moment, entries = self.marks[-1 - which % len(self.marks)]
        place = self.new_place()
        work = writer.session.fork(place.location.session_id, at=moment)
        other = self.attempt(writer.process, fault, work)
        if self.grown(place):
            assert self.grown(place) == 1
            place.append([way("session.forked", {}, entries)])
        if other is not FAILED:
            place.acknowledged = True
            self.writers.append(Writer(writer.process, place, other, Draft(1)))

    def fork_onto_what_is_there(self, writer: Writer, place: Place) -> None:
        if place.seq:
            with pytest.raises(ConflictError, match="already"):
                self.run(writer.session.fork(place.location.session_id))

    @rule(number=numbers, key=names, fault=faults)
    def once(self, number: int, key: str, fault: Fault | None) -> None:
        writer = self.writer(number)
        place, pair = writer.place, ("once", key)
        if place.deleted:
            return
        calls: list[int] = []

        def effect() -> int:
            assert pair not in place.entries, "it was done, and is done again"
            assert taken or pair not in before, "it was done here, and is done again"
            self.effects += 1
            calls.append(self.effects)
            return self.effects

        known, before = place.states[writer.draft.known], writer.entries
        # Saving a whole state replaces everything, including results of once.
        since = [place.states[seq] for seq in sorted(place.states) if seq >= writer.draft.known]
        taken = any(pair in one and pair not in two for one, two in pairwise(since))
        doomed = self.pruned_through(writer.place)
        drafts = list(course(place, writer.draft, "rebase", fully=True, doomed=doomed))
        try:
            result = self.attempt(writer.process, fault, writer.session.once(key, effect))
        except ConflictError:
            assert drafts[-1] is None
            result = FAILED
        if calls and result is FAILED and writer in self.writers:
            # The result is kept, and committed by the next attempt.
            result = self.run(writer.session.once(key, effect))
        if calls:
            last = drafts[-1]
            assert last is not None
            done = Step("once.done", ((pair, {"result": calls[0]}),))
            grown = self.grown(place)
            assert grown - len(last.pending) in ((0, 1) if result is FAILED else (1,))
            # Events before the effect are committed on their own.
            for steps in (last.pending, (done,)[: grown - len(last.pending)]):
                if steps:
                    place.append(steps)
            writer.draft = Draft(place.seq)
        else:
            self.follow(writer, drafts)
        if result is not FAILED:
            assert calls in ([], [result])
            assert (known if pair in known else place.entries)[pair] == {"result": result}
            place.acknowledged = True

    # --------------------------------------------------------------------------- whole states

    @rule(
        number=numbers,
        which=numbers,
        entries=st.dictionaries(pairs, values, max_size=3),
        count=st.integers(0, 2),
        is_latest=st.booleans(),
        tags=tags,
        fault=faults,
    )
    def save_whole(
        self,
        number: int,
        which: int,
        entries: Entries,
        count: int,
        is_latest: bool,
        tags: dict[str, str],
        fault: Fault | None,
    ) -> None:
        place, store = self.place(which), Store()
        whole = entries | {message_pair(at): {"content": f"whole {at}"} for at in range(count)}
        store.set_many((*pair, value) for pair, value in whole.items())
        snapshot = SessionSnapshot.from_snapshot(
            store.snapshot(), agent_id=AGENT, session_id=place.location.session_id, tags=tags
        )
        self.save_given(self.process(number), place, snapshot, is_latest, fault)

    @rule(number=numbers, source=numbers, which=numbers, goal=numbers, fault=faults)
    def save_again(
        self, number: int, source: int, which: int, goal: int, fault: Fault | None
    ) -> None:
        """Save a snapshot again, in the same session or another one."""
        kept = self.place(source).kept
        if kept:
            snapshot = self.loaded(self.place(source), pick(kept, which)[0])
            self.save_given(self.process(number), self.place(goal), snapshot, False, fault)

    def save_given(
        self,
        process: Process,
        place: Place,
        snapshot: SessionSnapshot,
        is_latest: bool,
        fault: Fault | None,
    ) -> None:
        name = {"location": place.location, "snapshot_id": new_id()}
        given = entries_of(snapshot.snapshot)
        work = process.archive.save_snapshot(**name, is_latest=is_latest, snapshot=snapshot)
        result = self.attempt(process, fault, work)
        grown = self.grown(place)
        if grown:
            assert grown == (1 if place.seq else 2)
            steps = [way("state.restored", place.entries, given)]
            place.append(steps if place.seq else [Step(STARTED), *steps])
        kept = Kept(given, snapshot.tags, snapshot.created_at)
        info = self.run(self.archive.load_info(**name))
        if info is None:
            assert result is FAILED
        elif is_latest:
            place.latest = kept
        else:
            place.kept[info.snapshot_id] = kept
        place.acknowledged |= result is not FAILED

    # ------------------------------------------------------------------------------- processes

    @rule(number=numbers, which=numbers, what=st.sampled_from(["open", "crash", "reload", "begin"]))
    def process_life(self, number: int, which: int, what: str) -> None:
        writer = self.writer(number)
        if what == "reload":
            self.run(writer.session.reload())
            writer.place = self.current(writer.place)
            writer.draft = started(writer.place)
        elif what == "crash":
            self.end(writer.process)
            self.open(self.current(writer.place), self.new_process())
        elif len(self.writers) < MOST_WRITERS:
            is_new = what == "begin" and len(self.places) < MOST_PLACES
            self.open(self.new_place() if is_new else self.place(which), self.process(number))

    @rule(number=numbers)
    def read_events(self, number: int) -> None:
        """Check that the events in memory and in the store lead to the state."""
        writer = self.writer(number)
        if writer.place.deleted:
            return
        try:
            events = self.run(events_of(writer.session))
        except NotFoundError:
            assert writer.place.log_start  # pruned since it was opened
            return
        last = writer.draft.known + len(writer.draft.pending)
        first = last - len(events)
        assert [event.seq for event in events] == list(range(first + 1, last + 1))
        assert first <= writer.place.log_start

    # -------------------------------------------------------------------------------- removing

    @rule(number=numbers, which=numbers, last=st.integers(0, 3), fault=faults)
    def prune(self, number: int, which: int, last: int, fault: Fault | None) -> None:
        process, place = self.process(number), self.place(which)
        moment = dt.datetime.now(dt.UTC) + dt.timedelta(days=2 if self.days_pass else 0)
        policy = RetentionPolicy(last=last)
        work = process.archive.prune(location=place.location, policy=policy, now=moment)
        result = self.attempt(process, fault, work)
        keep = place.newest(last)
        found = set(self.run(self.archive.list_snapshot_ids(location=place.location)))
        assert keep <= found <= place.kept.keys()
        if result is not FAILED:
            assert found == keep == set(result.kept)
            assert set(result.removed) == place.kept.keys() - keep
        place.kept = {id_: kept for id_, kept in place.kept.items() if id_ in found}
        log_start = self.run(self.archive.load_manifest(location=place.location)).log_start.seq
        assert place.log_start <= log_start <= place.seq
        place.log_start = log_start
        place.gone = self.pruned_seqs(place)

    @rule(number=numbers, which=numbers, choice=numbers)
    def delete_snapshot(self, number: int, which: int, choice: int) -> None:
        place = self.place(which)
        if place.kept:
            snapshot_id, _ = pick(place.kept, choice)
            name = {"location": place.location, "snapshot_id": snapshot_id}
            assert self.run(self.process(number).archive.delete_snapshot(**name))
            del place.kept[snapshot_id]

    @rule(number=numbers, which=numbers, fault=faults, sure=st.integers(0, 4))
    def delete_session(self, number: int, which: int, fault: Fault | None, sure: int) -> None:
        if sure < 4:
            return
        process, place = self.process(number), self.place(which)
        session_id = place.location.session_id
        result = self.attempt(process, fault, process.archive.delete_session(session_id=session_id))
        if self.run(self.disk.get(deletion_mark_key(session_id))) is not None:
            assert result is FAILED
            # The next process that opens it completes the deletion.
            self.open(place, self.new_process())
            self.writers.pop()
        elif self.keys(session_prefix(session_id)):
            assert result is FAILED
            return
        assert self.keys(session_prefix(session_id)) == []
        self.places[self.places.index(place)] = new = Place(place.location)
        place.deleted, place.kept = True, {}
        for writer in self.writers:
            if writer.place is place and not writer.draft.known:
                writer.place = new
                writer.draft = Draft(0, writer.draft.pending)


def pick(kept: dict[str, Kept], number: int) -> tuple[str, Kept]:
    """Return one of the items, the newest for 0."""
    snapshot_id = sorted(kept)[-1 - number % len(kept)]
    return snapshot_id, kept[snapshot_id]


@pytest.mark.parametrize("days_pass", [False, True], ids=["at once", "days pass"])
@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "one by one"])
def test_sessions_equal_a_plain_model_whatever_is_done_and_fails(atomic, limits, days_pass):
    class Machine(SessionMachine):
        pass

    Machine.atomic, Machine.limits, Machine.days_pass = atomic, limits, days_pass
    run_state_machine_as_test(
        Machine,
        settings=settings(
            stateful_step_count=40, max_examples=EXAMPLES, report_multiple_bugs=False
        ),
    )
