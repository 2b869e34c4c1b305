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
from support.session_actions import Agent, actions, names, pairs, values
from support.session_model import (
    STARTED,
    Draft,
    Entries,
    SavedSnapshot,
    SessionModel,
    Step,
    is_same,
    make_rollback,
    make_step,
    message_pair,
    predict_drafts,
)
from support.session_processes import (
    AGENT,
    FAILED,
    Process,
    Writer,
    collect_events,
    read_entries,
    start_draft,
)

EXAMPLES = int(os.environ.get("HOLDFAST_EXAMPLES", settings().max_examples // 5))
LIMITS = {
    "few segments": {"MAX_SEGMENTS": 2, "MAX_CHAIN": 2, "KEYFRAME_SLACK": 1 << 16},
    "no slack": {"MAX_SEGMENTS": 256, "MAX_CHAIN": 3, "KEYFRAME_SLACK": 0},
}
MAX_WRITERS = 5
MAX_SESSIONS = 3

numbers = st.integers(0, 11)
faults = st.one_of(
    st.none(),
    st.none(),
    st.builds(
        lambda at, kind: Fault(at, *kind),
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

    @rule(number=numbers, todo=actions)
    def act(self, number: int, todo: list[Any]) -> None:
        self.do(self.writer(number), todo)

    @rule(number=numbers, todo=actions)
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
        writer.add(make_rollback(writer.entries, entries))

    # --------------------------------------------------------------------------------- commits

    @rule(number=numbers, todo=actions, on_conflict=choices, fault=faults)
    def commit(self, number: int, todo: list[Any], on_conflict: str, fault: Fault | None) -> None:
        writer = self.writer(number)
        self.do(writer, todo)
        self.write(writer, fault, on_conflict, writer.session.commit(on_conflict=on_conflict))

    @rule(number=numbers, todo=actions)
    def record_while_committing(self, number: int, todo: list[Any]) -> None:
        writer = self.writer(number)
        draft = writer.draft
        if not draft.pending or draft.known < writer.model.seq or writer.model.deleted:
            return
        writer.process.store.during_write = lambda: self.do(writer, todo)
        self.run(writer.session.commit())
        later = writer.draft.pending[len(draft.pending) :]
        writer.model.append(draft.pending)
        writer.model.acknowledged = True
        writer.draft = Draft(writer.model.seq, later)

    @rule(number=numbers, todo=actions, on_conflict=choices, fault=faults, tags=tags)
    def save(
        self,
        number: int,
        todo: list[Any],
        on_conflict: str,
        fault: Fault | None,
        tags: dict[str, str],
    ) -> None:
        writer = self.writer(number)
        model = writer.model
        self.do(writer, todo)
        work = writer.session.save(tags=tags, on_conflict=on_conflict)
        gone = 0 if model.deleted else self.pruned_through(model)
        if not writer.draft.pending and (model.deleted or writer.draft.known < gone):
            with pytest.raises(ConflictError):
                self.run(work)
            return
        saved = self.write(writer, fault, on_conflict, work)
        model = self.current(model)
        page = self.run(self.archive.list_snapshots(location=model.location))
        new = [info for info in page.snapshots if info.snapshot_id not in model.kept]
        for info in new:
            model.kept[info.snapshot_id] = SavedSnapshot(
                model.states[info.seq], tags, info.created_at
            )
        if saved is FAILED:
            assert len(new) <= (0 if fault is None else 1)
        else:
            assert [info.snapshot_id for info in new] == [saved.snapshot_id]
            assert saved.tags == tags
            assert is_same(read_entries(saved.snapshot), writer.entries)
            assert saved.event_log_count == writer.draft.known

    @rule(number=numbers, which=numbers, fault=faults, by_id=st.booleans())
    def restore(self, number: int, which: int, fault: Fault | None, by_id: bool) -> None:
        writer = self.writer(number)
        if not writer.model.kept:
            with pytest.raises(NotFoundError):
                self.run(writer.session.restore(new_id()))
            return
        snapshot_id, kept = pick(writer.model.kept, which)
        target = snapshot_id if by_id else self.load_snapshot(writer.model, snapshot_id)
        writer.add(make_rollback(writer.entries, kept.entries))
        self.write(writer, fault, "raise", writer.session.restore(target))

    @rule(number=numbers, which=numbers, fault=faults, at=st.sampled_from(["now", "kept", "mark"]))
    def fork(self, number: int, which: int, fault: Fault | None, at: str) -> None:
        writer = self.writer(number)
        if len(self.models) >= MAX_SESSIONS:
            self.fork_to_existing(writer, self.model(which))
            return
        target, entries = None, writer.entries
        if at == "kept" and writer.model.kept:
            target, kept = pick(writer.model.kept, which)
            entries = kept.entries
        elif at == "mark" and self.marks:
            target, entries = self.marks[-1 - which % len(self.marks)]
        model = self.new_model()
        work = writer.session.fork(model.location.session_id, at=target)
        other = self.attempt(writer.process, fault, work)
        if self.count_new_events(model):
            assert self.count_new_events(model) == 1
            model.append([make_step("session.forked", {}, entries)])
        if other is not FAILED:
            model.acknowledged = True
            self.writers.append(Writer(writer.process, model, other, Draft(1)))

    def fork_to_existing(self, writer: Writer, model: SessionModel) -> None:
        if model.seq:
            with pytest.raises(ConflictError, match="already"):
                self.run(writer.session.fork(model.location.session_id))

    @rule(number=numbers, key=names, fault=faults)
    def once(self, number: int, key: str, fault: Fault | None) -> None:
        writer = self.writer(number)
        model, pair = writer.model, ("once", key)
        if model.deleted:
            return
        calls: list[int] = []

        def effect() -> int:
            assert pair not in model.entries, "it was done, and is done again"
            assert taken or pair not in before, "it was done here, and is done again"
            self.effects += 1
            calls.append(self.effects)
            return self.effects

        known, before = model.states[writer.draft.known], writer.entries
        # Saving a whole state replaces everything, including results of once.
        since = [model.states[seq] for seq in sorted(model.states) if seq >= writer.draft.known]
        taken = any(pair in one and pair not in two for one, two in pairwise(since))
        pruned_through = self.pruned_through(writer.model)
        drafts = list(
            predict_drafts(model, writer.draft, "rebase", fully=True, pruned_through=pruned_through)
        )
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
            added = self.count_new_events(model)
            assert added - len(last.pending) in ((0, 1) if result is FAILED else (1,))
            # Events before the effect are committed on their own.
            for steps in (last.pending, (done,)[: added - len(last.pending)]):
                if steps:
                    model.append(steps)
            writer.draft = Draft(model.seq)
        else:
            self.follow(writer, drafts)
        if result is not FAILED:
            assert calls in ([], [result])
            assert (known if pair in known else model.entries)[pair] == {"result": result}
            model.acknowledged = True

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
        model, store = self.model(which), Store()
        whole = entries | {message_pair(at): {"content": f"whole {at}"} for at in range(count)}
        store.set_many((*pair, value) for pair, value in whole.items())
        snapshot = SessionSnapshot.from_snapshot(
            store.snapshot(), agent_id=AGENT, session_id=model.location.session_id, tags=tags
        )
        self.save_given(self.process(number), model, snapshot, is_latest, fault)

    @rule(number=numbers, source=numbers, which=numbers, goal=numbers, fault=faults)
    def save_again(
        self, number: int, source: int, which: int, goal: int, fault: Fault | None
    ) -> None:
        """Save a snapshot again, in the same session or another one."""
        kept = self.model(source).kept
        if kept:
            snapshot = self.load_snapshot(self.model(source), pick(kept, which)[0])
            self.save_given(self.process(number), self.model(goal), snapshot, False, fault)

    def save_given(
        self,
        process: Process,
        model: SessionModel,
        snapshot: SessionSnapshot,
        is_latest: bool,
        fault: Fault | None,
    ) -> None:
        name = {"location": model.location, "snapshot_id": new_id()}
        given = read_entries(snapshot.snapshot)
        work = process.archive.save_snapshot(**name, is_latest=is_latest, snapshot=snapshot)
        result = self.attempt(process, fault, work)
        added = self.count_new_events(model)
        if added:
            assert added == (1 if model.seq else 2)
            steps = [make_step("state.restored", model.entries, given)]
            model.append(steps if model.seq else [Step(STARTED), *steps])
        kept = SavedSnapshot(given, snapshot.tags, snapshot.created_at)
        info = self.run(self.archive.load_info(**name))
        if info is None:
            assert result is FAILED
        elif is_latest:
            model.latest = kept
        else:
            model.kept[info.snapshot_id] = kept
        model.acknowledged |= result is not FAILED

    # ------------------------------------------------------------------------------- processes

    @rule(number=numbers, which=numbers, what=st.sampled_from(["open", "crash", "reload", "begin"]))
    def process_life(self, number: int, which: int, what: str) -> None:
        writer = self.writer(number)
        if what == "reload":
            self.run(writer.session.reload())
            writer.model = self.current(writer.model)
            writer.draft = start_draft(writer.model)
        elif what == "crash":
            self.end(writer.process)
            self.open(self.current(writer.model), self.new_process())
        elif len(self.writers) < MAX_WRITERS:
            is_new = what == "begin" and len(self.models) < MAX_SESSIONS
            self.open(self.new_model() if is_new else self.model(which), self.process(number))

    @rule(number=numbers)
    def read_events(self, number: int) -> None:
        """Check that the events in memory and in the store lead to the state."""
        writer = self.writer(number)
        if writer.model.deleted:
            return
        try:
            events = self.run(collect_events(writer.session))
        except NotFoundError:
            assert writer.model.log_start  # pruned since it was opened
            return
        last = writer.draft.known + len(writer.draft.pending)
        first = last - len(events)
        assert [event.seq for event in events] == list(range(first + 1, last + 1))
        assert first <= writer.model.log_start

    # -------------------------------------------------------------------------------- removing

    @rule(number=numbers, which=numbers, last=st.integers(0, 3), fault=faults)
    def prune(self, number: int, which: int, last: int, fault: Fault | None) -> None:
        process, model = self.process(number), self.model(which)
        target = dt.datetime.now(dt.UTC) + dt.timedelta(days=2 if self.days_pass else 0)
        policy = RetentionPolicy(last=last)
        work = process.archive.prune(location=model.location, policy=policy, now=target)
        result = self.attempt(process, fault, work)
        keep = model.newest(last)
        found = set(self.run(self.archive.list_snapshot_ids(location=model.location)))
        assert keep <= found <= model.kept.keys()
        if result is not FAILED:
            assert found == keep == set(result.kept)
            assert set(result.removed) == model.kept.keys() - keep
        model.kept = {id_: kept for id_, kept in model.kept.items() if id_ in found}
        log_start = self.run(self.archive.load_manifest(location=model.location)).log_start.seq
        assert model.log_start <= log_start <= model.seq
        model.log_start = log_start
        model.gone = self.pruned_seqs(model)

    @rule(number=numbers, which=numbers, choice=numbers)
    def delete_snapshot(self, number: int, which: int, choice: int) -> None:
        model = self.model(which)
        if model.kept:
            snapshot_id, _ = pick(model.kept, choice)
            name = {"location": model.location, "snapshot_id": snapshot_id}
            assert self.run(self.process(number).archive.delete_snapshot(**name))
            del model.kept[snapshot_id]

    @rule(number=numbers, which=numbers, fault=faults, sure=st.integers(0, 4))
    def delete_session(self, number: int, which: int, fault: Fault | None, sure: int) -> None:
        if sure < 4:
            return
        process, model = self.process(number), self.model(which)
        session_id = model.location.session_id
        result = self.attempt(process, fault, process.archive.delete_session(session_id=session_id))
        if self.run(self.disk.get(deletion_mark_key(session_id))) is not None:
            assert result is FAILED
            # The next process that opens it completes the deletion.
            self.open(model, self.new_process())
            self.writers.pop()
        elif self.keys(session_prefix(session_id)):
            assert result is FAILED
            return
        assert self.keys(session_prefix(session_id)) == []
        self.models[self.models.index(model)] = new = SessionModel(model.location)
        model.deleted, model.kept = True, {}
        for writer in self.writers:
            if writer.model is model and not writer.draft.known:
                writer.model = new
                writer.draft = Draft(0, writer.draft.pending)


def pick(kept: dict[str, SavedSnapshot], number: int) -> tuple[str, SavedSnapshot]:
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
