"""Values and messages as lines of text."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from holdfast.cli.rendering import diff_texts, message_text, render_value
from holdfast.snapshots.message_formats import message_role

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=12,
)


@given(JSON)
def test_short_value_is_one_line(value):
    lines = render_value(value, 10**6)
    if isinstance(value, str) and "\n" in value:
        assert len(lines) > 1
    else:
        assert len(lines) == 1


@given(JSON, st.integers(min_value=24, max_value=100))
def test_lines_fit_the_width(value, width):
    most = max(map(cell_len, render_value(value, width, None)), default=0)
    deepest = json.dumps(value).count("[") + json.dumps(value).count("{")
    assert most <= max(width, 16 + 2 * deepest)


def test_long_values_are_folded_with_a_count():
    lines = render_value("\n".join(map(str, range(30))), 40, 5)
    assert lines == ["0", "1", "2", "3", "… 26 more lines"]
    assert len(render_value("\n".join(map(str, range(30))), 40, None)) == 30


def test_control_codes_in_values_are_escaped():
    assert render_value("a\x1b[2J\nb", 40) == [r"a\x1b[2J", "b"]
    assert render_value({"\x1b": "x" * 40}, 30)[0] == "\\x1b:"


def test_very_long_texts_are_not_compared():
    assert diff_texts("a\n" * 4000, "b\n" * 4000, 80) is None
    assert diff_texts("same", "same", 80) == [("…", "")]


def test_diff_texts_shows_one_line_of_context():
    before, after = "1\n2\n3\n4\n5", "1\n2\nx\n4\n5"
    assert diff_texts(before, after, 80) == [
        ("…", ""),
        (" ", "2"),
        ("-", "3"),
        ("+", "x"),
        (" ", "4"),
        ("…", ""),
    ]


@pytest.mark.parametrize(
    ("message", "role", "text"),
    [
        ({"role": "user", "content": "hello"}, "user", "hello"),
        ({"role": "user", "content": [{"type": "text", "text": "a"}, "b"]}, "user", "a\nb"),
        (
            {"type": "function_call", "name": "f", "call_id": "1", "arguments": "{}"},
            "function_call",
            "→ f({})",
        ),
        (
            {"type": "function_call_output", "call_id": "1", "output": "42"},
            "function_call_output",
            "42",
        ),
        ({"role": "model", "parts": [{"functionCall": {"name": "f"}}]}, "model", "→ f()"),
        (
            {"role": "user", "content": [{"toolResult": {"toolUseId": "1"}}]},
            "user",
            '{"toolResult": {"toolUseId": "1"}}',
        ),
        # Claude Code, Pydantic AI, ADK, Agent Framework, Letta, Grampus and A2A
        (
            {
                "type": "assistant",
                "uuid": "u1",
                "message": {
                    "role": "assistant",
                    "content": [
                        {"type": "text", "text": "hm"},
                        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
                    ],
                },
            },
            "assistant",
            "hm\n→ f({})",
        ),
        (
            {
                "kind": "response",
                "parts": [
                    {"part_kind": "text", "content": "hm"},
                    {"part_kind": "tool-call", "tool_name": "f", "args": "{}"},
                ],
            },
            "assistant",
            "hm\n→ f({})",
        ),
        (
            {
                "author": "cook",
                "content": {
                    "role": "model",
                    "parts": [{"text": "hm"}, {"functionCall": {"name": "f"}}],
                },
            },
            "model",
            "hm\n→ f()",
        ),
        (
            {
                "type": "message",
                "role": "tool",
                "contents": [{"type": "function_result", "call_id": "c", "result": "42"}],
            },
            "tool",
            "42",
        ),
        (
            {
                "role": "tool",
                "content": [{"type": "text", "text": "OK"}],
                "tool_returns": [
                    {"tool_call_id": "a", "func_response": "sun"},
                    {"tool_call_id": "b", "func_response": None},
                    {"status": "success"},
                ],
            },
            "tool",
            'OK\nsun\n{"tool_call_id": "b", "func_response": null}',
        ),
        (
            {"role": "tool", "content": None, "tool_results": [{"tool_call_id": "a", "output": 5}]},
            "tool",
            '{"tool_call_id": "a", "output": 5}',
        ),
        ({"role": "ROLE_AGENT", "messageId": "m", "parts": [{"text": "hm"}]}, "assistant", "hm"),
        ({"role": "assistant", "content": ""}, "assistant", '{"role": "assistant", "content": ""}'),
        ({"role": 5}, None, '{"role": 5}'),
        ("plain", None, '"plain"'),
        (None, None, "null"),
    ],
)
def test_message_role_and_text(message, role, text):
    assert (message_role(message), message_text(message)) == (role, text)
