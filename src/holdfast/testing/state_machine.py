"""A Hypothesis state machine that compares any store with the one in memory.

Results must be equal except for etags, which are paired.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from holdfast.errors import ConflictError
from holdfast.stores.base import Condition, Put, StateStore
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.wrappers.prefix import PrefixedStateStore

T = TypeVar("T")

# Few characters, so that keys collide; among them those that backends must escape or compare.
LETTERS = "ab/.-_~!A0%\\\x00\n é\ud7ff\ue000\U0010ffff"
KEYS = st.text(LETTERS, min_size=1, max_size=5)
BOUNDS = st.text(LETTERS, max_size=3)
VALUES = st.binary(max_size=40)


class Comparison(RuleBasedStateMachine):
    """The rules. ``open_store`` opens the store under test."""

    open_store: Callable[[], StateStore]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.inner = type(self).open_store()
        # A new prefix for every example, instead of emptying the store.
        self.store = PrefixedStateStore(self.inner, f"{uuid.uuid4()}/")
        self.model = MemoryStateStore()
        self.pairs: dict[str, tuple[str, str]] = {}

    def teardown(self) -> None:
        """Close the store."""
        self.run(self.inner.close())
        self.runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine."""
        return self.runner.run(work)

    def run_on_both(
        self, act: Callable[[StateStore, int], Coroutine[Any, Any, T]]
    ) -> tuple[T, T] | None:
        """Call both stores; return their results, or None if both had a conflict."""
        answers: list[T] = []
        conflicts: list[str | None] = []
        for side, store in enumerate((self.store, self.model)):
            try:
                answers.append(self.run(act(store, side)))
            except ConflictError as conflict:
                conflicts.append(conflict.key)
        assert not (answers and conflicts), f"only one had a conflict: {answers} {conflicts}"
        if conflicts:
            assert conflicts[0] == conflicts[1]
            return None
        return answers[0], answers[1]

    @rule(key=KEYS, value=VALUES, condition=st.sampled_from(["none", "match", "stale", "absent"]))
    def put(self, key: str, value: bytes, condition: str) -> None:
        """Write one key."""
        match = self.choose_etags(key, condition)
        written = self.run_on_both(
            lambda store, side: store.put(
                key, value, if_match=match[side], if_absent=condition == "absent"
            )
        )
        if written is not None:
            self.pairs[key] = written

    @rule(
        keys=st.lists(KEYS, unique=True, max_size=4),
        value=VALUES,
        condition=st.sampled_from(["none", "match", "absent"]),
    )
    def put_many(self, keys: list[str], value: bytes, condition: str) -> None:
        """Write several keys, the last with a condition."""
        if not self.inner.atomic_put_many:
            condition = "none"

        def puts(side: int) -> list[Put]:
            last = len(keys) - 1
            return [
                Put(
                    key,
                    value + bytes([number]),
                    self.choose_etags(key, condition)[side] if number == last else None,
                    number == last and condition == "absent",
                )
                for number, key in enumerate(keys)
            ]

        written = self.run_on_both(lambda store, side: store.put_many(puts(side)))
        if written is not None:
            assert len(written[0]) == len(keys)
            self.pairs.update(zip(keys, zip(*written, strict=True), strict=True))

    @rule(
        keys=st.lists(KEYS, unique=True, min_size=1, max_size=5),
        written=st.integers(0, 3),
        value=VALUES,
        kinds=st.lists(st.sampled_from(["match", "match", "match", "stale"]), min_size=5),
        absent=st.booleans(),
    )
    def put_many_on_conditions(
        self, keys: list[str], written: int, value: bytes, kinds: list[str], *, absent: bool
    ) -> None:
        """Write the first keys if the others still have their etags."""
        if not self.inner.conditional_put_many:
            return
        puts = [Put(key, value, if_absent=absent) for key in keys[:written]]
        wanted = {key: self.choose_etags(key, kind) for key, kind in zip(keys, kinds, strict=False)}

        def conditions(side: int) -> list[Condition]:
            return [Condition(key, str(wanted[key][side])) for key in keys[written:]]

        etags = self.run_on_both(
            lambda store, side: store.put_many(puts, conditions=conditions(side))
        )
        if etags is not None:
            assert len(etags[0]) == len(puts)
            self.pairs.update(zip(keys, zip(*etags, strict=True), strict=False))

    @rule(key=KEYS, condition=st.sampled_from(["none", "match", "stale"]))
    def delete(self, key: str, condition: str) -> None:
        """Delete one key."""
        match = self.choose_etags(key, condition)
        answers = self.run_on_both(lambda store, side: store.delete(key, if_match=match[side]))
        if answers is not None:
            assert answers[0] == answers[1]
            self.pairs.pop(key, None)

    @rule(key=KEYS)
    def get(self, key: str) -> None:
        """Read one key."""
        ours, model = self.run(self.store.get(key)), self.run(self.model.get(key))
        assert (ours and ours.value) == (model and model.value)
        assert (ours and ours.etag) == (model and self.pairs[key][0])

    @rule(keys=st.lists(KEYS, max_size=5))
    def get_many(self, keys: list[str]) -> None:
        """Read several keys."""
        ours, model = self.run(self.store.get_many(keys)), self.run(self.model.get_many(keys))
        assert list(ours) == list(model)
        assert [entry.value for entry in ours.values()] == [entry.value for entry in model.values()]

    @rule(prefix=BOUNDS, after=BOUNDS, limit=st.none() | st.integers(0, 4))
    def list_some(self, prefix: str, after: str, limit: int | None) -> None:
        """List a part."""
        assert self.list_keys(self.store, prefix, after, limit) == self.list_keys(
            self.model, prefix, after, limit
        )

    @invariant()
    def check_same_keys(self) -> None:
        """Both hold the same keys, in the same order."""
        assert self.list_keys(self.store, "", "", None) == self.list_keys(self.model, "", "", None)

    def choose_etags(self, key: str, condition: str) -> tuple[str | None, str | None]:
        """Return the etags to pass to the two stores."""
        if condition == "match":
            return self.pairs.get(key, ("no-such-etag", "no-such-etag"))
        return ("stale", "stale") if condition == "stale" else (None, None)

    def list_keys(self, store: StateStore, prefix: str, after: str, limit: int | None) -> list[str]:
        """Return a listing as a list."""

        async def collect() -> list[str]:
            return [key async for key in store.list(prefix, start_after=after, limit=limit)]

        return self.run(collect())


def compare_with_memory(
    new_store: Callable[[], StateStore], *, examples: int = 20, steps: int = 25
) -> None:
    """Compare a store with the one in memory over random operations.

    ``new_store`` opens the store under test. Existing entries are not touched.
    """
    machine = type("Comparison", (Comparison,), {"open_store": staticmethod(new_store)})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
