"""Any change of a document after it was written is detected."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import Document, InvalidDocumentError, Redactor
from holdfast.documents.encode import (
    compute_digest,
    encode_canonical_value,
    encode_floats,
)
from holdfast.documents.json_file import parse_json
from holdfast.documents.signing import SignatureError, SigningKey, sign_document, verify_signature
from holdfast.log.event import draft_event
from support.sample_documents import (
    edit_json,
    make_document,
    make_document_with_events,
    make_full_document,
    update_digest,
)

FULL = replace(make_full_document(), extra={"viewer": {"colour": "red"}, "ratio": 0.25})
TREE = FULL.to_dict()


def iterate_flips(text):
    """Yield the text with one bit flipped, for every bit."""
    yield text.replace(b"\n", b" ")
    for at in range(len(text)):
        for bit in range(8):
            yield text[:at] + bytes([text[at] ^ 1 << bit]) + text[at + 1 :]


def read(text):
    """Return the document of a text, or None if it is rejected."""
    try:
        return Document.from_dict(parse_json(text, "text"))
    except InvalidDocumentError:
        return None


@pytest.mark.parametrize(
    "snapshot",
    [
        FULL,
        make_document_with_events(
            draft_event("one", set_=[("state", "k", 1)]), draft_event("two", {"n": 1.5})
        ),
    ],
    ids=["full", "small"],
)
def test_every_flipped_bit_is_rejected_or_harmless(snapshot):
    text = b"".join(snapshot.chunks())
    expected = read(text).to_dict()
    for flipped in iterate_flips(text):
        found = read(flipped)
        assert found is None or found.to_dict() == expected, flipped


def test_every_flipped_byte_of_a_signed_document_is_rejected():
    key = SigningKey.generate()
    signed = sign_document(
        make_document_with_events(draft_event("one", set_=[("state", "k", 1)])), key
    )
    text = b"".join(signed.chunks())
    expected = json.loads(text)
    for at in range(len(text)):
        flipped = text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :]
        try:
            tree = parse_json(flipped, "text")
            verify_signature(tree, [key.public])
        except (InvalidDocumentError, SignatureError):
            continue
        assert tree == expected


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("snapshot_id",), "other"),
        (("parent_id",), None),
        (("agent_id",), "other"),
        (("session_id",), "other"),
        (("scope",), "multi_agent"),
        (("created_at",), "2020-01-01T00:00:00.000000Z"),
        (("exported_at",), None),
        (("source_environment",), "staging"),
        (("tags", "env"), "staging"),
        (("tags",), ...),
        (("viewer", "colour"), "blue"),
        (("ratio",), 0.5),
        (("state", "summary"), "new"),
        (("events", 0, "duration"), 3),
        (("base", "set"), []),
    ],
)
def test_a_modified_field_is_rejected(path, value):
    tree = edit_json(TREE, *path, to=value)
    with pytest.raises(InvalidDocumentError, match="does not match its digest.*allow_modified"):
        Document.from_dict(tree)
    assert Document.from_dict(tree, allow_modified=True)


@pytest.mark.parametrize("digest", [..., None])
def test_a_document_with_events_needs_a_digest(digest):
    tree = edit_json(TREE, "digest", to=digest)
    with pytest.raises(InvalidDocumentError, match="events but no digest.*allow_modified"):
        Document.from_dict(tree)
    assert Document.from_dict(tree, allow_modified=True).events == FULL.events


def test_a_document_without_events_needs_no_digest():
    tree = make_document().to_dict()
    del tree["digest"]
    assert Document.from_dict(tree).to_dict()["digest"] == compute_digest(tree)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("state", "values", "plan"), 1, "'plan'. has another value in the state"),
        (("state", "values", "plan"), ..., "'plan'. was set by an event, but is not in the state"),
        (("state", "values", "new"), 1, "'new'. is in the state, but no event set it"),
        (("state", "messages"), [], "was set by an event"),
        (("state", "status"), "failed", "'status'. has another value"),
        (("state", "namespaces"), {}, "'mail'. was set by an event"),
        (("base", "set"), [["state", "before", 2]], "'before'. has another value"),
    ],
)
def test_events_that_contradict_the_state_are_rejected_despite_a_valid_digest(path, value, problem):
    tree = update_digest(edit_json(TREE, *path, to=value))
    with pytest.raises(InvalidDocumentError, match=f"do not lead to its state.*{problem}"):
        Document.from_dict(tree)
    assert Document.from_dict(tree, allow_modified=True)


def test_events_after_a_pruned_start_need_a_base():
    tree = update_digest(edit_json(TREE, "base"))
    with pytest.raises(InvalidDocumentError, match="start at 5, but it has no base"):
        Document.from_dict(tree)


def test_a_redacted_document_is_valid():
    secret = "AKIAIOSFODNN7EXAMPLF"
    snapshot = make_document_with_events(
        draft_event("state.set", {"key": secret}, set_=[("state", "aws", secret)]),
        draft_event("state.set", set_=[("state", "note", f"use {secret}")]),
        after=3,
        prev="ab" * 32,
    )
    redacted = Redactor().redact(snapshot)
    tree = json.loads(b"".join(redacted.chunks()))
    assert secret not in json.dumps(tree)
    assert tree["digest"] != snapshot.to_dict()["digest"]
    assert Document.from_dict(tree).to_dict() == tree


def test_the_digest_does_not_depend_on_layout_and_order():
    def reversed_names(tree):
        if isinstance(tree, dict):
            return {name: reversed_names(tree[name]) for name in reversed(tree)}
        return [reversed_names(item) for item in tree] if isinstance(tree, list) else tree

    other = json.loads(json.dumps(reversed_names(TREE), indent=7))
    assert list(other) != list(TREE)
    assert compute_digest(other) == TREE["digest"] == FULL.document_digest()


def test_unknown_fields_that_json_converts_keep_their_digest():
    snapshot = make_document(extra={"x": (1, {10: "a", 9: "b"})}, state_extra={"y": {2: (3,)}})
    assert read(b"".join(snapshot.chunks())).to_dict() == snapshot.to_dict()


TREES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=12,
)


@given(TREES)
def test_fast_canonical_json_equals_plain_canonical_json(tree):
    assert encode_canonical_value(tree) == encode_floats(tree).encode()
