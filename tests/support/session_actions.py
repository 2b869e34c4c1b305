"""Random changes of a session in memory, applied to the session and to its model."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from support.session_model import (
    STATUS,
    Entries,
    Step,
    get_status,
    is_same,
    list_messages,
    message_pair,
    next_message,
)
from support.session_processes import ProcessMachine, Writer

# No two are equal, so that every assignment of another one is a change.
VALUES = [
    None,
    7,
    2.5,
    "text",
    b"bytes",
    (1, (2, None)),
    [1, {"a": None}],
    {"b": [1], "a": {2, 3}},
    dt.datetime(2026, 11, 15, 9, 30, tzinfo=dt.UTC),
    Decimal("1.50"),
    "long" * 60,
]
STATUSES = ["pending", "running", "waiting", "completed", "failed", "cancelled"]

values = st.sampled_from(VALUES)
names = st.sampled_from("abcdef")
pairs = st.tuples(st.sampled_from(["state", "notes"]), names)
actions = st.lists(
    st.one_of(
        st.tuples(st.just("message"), st.dictionaries(st.sampled_from(["name", "id"]), values)),
        st.tuples(st.just("set"), names, values),
        st.tuples(st.just("delete"), names),
        st.tuples(st.just("pop")),
        st.tuples(st.just("clear")),
        st.tuples(st.just("status"), st.sampled_from(STATUSES)),
        st.tuples(
            st.just("record"),
            st.dictionaries(pairs, values, max_size=2),
            st.lists(pairs, max_size=1),
        ),
    ),
    max_size=4,
)


class Agent(ProcessMachine):
    """A machine whose writers can change their sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.messages = 0

    def do(self, writer: Writer, todo: list[Any]) -> None:
        for name, *arguments in todo:
            getattr(self, f"do_{name}")(writer, *arguments)

    def do_message(self, writer: Writer, fields: dict[str, Any]) -> None:
        self.messages += 1
        content = f"message {self.messages}"
        writer.session.add_message("user", content, **fields)
        message = {"role": "user", "content": content, **fields}
        pair = message_pair(next_message(writer.entries))
        writer.add(Step("message.appended", ((pair, message),)))

    def do_pop(self, writer: Writer) -> None:
        entries = writer.entries
        messages = list_messages(entries)
        assert writer.session.pop_message() == (messages[-1] if messages else None)
        if messages:
            last = max(pair for pair in entries if pair[0] == "messages")
            writer.add(Step("message.removed", (), (last,)))

    def do_clear(self, writer: Writer) -> None:
        writer.session.clear_messages()
        found = tuple(pair for pair in writer.entries if pair[0] == "messages")
        if found:
            writer.add(Step("message.removed", (), found))

    def do_set(self, writer: Writer, key: str, value: Any) -> None:
        writer.session.set(key, value)
        existing = {pair: kept for pair, kept in writer.entries.items() if pair == ("state", key)}
        if not is_same(existing, {("state", key): value}):
            writer.add(Step("state.set", ((("state", key), value),)))

    def do_delete(self, writer: Writer, key: str) -> None:
        existing = ("state", key) in writer.entries
        assert writer.session.delete(key) == existing
        if existing:
            writer.add(Step("state.deleted", (), (("state", key),)))

    def do_status(self, writer: Writer, status: str) -> None:
        writer.session.status = status
        if get_status(writer.entries) != status:
            writer.add(Step("status.changed", ((STATUS, status),)))

    def do_record(self, writer: Writer, sets: Entries, deletes: list[Any]) -> None:
        changes = {"set": [(*pair, value) for pair, value in sets.items()], "delete": deletes}
        writer.session.record("tool.called", {"tool": "search"}, changes=changes)
        writer.add(Step("tool.called", tuple(sets.items()), tuple(deletes)))
