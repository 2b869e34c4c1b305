"""Files with anything in them changed are imported, or refused with one clear error."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import holdfast.importers
from holdfast.errors import InvalidDocumentError
from holdfast.sessions.replay import replay

SAMPLES = Path(__file__).parent / "samples"
CODEX = [
    [json.loads(line) for line in path.read_bytes().splitlines()]
    for path in sorted((SAMPLES / "codex").iterdir())
]
TREES = [
    json.loads(path.read_bytes())
    for path in sorted([*SAMPLES.glob("letta/*"), *SAMPLES.glob("grampus/*")])
]
NAMES = ("id", "type", "role", "payload", "agents", "messages", "timestamp", "num_turns", "")
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from((-1, 0, 2**70, 1.5, "", "x", *NAMES, "session_meta", "compacted", "1.0")),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=2)
    ),
    max_leaves=4,
)


def list_places(tree):
    """Return all containers with a key or an index in them."""
    steps = list(tree) if isinstance(tree, dict) else range(len(tree))
    inner = [tree[step] for step in steps if isinstance(tree[step], dict | list)]
    return [(tree, step) for step in steps] + [
        place for each in inner for place in list_places(each)
    ]


@st.composite
def mutated(draw, samples):
    """Generate a sample with up to three items removed, replaced, moved or repeated."""
    tree = copy.deepcopy(draw(st.sampled_from(samples)))
    for _ in range(draw(st.integers(1, 3))):
        places = list_places(tree)
        if not places:
            break
        at, step = draw(st.sampled_from(places))
        other, there = draw(st.sampled_from(places))
        match draw(st.sampled_from(("delete", "replace", "move", "repeat"))):
            case "delete":
                del at[step]
            case "move":
                at[step] = copy.deepcopy(other[there])
            case "repeat" if isinstance(at, list):
                at.insert(step, copy.deepcopy(at[step]))
            case _:
                at[step] = draw(VALUES)
    return tree


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("mutated") / "file"


def read_or_refuse(file, data, **options):
    file.write_bytes(data)
    refusal = ""
    documents = []
    try:
        documents = holdfast.importers.read(str(file), **options)
    except InvalidDocumentError as error:
        refusal = str(error)
    # An error that a reader did not expect is reported with "cannot read" and its class.
    assert "cannot read" not in refusal
    assert len(refusal) < 1500
    for document in documents:
        *_, last = replay(document)
        assert last.after.digest == document.snapshot.digest


@given(lines=mutated(CODEX), cut=st.integers(0, 40), forced=st.booleans())
def test_rollouts(file, lines, cut, forced):
    data = b"\n".join(json.dumps(line).encode() for line in lines)
    read_or_refuse(file, data[: len(data) - cut], format="codex" if forced else None)


@given(tree=mutated(TREES), format_=st.sampled_from((None, "letta", "grampus")))
def test_agent_files_and_snapshots(file, tree, format_):
    read_or_refuse(file, json.dumps(tree).encode(), format=format_)


CHANGES = st.one_of(
    st.sampled_from(("user", "user", "context", "answer")),
    st.tuples(st.just("rollback"), st.integers(0, 4)),
    st.tuples(st.just("compact"), st.none() | st.lists(st.sampled_from(("user", "answer")))),
)


def build_item(kind, number):
    texts = {"context": "<environment_context>", "summary": "sum"}
    text = {"type": "input_text", "text": texts.get(kind, kind)}
    role = "assistant" if kind == "answer" else "user"
    item = {"type": "message", "role": role, "content": [text]}
    return item if kind == "summary" else {**item, "number": number}


def name_kind(item):
    text = item["content"][0]["text"]
    return {"<environment_context>": "context", "sum": "summary"}.get(text, text)


def trim_context(items):
    """Return a conversation without the context of the next turn, if it is not the first."""
    kinds = [name_kind(item) for item in items]
    while "user" in kinds and kinds[-1] == "context":
        kinds.pop()
    return items[: len(kinds)]


@given(changes=st.lists(CHANGES, max_size=30))
def test_a_rollback_restores_the_conversation_before_its_turns(file, changes):
    """The conversation is what a stack of whole conversations, one for each turn, gives."""
    lines = [{"timestamp": "2026-06-01T09:30:00Z", "type": "session_meta", "payload": {"id": "s"}}]
    now, before_turns = [], []
    for number, change in enumerate(changes):
        if isinstance(change, str):
            type_, payload = "response_item", build_item(change, number)
            if change == "user":
                before_turns.append(trim_context(now))
            now = [*now, payload]
        elif change[0] == "compact":
            replaced = change[1] and [build_item(kind, number) for kind in change[1]]
            type_, payload = "compacted", {"message": "sum", "replacement_history": replaced}
            if replaced is None:
                kept = [item for item in now if name_kind(item) == "user"]
                replaced = [*kept, build_item("summary", number)]
            now = replaced
        else:
            type_, payload = "event_msg", {"type": "thread_rolled_back", "num_turns": change[1]}
            if count := min(change[1], len(before_turns)):
                now = before_turns[-count]
                del before_turns[-count:]
        lines.append({"type": type_, "payload": payload})
    file.write_bytes(b"\n".join(json.dumps(line).encode() for line in lines))
    (document,) = holdfast.importers.read(str(file))
    assert document.state.messages == now
