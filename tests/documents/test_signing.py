"""Documents are signed, and signatures are verified."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
import sys
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import Document, InvalidDocumentError, SnapshotManager
from holdfast.documents import decode, json_file, migrations
from holdfast.documents.encode import (
    CHUNK_BYTES,
    ITEMS_PER_BATCH,
    encode_canonical,
    encode_chunks,
)
from holdfast.documents.signing import (
    DOMAIN,
    PublicKey,
    SignatureError,
    SigningKey,
    compute_signed_message,
    read_signatures,
    sign_document,
    verify_signature,
)
from holdfast.extras import MissingExtraError
from holdfast.log.event import draft_event
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import run_async
from support.observed_store import make_state
from support.sample_documents import (
    edit_json,
    iterate_paths,
    make_document,
    make_document_with_events,
    make_full_document,
)
from support.sample_values import SAMPLES
from support.signing_keys import KEY, OTHER, PRIVATE, PUBLIC, TRUSTED, check_rejected


def make_rich_document():
    """Return a document with every field and every type of value."""
    values = [("state", name, value) for name, value in SAMPLES.items()]
    made = replace(make_full_document(), state_extra={"mood": [1.0, -0.0, 1e22, 5e-324]})
    events = make_document_with_events(
        draft_event("state.set", {"all": SAMPLES}, set_=values), after=3, prev="ab" * 32
    )
    return replace(
        made, snapshot=events.snapshot, events=events.events, base=events.base, event_log_count=1
    )


SIGNED = sign_document(make_rich_document(), KEY)
TREE = json.loads(b"".join(SIGNED.chunks()))
SMALL = sign_document(make_full_document(), KEY)
SMALL_TREE = json.loads(b"".join(SMALL.chunks()))


def make_manager():
    return SnapshotManager(MemoryStateStore())


def reverse_names(tree):
    """Return JSON data with the names of every object in reverse order."""
    if isinstance(tree, dict):
        return {name: reverse_names(tree[name]) for name in reversed(tree)}
    return [reverse_names(item) for item in tree] if isinstance(tree, list) else tree


# ------------------------------------------------------------------------------------- coverage


def test_a_signed_document_is_readable_and_verified_by_its_key():
    assert verify_signature(TREE, TRUSTED) == (KEY.public,)
    assert verify_signature(SIGNED, [OTHER.public, KEY.public]) == (KEY.public,)
    read = Document.from_dict(TREE)
    assert verify_signature(read, TRUSTED) == (KEY.public,)
    assert (read.schema_version, read.digest) == (1, make_rich_document().digest)
    assert list(TREE)[-1] == "signatures"


def test_the_signed_bytes_are_those_of_the_specification():
    plain = {name: value for name, value in TREE.items() if name != "signatures"}
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert b"".join(SIGNED.canonical()) == b"".join(encode_canonical(TREE)) == text
    assert b"".join(encode_canonical({"b": [], "a": {}, "state": {"x": {}}})) == (
        b'{"a":{},"b":[],"state":{"x":{}}}'
    )
    assert b"".join(encode_canonical({"signatures": []})) == b"{}"


def test_a_stored_signature_stays_valid():
    tree = {
        "schema_version": 1,
        "agent_id": 'b\u00f6t \U0001f600\x7f\x1f"\\/',
        "session_id": "ses",
        "state": {"values": {"z": [1, 1.0, 1e16, 0.1, -0.0, 1e-7, True, None], "a": {"é": "€"}}},
        "signatures": [
            {
                "algorithm": "ed25519",
                "key_id": KEY.key_id,
                "signature": FOR_EVER,
            }
        ],
    }
    assert b"".join(encode_canonical(tree)).decode() == (
        '{"agent_id":"b\u00f6t \U0001f600\x7f\\u001f\\"\\\\/","schema_version":1,'
        '"session_id":"ses","state":{"values":{"a":{"é":"€"},'
        '"z":[1,1.0,1e+16,0.1,-0.0,1e-07,true,null]}}}'
    )
    assert verify_signature(tree, TRUSTED)


FOR_EVER = (
    "0Dtuo+eERFR6lc/VnAKePh8EjRN2undAIGaJbBqYmcoo/IrbAIVtn8yiOLRoT0EJGkDa6KVn12VMnTVLAa0EAA=="
)


@pytest.mark.parametrize("suffix", ["json", "json.gz", "json.zst"])
def test_layout_and_compression_do_not_affect_the_signature(tmp_path, suffix):
    path = tmp_path / f"signed.{suffix}"
    json_file.write_json_file(path, SIGNED.chunks())
    assert verify_signature(json_file.read_json_file(path), TRUSTED)
    for text in (
        json.dumps(TREE, indent=4),
        json.dumps(reverse_names(TREE), ensure_ascii=False),
        "\ufeff\n" + json.dumps(TREE, separators=(",", ":")),
    ):
        path.write_bytes(gzip.compress(text.encode()) if suffix == "json.gz" else text.encode())
        assert verify_signature(json_file.read_json_file(path), TRUSTED)


def iterate_other_values(value):
    """Yield values that differ from a value."""
    if isinstance(value, dict):
        yield {**value, "more": None}
    elif isinstance(value, list):
        yield [*value, None]
    elif isinstance(value, bool):
        yield from (not value, int(value))
    elif isinstance(value, int | float):
        yield value + 1
        yield int(value) if isinstance(value, float) else float(value)
    elif isinstance(value, str):
        yield value + " "
    else:
        yield False
    yield ...


def get_at(tree, path):
    for step in path:
        tree = tree[step]
    return tree


def test_any_change_invalidates_the_signature():
    tried = 0
    for path in iterate_paths(SMALL_TREE):
        if path and path[0] != "signatures":
            for value in iterate_other_values(get_at(SMALL_TREE, path)):
                check_rejected(edit_json(SMALL_TREE, *path, to=value), "does not match")
                tried += 1
    assert tried > 150
    check_rejected({**SMALL_TREE, "more": 1}, "does not match", KEY.key_id)


def test_a_recomputed_digest_does_not_hide_a_change():
    forged = Document.from_dict(edit_json(SMALL_TREE, "tags", to={}), allow_modified=True)
    tree = json.loads(b"".join(forged.chunks()))
    Document.from_dict(tree)  # a whole document by all that a digest can tell
    check_rejected(tree, "does not match")
    for document in (tree, edit_json(SMALL_TREE, "tags", "env", to="staging")):
        with pytest.raises(SignatureError, match="does not match"):
            make_manager().from_dict(document, allow_modified=True, trusted=TRUSTED)


JSON_DATA = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('ab\u20ac\U0001f600\x00"'), inner),
    max_leaves=8,
)


@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(data=JSON_DATA)
def test_unknown_fields_are_signed(data):
    signed = sign_document(make_document(extra={"x": data}, state_extra={"y": data}), KEY)
    read = json_file.parse_json(b"".join(signed.chunks()), "it")
    assert verify_signature(read, TRUSTED)
    assert read["x"] == data
    again = Document.from_dict(read)
    assert verify_signature(again, TRUSTED)


def test_unknown_fields_are_signed_in_their_json_form():
    signed = sign_document(make_document(extra={"a": (1, 2), "b": {10: 1, 9: 2}}), KEY)
    assert verify_signature(json.loads(b"".join(signed.chunks())), TRUSTED)
    assert signed.extra["b"] == {"10": 1, "9": 2}


def test_data_without_a_canonical_form_is_rejected():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for wrong in (float("nan"), {1, 2}, deep, {1: 1, "1": 1}):
        check_rejected({**TREE, "later": wrong}, "no canonical form")


# ---------------------------------------------------------------------------------- trusted keys


def test_an_unsigned_document_is_rejected():
    for document in (
        make_full_document(),
        make_full_document().to_dict(),
        {"signatures": []},
        [],
        None,
    ):
        check_rejected(document, "is not signed", "--sign")


def test_an_error_names_the_untrusted_key():
    check_rejected(TREE, KEY.key_id, OTHER.key_id, "trust", trusted=[OTHER.public])


def test_a_signature_under_the_id_of_another_key_is_rejected():
    forged = sign_document(make_full_document(), OTHER).to_dict()
    check_rejected(forged, f"signed by {OTHER.key_id}")
    forged["signatures"][0]["key_id"] = KEY.key_id
    check_rejected(forged, "does not match")


def test_a_signature_of_another_message_is_rejected():
    message = compute_signed_message(SMALL)
    assert message.startswith(b"holdfast document v1\n")
    for other in (message.removeprefix(DOMAIN), b"".join(SMALL.canonical()), b"git\n" + message):
        entry = {**SMALL_TREE["signatures"][0]}
        entry["signature"] = base64.b64encode(KEY.sign(other)).decode()
        check_rejected({**SMALL_TREE, "signatures": [entry]}, "does not match")


def test_one_trusted_signature_of_several_is_enough():
    both = sign_document(SMALL, OTHER)
    assert [each.key_id for each in read_signatures(both)] == [KEY.key_id, OTHER.key_id]
    for trusted in ([KEY.public], [OTHER.public]):
        assert verify_signature(both, trusted) == tuple(trusted)
    assert len(verify_signature(both.to_dict(), [OTHER.public, KEY.public])) == 2
    again = sign_document(replace(both, tags={"new": "1"}), KEY)
    assert verify_signature(again, [OTHER.public, KEY.public]) == (KEY.public,)
    check_rejected(again, "does not match", OTHER.key_id, trusted=[OTHER.public])
    assert sign_document(SMALL, KEY) == SMALL


def test_the_number_of_signatures_is_limited():
    full = replace(SMALL, extra={"signatures": SMALL_TREE["signatures"] * 16})
    with pytest.raises(SignatureError, match="16 signatures, which is the maximum"):
        sign_document(full, OTHER)


ENTRY = SMALL_TREE["signatures"][0]


@pytest.mark.parametrize(
    "signatures",
    [
        "yes",
        {},
        [None],
        [{}],
        [{**ENTRY, "algorithm": "none"}],
        [{**ENTRY, "algorithm": "Ed25519"}],
        [{**ENTRY, "algorithm": None}],
        [{**ENTRY, "algorithm": "hs256", "key_id": KEY.key_id}],
        [{**ENTRY, "more": 1}],
        [{name: ENTRY[name] for name in ("key_id", "signature")}],
        [{**ENTRY, "key_id": KEY.key_id.upper()}],
        [{**ENTRY, "key_id": KEY.key_id + "\n"}],
        [{**ENTRY, "key_id": 7}],
        [{**ENTRY, "signature": ""}],
        [{**ENTRY, "signature": ENTRY["signature"][:-2]}],
        [{**ENTRY, "signature": ENTRY["signature"][:-3] + "/=="}],
        [{**ENTRY, "signature": "!" + ENTRY["signature"][1:]}],
        [{**ENTRY, "signature": ["x"]}],
        [ENTRY, {**ENTRY, "algorithm": "none"}],
        [ENTRY] * 17,
    ],
)
def test_malformed_signatures_are_rejected_only_if_one_is_required(signatures):
    tree = {**SMALL_TREE, "signatures": signatures}
    check_rejected(tree, "malformed signatures")
    read = Document.from_dict(tree)
    assert read.to_dict()["signatures"] == signatures


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"agent_id": ', b'"agent_id": "admin",\n "agent_id": '),
        (b'"agent_id": ', b'"agent\\u005fid": "admin",\n "agent_id": '),
        (b'"status": ', b'"status":"failed","status": '),
        (b'"role":', b'"role":"system","role":'),
        (b'"algorithm":', b'"algorithm":"none","algorithm":'),
        (b'"signatures": ', b'"signatures": [],\n "signatures": '),
    ],
)
def test_a_signed_document_with_a_duplicate_name_is_rejected(tmp_path, old, new):
    text = b"".join(SMALL.chunks())
    assert old in text
    path = tmp_path / "twice.json"
    path.write_bytes(text.replace(old, new, 1))
    with pytest.raises(InvalidDocumentError, match=r"twice.json is signed, but has .* twice"):
        make_manager().from_file(path)


def test_duplicate_names_are_checked_only_in_signed_documents(monkeypatch):
    looked = []
    monkeypatch.setattr(
        json_file, "reject_duplicate_names", lambda *arguments: looked.append(arguments)
    )
    for signatures in (None, [], "yes", [{**ENTRY, "algorithm": "none"}], [ENTRY] * 17):
        text = json.dumps({**SMALL_TREE, "signatures": signatures}).encode()
        check_rejected(json_file.parse_json(text, "it"), "signe" if not signatures else "malformed")
    assert looked == []
    json_file.parse_json(json.dumps(SMALL_TREE).encode(), "it")
    assert len(looked) == 1


def test_long_numbers_do_not_break_the_check_for_duplicate_names():
    text = b"".join(SMALL.chunks()).replace(b"{", b'{"n": ' + b"9" * 5000 + b".5, ", 1)
    with pytest.raises(InvalidDocumentError):
        json_file.parse_json(text, "it")
    text = b"".join(SMALL.chunks()).replace(b"{", b'{"n": 0.' + b"1" * 5000 + b", ", 1)
    check_rejected(json_file.parse_json(text, "it"), "does not match")


def test_an_empty_list_of_trusted_keys_is_an_error():
    for trusted in ([], ()):
        with pytest.raises(ValueError, match="no trusted keys"):
            verify_signature(TREE, trusted)
        with pytest.raises(ValueError, match="no trusted keys"):
            make_manager().from_dict(TREE, trusted=trusted)
        with pytest.raises(ValueError, match="no trusted keys"):
            run_async(make_manager().import_session(SIGNED, trusted=trusted))
    for wrong in ("release.pub", [KEY], ["release.pub"], b"x"):
        with pytest.raises(TypeError, match="PublicKey"):
            verify_signature(TREE, wrong)
    with pytest.raises(TypeError, match="SigningKey"):
        sign_document(SMALL, KEY.public)
    with pytest.raises(TypeError, match="Document"):
        sign_document(TREE, KEY)


# ------------------------------------------------------------------------- migrations and extras


def test_a_signature_is_verified_before_the_schema_is_migrated(monkeypatch):
    monkeypatch.setattr(migrations, "_steps", {1: lambda tree: {**tree, "tags": {"v": "2"}}})
    monkeypatch.setattr(decode, "migrate_schema", partial(migrations.migrate_schema, newest=2))
    read = make_manager().from_dict(SMALL_TREE, trusted=TRUSTED)
    assert (read.schema_version, read.tags) == (2, {"v": "2"})
    assert (read.signed_by, read.extra) == ((KEY.key_id,), {"viewer": {"colour": "red"}})


def test_without_cryptography_a_signed_document_is_readable_but_not_verifiable(monkeypatch):
    for name in [name for name in sys.modules if name.partition(".")[0] == "cryptography"]:
        monkeypatch.setitem(sys.modules, name, None)
    assert make_manager().from_dict(SMALL_TREE).to_dict() == SMALL_TREE
    for need in (
        lambda: verify_signature(SMALL_TREE, TRUSTED),
        lambda: make_manager().from_dict(SMALL_TREE, trusted=TRUSTED),
        SigningKey.generate,
        lambda: SigningKey.from_pem(PRIVATE),
        lambda: PublicKey.from_pem(PUBLIC),
    ):
        with pytest.raises(MissingExtraError, match=r"pip install 'holdfast\[signing\]'"):
            need()


def test_a_large_document_is_signed_in_chunks():
    pieces = list(sign_document(make_document(make_state(5000)), KEY).canonical())
    assert max(map(len, pieces)) < CHUNK_BYTES + ITEMS_PER_BATCH * 200
    assert b"".join(pieces) == b"".join(
        encode_canonical(json.loads(b"".join(read_text(5000, pieces))))
    )


def read_text(count, pieces):
    """Return canonical pieces as a text."""
    tree = json.loads(b"".join(pieces))
    assert len(tree["state"]["messages"]) == count
    assert dt.datetime.fromisoformat(tree["created_at"])
    return encode_chunks(tree)
