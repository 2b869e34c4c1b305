"""Lists of chat messages become sessions with the messages unchanged."""

from __future__ import annotations

import gzip
import json

import pytest

import holdfast.importers
from holdfast.errors import InvalidDocumentError
from importers.graphs import check_imports

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
OPENAI = [
    {"role": "developer", "content": "Be brief."},
    {"role": "system", "content": "Obey.", "name": "boss"},
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "1 + 1?"},
            {"type": "image_url", "image_url": {"url": "data:"}},
        ],
    },
    {"role": "assistant", "content": None, "refusal": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "2"},
    {"role": "function", "name": "old", "content": "x"},
    {"role": "assistant", "content": "2", "logprobs": 1.0, "big": 2**70, "ü": ["\U0001f600", {}]},
]
RESPONSES = [
    {"role": "user", "content": "hi"},
    {"type": "reasoning", "id": "rs_1", "summary": []},
    {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "2"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "2"}]},
]
ANTHROPIC = [
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "t1", "content": "sun", "is_error": False}
        ],
    },
]
SHAPES = {"openai": OPENAI, "responses": RESPONSES, "anthropic": ANTHROPIC}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def put(data, name="chat.json"):
        (tmp_path / name).write_bytes(
            data if isinstance(data, bytes) else json.dumps(data).encode()
        )
        return name

    return put


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", ["array", "object", "lines", "gzip", "bom"])
def test_each_message_is_stored_unchanged_as_an_event(write, shape, form):
    messages = SHAPES[shape]
    text = json.dumps(messages).encode()
    data = {
        "array": text,
        "object": json.dumps({"messages": messages}, indent=1).encode(),
        "lines": b"\r\n\n".join(json.dumps(each).encode() for each in messages) + b"\n",
        "gzip": gzip.compress(text),
        "bom": b"\xef\xbb\xbf" + text,
    }[form]
    (document,) = holdfast.importers.read(write(data, "a talk.v2.jsonl"))
    assert document.state.messages == messages
    assert json.dumps(document.state.messages) == json.dumps(messages)
    assert (document.agent_id, document.session_id) == ("imported", "a talk.v2")
    types = [event.type for event in document.events]
    assert types == ["session.started", *["message.appended"] * len(messages)]
    check_imports(document)


def test_other_fields_of_the_object_become_values(write):
    body = {"model": "m", "system": "Be kind.", "max_tokens": 5, "tools": [], "messages": ANTHROPIC}
    (document,) = holdfast.importers.read(write(body))
    assert document.state.values == {
        "model": "m",
        "system": "Be kind.",
        "max_tokens": 5,
        "tools": [],
    }
    assert document.state.messages == ANTHROPIC
    check_imports(document)


def test_each_line_that_is_a_conversation_becomes_a_session(write):
    lines = [{"messages": OPENAI[:2]}, {"messages": ANTHROPIC, "split": "test"}, {"messages": []}]
    name = write("\n".join(map(json.dumps, lines)).encode(), "train.jsonl")
    documents = holdfast.importers.read(name, agent_id="tuner")
    assert [each.session_id for each in documents] == ["train-1", "train-2", "train-3"]
    assert {each.agent_id for each in documents} == {"tuner"}
    assert documents[1].state.values == {"split": "test"}
    check_imports(*documents)
    with pytest.raises(InvalidDocumentError, match="3 conversations.*--session"):
        holdfast.importers.read(name, session_id="one")


@pytest.mark.parametrize("name", ["x.json", "x.jsonl.gz", "x", "x.json.zst", "x.ndjson"])
def test_the_session_id_is_the_file_name(write, name):
    (document,) = holdfast.importers.read(write(OPENAI, name))
    assert document.session_id == "x"


def test_agent_and_session_ids_can_be_given(write):
    (document,) = holdfast.importers.read(write(OPENAI), agent_id="bot", session_id="ses_1")
    assert (document.agent_id, document.session_id) == ("bot", "ses_1")


def test_a_single_message_is_a_conversation(write):
    (document,) = holdfast.importers.read(write({"role": "user", "content": "hi"}))
    assert document.state.messages == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (json.dumps(OPENAI).encode()[:-9], "truncated"),
        ([*OPENAI, 7], "message 7 of chat.json is not a message"),
        ([*OPENAI, {"content": "x"}], "message 7 of chat.json is not a message"),
        ([{"role": "user"}, {"role": 1}], "message 1"),
        ({"messages": [{"role": "user"}, None]}, "message 1"),
        (b'{"role": "user"}\n{"role": \n', "line 2 of chat.json is not JSON"),
        (b'{"role": "user"}\n\n[1]\n', "line 3 of chat.json is not a message"),
        (b'{"messages": []}\n{"messages": 5}\n', "without messages"),
        (b'[{"role": "user", "content": "\\ud800"}]', "surrogate"),
        (b'[{"role": "user", "content": "\xff"}]', "not JSON"),
        (b'[{"role": "user", "content": ' + b"[" * 10_000 + b"]" * 10_000 + b"}]", "nested"),
        (b"[" * 10_000 + b"]" * 10_000, "nested"),
        (b'[{"role": "user", "content": ' + b"[" * 500 + b"]" * 500 + b"}]", "nested|deep"),
        ([], "unknown format.*--as, one of: .*chat"),
        ([[1]], "unknown format"),
        ([{"type": "Feature", "geometry": None}], "unknown format"),
        ({"role": 5}, "unknown format"),
        ({"messages": "none"}, "unknown format"),
        ("text", "not JSON"),
        (b"", "JSON"),
        (b"role: user\n", "not JSON.*--as"),
    ],
)
def test_malformed_input_is_refused_with_its_position(write, data, words):
    with pytest.raises(InvalidDocumentError, match=words) as caught:
        holdfast.importers.read(write(data))
    assert len(str(caught.value)) < 600


def test_a_file_beyond_the_size_limit_is_refused(write):
    with pytest.raises(InvalidDocumentError, match="more than 100 bytes"):
        holdfast.importers.read(write(OPENAI), max_bytes=100)


def test_a_long_conversation_is_read(write):
    messages = [{"role": "user", "content": f"message {n}"} for n in range(20_000)]
    (document,) = holdfast.importers.read(write(messages))
    assert document.event_log_count == 20_001
