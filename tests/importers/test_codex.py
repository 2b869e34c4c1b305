"""Rollouts of the Codex CLI become sessions whose messages are those that the model sees."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

import holdfast.importers
from holdfast.errors import InvalidDocumentError
from holdfast.importers import codex
from holdfast.snapshots.tool_calls import ToolCallIndex
from importers.graphs import check_imports

SAMPLES = Path(__file__).parent / "samples" / "codex"
OLD, NEW = sorted(SAMPLES.iterdir())
META = {"id": "s-1", "timestamp": "2026-06-01T09:30:00Z", "cwd": "/a", "cli_version": "1"}


def wrap(type_, payload, second=0):
    return {"timestamp": f"2026-06-01T09:30:{second:02}Z", "type": type_, "payload": payload}


def say(text, role="user"):
    kind = "output_text" if role == "assistant" else "input_text"
    message = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    return wrap("response_item", message)


def event(type_, **fields):
    return wrap("event_msg", {"type": type_, **fields})


def list_texts(document):
    return [
        part["text"]
        for message in document.state.messages
        for part in message.get("content") or ()
        if "text" in part
    ]


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def put(*lines, name="rollout.jsonl", end=b"\n"):
        data = b"\n".join(
            each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines
        )
        (tmp_path / name).write_bytes(data + end)
        return name

    return put


@pytest.fixture
def read(write):
    def call(*lines, **options):
        (document,) = holdfast.importers.read(write(wrap("session_meta", META), *lines, **options))
        return document

    return call


def test_the_conversation_after_compaction_and_rollback_is_the_state():
    (document,) = holdfast.importers.read(str(NEW))
    assert (document.agent_id, document.session_id) == (
        "codex",
        "0197a1b2-0000-7000-8000-000000000001",
    )
    assert document.tags == {"format": "codex"}
    assert [each.get("type") for each in document.state.messages] == [
        "message",
        "compaction",
        "message",
        "message",
    ]
    assert list_texts(document) == ["Which cities are in trips.txt?", "Which is nearer?", "Oslo."]
    assert document.state.status == "completed"
    check_imports(document)


def test_the_log_keeps_what_was_compacted_and_rolled_back():
    (document,) = holdfast.importers.read(str(NEW))
    lines = [json.loads(line) for line in NEW.read_bytes().splitlines()]
    items = [each["payload"] for each in lines if each["type"] == "response_item"]
    appended = [each for each in document.events if each.type == "message.appended"]
    assert [each.changes["set"][0][2] for each in appended] == items
    counts = {step.event.type: step.after.count("messages") for step in holdfast.replay(document)}
    assert counts["codex.thread_rolled_back"] == 9
    assert counts["codex.compacted"] == 2
    aborted = [
        step.after for step in holdfast.replay(document) if step.event.type == "codex.turn_aborted"
    ]
    (call,) = ToolCallIndex().unfinished(aborted[0])
    assert (call.call_id, call.tool) == ("call_3", "local_shell_call")
    assert ToolCallIndex().unfinished(document.state.snapshot) == []


def test_every_line_is_an_event_at_its_time():
    (document,) = holdfast.importers.read(str(NEW))
    lines = [json.loads(line) for line in NEW.read_bytes().splitlines()]
    assert len(document.events) == len(lines) + 1
    for line, each in zip(lines, document.events[1:], strict=True):
        assert each.at.isoformat()[:19] == line["timestamp"][:19]
        if line["type"] in ("event_msg", "world_state"):
            assert each.data == line["payload"]
    assert document.events[-2].type == "codex.world_state"


def test_the_session_and_the_turns_are_values():
    (document,) = holdfast.importers.read(str(NEW))
    values = document.state.values
    assert values["model"] == "gpt-5.3-codex-mini"
    assert values["cwd"] == "/home/ada/trips"
    assert values["git"]["branch"] == "main"
    assert values["base_instructions"] == {"text": "You are a coding agent."}
    assert values["dynamic_tools"][0]["name"] == "lookup"
    assert "effort" not in values
    folders = [
        value
        for each in document.events
        for space, key, value in each.changes["set"]
        if (space, key) == ("state", "cwd")
    ]
    assert folders == ["/home/ada/trips", "/home/ada/trips/2026", "/home/ada/trips"]


def test_a_file_of_an_old_version_is_read():
    (document,) = holdfast.importers.read(str(OLD))
    assert document.session_id == "c3c4b301-27c8-4c70-b6e4-46b99fdf0236"
    lines = [json.loads(line) for line in OLD.read_bytes().splitlines()]
    assert document.state.messages == [each for each in lines if "type" in each]
    assert document.state.values["instructions"] == "Be brief."
    assert [each.type for each in document.events].count("codex.state") == 2
    assert {each.at.isoformat() for each in document.events} == {"2025-08-18T01:16:13.522000+00:00"}
    check_imports(document)


def test_a_compressed_rollout_is_read(tmp_path):
    path = tmp_path / f"{NEW.name}.gz"
    path.write_bytes(gzip.compress(NEW.read_bytes()))
    (document,) = holdfast.importers.read(str(path))
    assert len(document.state.messages) == 4


def test_an_incomplete_last_line_becomes_an_event(read):
    document = read(say("one"), b'{"timestamp": "2026-06-01T09:30:09Z", "type": "resp\xc3', end=b"")
    assert list_texts(document) == ["one"]
    assert document.events[-1].type == "transcript.incomplete"
    assert document.events[-1].data["line"] == 3
    assert document.events[-1].data["text"].endswith('"resp�')
    check_imports(document)


def test_a_last_line_without_a_line_feed_is_read(read):
    document = read(say("one"), say("two"), end=b"")
    assert list_texts(document) == ["one", "two"]
    assert document.events[-1].type == "message.appended"


@pytest.mark.parametrize("number", [2, 3])
def test_a_damaged_line_before_the_end_is_refused(read, number):
    lines = [say("one"), say("two")]
    lines.insert(number - 2, b'{"timestamp":')
    with pytest.raises(InvalidDocumentError, match=f"line {number} of rollout.jsonl is not JSON"):
        read(*lines)


def test_a_damaged_last_line_with_a_line_feed_is_refused(read):
    with pytest.raises(InvalidDocumentError, match=r"line 3 of rollout.jsonl is not JSON"):
        read(say("one"), b'{"timestamp":')


def test_a_lone_surrogate_is_named_as_the_reason(read):
    with pytest.raises(InvalidDocumentError, match=r"line 2 of rollout.jsonl.*lone surrogate"):
        read(say("\ud83d"), say("two"))


def test_a_file_without_a_complete_line_is_refused(write):
    with pytest.raises(InvalidDocumentError, match="no complete line"):
        holdfast.importers.read(write(b'{"timestamp":', end=b""), format="codex")


def test_a_compaction_without_a_replacement_keeps_the_users_messages(read):
    document = read(
        say("<environment_context>x</environment_context>"),
        say("one"),
        say("first", "assistant"),
        say("two"),
        wrap("compacted", {"message": "It was short."}),
        say("three"),
    )
    assert list_texts(document) == ["one", "two", "It was short.", "three"]
    assert [each["role"] for each in document.state.messages] == ["user"] * 4
    check_imports(document)


CONTEXT = "<environment_context>y</environment_context>"


@pytest.mark.parametrize(
    ("turns", "left"),
    [
        (0, ["rules", "one", "1", CONTEXT, "two", "2", "three"]),
        (1, ["rules", "one", "1", CONTEXT, "two", "2"]),
        (2, ["rules", "one", "1"]),
        (3, ["rules"]),
        (99, ["rules"]),
    ],
)
def test_a_rollback_removes_turns_with_the_context_before_them(read, turns, left):
    document = read(
        say("rules", "developer"),
        say("one"),
        say("1", "assistant"),
        say(CONTEXT),
        say("two"),
        say("2", "assistant"),
        say("three"),
        event("thread_rolled_back", num_turns=turns),
    )
    assert list_texts(document) == left
    check_imports(document)


def test_a_rollback_of_a_conversation_without_turns_changes_nothing(read):
    document = read(say("rules", "developer"), event("thread_rolled_back", num_turns=2))
    assert list_texts(document) == ["rules"]


@pytest.mark.parametrize("replacement", [None, [say("kept")["payload"], {"type": "compaction"}]])
@pytest.mark.parametrize(("turns", "left"), [(1, "compacted"), (2, ["one", "1"]), (3, [])])
def test_a_rollback_beyond_a_compaction_undoes_it(read, replacement, turns, left):
    compacted = {"message": "summary", "replacement_history": replacement}
    lines = [say("one"), say("1", "assistant"), say("two"), wrap("compacted", compacted)]
    after = list_texts(read(*lines))
    document = read(*lines, say("three"), event("thread_rolled_back", num_turns=turns))
    assert list_texts(document) == (after if left == "compacted" else left)
    assert after == (["one", "two", "summary"] if replacement is None else ["kept"])
    # The conversation goes on from there.
    document = read(*lines, say("three"), event("thread_rolled_back", num_turns=turns), say("four"))
    assert list_texts(document)[-1] == "four"
    check_imports(document)


def test_compactions_that_multiply_messages_are_refused(read, monkeypatch):
    monkeypatch.setattr(codex, "MAX_CARRIED", 10)
    compacted = wrap("compacted", {"message": ""})
    read(*[say("x")] * 4, compacted, compacted)
    with pytest.raises(InvalidDocumentError, match="line 8 .*more than 10 messages"):
        read(*[say("x")] * 4, compacted, compacted, compacted)


def test_a_fork_keeps_its_own_id_and_the_lines_of_its_parent(read):
    document = read(wrap("session_meta", {**META, "id": "parent", "cwd": "/b"}), say("one"))
    assert document.session_id == "s-1"
    assert document.state.values["cwd"] == "/a"
    assert document.events[2].data["id"] == "parent"


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], "pending"),
        ([event("task_started")], "running"),
        ([event("turn_started"), event("turn_complete")], "completed"),
        ([event("task_started"), event("turn_aborted")], "cancelled"),
        ([event("task_started"), event("error"), event("task_complete")], "failed"),
        ([event("error"), event("task_started"), event("task_complete")], "completed"),
    ],
)
def test_the_status_is_that_of_the_last_turn(read, events, status):
    assert read(*events).state.status == status


def test_what_the_model_does_not_see_is_no_message(read):
    ghost = {"type": "ghost_snapshot", "ghost_commit": {"id": "abc"}}
    document = read(wrap("response_item", ghost), wrap("Odd type!", 5))
    assert document.state.messages == []
    assert [each.type for each in document.events[2:]] == ["codex.ghost_snapshot", "codex.line"]
    assert document.events[-1].data == 5


def test_the_ids_can_be_given_and_come_from_the_file_name_without_a_session(write):
    name = write(say("one"), name=NEW.name)
    (document,) = holdfast.importers.read(name)
    assert document.session_id == "0197a1b2-0000-7000-8000-000000000001"
    (document,) = holdfast.importers.read(write(say("one")), agent_id="ada", session_id="s")
    assert (document.agent_id, document.session_id) == ("ada", "s")
    (document,) = holdfast.importers.read(write(say("one"), name="x.jsonl"))
    assert document.session_id == "x"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([wrap("response_item", [])], "payload of line 2 .*must be an object"),
        ([{"timestamp": "x", "type": "event_msg", "payload": {}}], "line 2 .*invalid time"),
        ([{"type": 5, "payload": {}}], "type of line 2 .*must be a str"),
        ([[1]], "line 2 .*must be an object"),
        ([wrap("compacted", {"message": 5})], "message of line 2 .*must be a str"),
        ([wrap("compacted", {"replacement_history": 5})], "replacement_history of line 2"),
        ([wrap("compacted", {"replacement_history": [5]})], "item 0 of replacement_history"),
        ([event("thread_rolled_back", num_turns="1")], "num_turns of line 2"),
        ([event("thread_rolled_back", num_turns=-1)], "num_turns of line 2"),
        ([event("thread_rolled_back")], "num_turns of line 2"),
    ],
)
def test_a_wrong_type_is_refused_with_its_line(read, lines, words):
    with pytest.raises(InvalidDocumentError, match=words):
        read(*lines)


def test_a_session_id_that_is_no_text_is_refused(write):
    name = write(wrap("session_meta", {**META, "id": 5}))
    with pytest.raises(InvalidDocumentError, match=r"session id in line 1 .*must be a str"):
        holdfast.importers.read(name)


def test_another_transcript_is_not_taken_for_a_rollout(write):
    name = write({"type": "user", "uuid": "u", "message": {"role": "user"}}, {"type": "x"})
    with pytest.raises(InvalidDocumentError, match="unknown format|not JSON"):
        holdfast.importers.read(name)
    with pytest.raises(InvalidDocumentError, match="not a Codex rollout"):
        holdfast.importers.read(name, format="codex")
