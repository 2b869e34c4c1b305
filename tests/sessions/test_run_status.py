"""The status of a run is inferred from what it stored."""

from __future__ import annotations

import pytest

from holdfast.sessions.run_status import infer_status, infer_strands_status

USER = {"role": "user", "content": [{"text": "?"}]}
ANSWER = {"role": "assistant", "content": [{"text": "!"}]}
CALL = {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "t"}}]}
RESULT = {"role": "user", "content": [{"toolResult": {"toolUseId": "c"}}]}


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (None, "pending"),
        (USER, "running"),
        (ANSWER, "completed"),
        (CALL, "running"),
        (RESULT, "running"),
        ({"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}, "running"),
        ({"role": "tool", "tool_call_id": "c", "content": "x"}, "running"),
        ({"role": "model", "parts": [{"text": "!"}]}, "completed"),
        ({"role": "model", "parts": [{"functionCall": {"name": "t"}}]}, "running"),
        ("text", "running"),
    ],
)
def test_a_conversation_that_ends_with_an_answer_is_completed(message, expected):
    assert infer_status(message) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({}, "pending"),
        ({"messages": []}, "pending"),
        ({"messages": "?"}, "pending"),
        ({"messages": [USER, ANSWER]}, "completed"),
        ({"messages": [USER, CALL], "interrupt_state": {"activated": True}}, "waiting"),
        ({"messages": [USER, ANSWER], "interrupt_state": {"activated": False}}, "completed"),
        ({"orchestrator_id": "g", "state": {"status": "executing"}}, "running"),
        ({"orchestrator_id": "g", "state": {"status": "interrupted"}}, "waiting"),
        ({"orchestrator_id": "g", "state": {"status": "completed"}}, "completed"),
        ({"orchestrator_id": "g", "state": {"status": "failed"}}, "failed"),
        ({"orchestrator_id": "g", "state": {"status": "new"}}, "pending"),
        ({"orchestrator_id": "g", "state": None}, "pending"),
    ],
)
def test_the_status_of_a_strands_run_is_inferred_from_its_snapshot(data, expected):
    assert infer_strands_status(data) == expected
