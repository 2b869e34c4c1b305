"""Large str and bytes inside a value become references, and come back as they were."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import InvalidDocumentError, Store, UnsupportedValueError
from holdfast.state.snapshot import stored_changes
from holdfast.values import MAX_DEPTH, decode, encode, from_json, register_type, to_json
from holdfast.values.binary_encoding import canonicalize
from holdfast.values.extensions import ATTACHMENT, BLOB
from holdfast.values.json_encoding import encode_value, stored_to_json
from holdfast.values.references import (
    BLOB_SIZE,
    Attachment,
    BlobReference,
    ReferringData,
    externalize,
    find_digests,
    find_references,
    find_tokens,
    has_references,
    keep_references,
    restore_value,
)
from support.sample_values import hashables, is_identical, keys, nest_lists, scalars

Ext = msgspec.msgpack.Ext

LARGE = {
    "ascii": "a" * BLOB_SIZE,
    "two bytes": "é" * (BLOB_SIZE // 2),
    "three bytes": "世" * (BLOB_SIZE // 3 + 1),
    "four bytes": "🦀" * (BLOB_SIZE // 4),
    "bytes": bytes(BLOB_SIZE),
    "more bytes": b"\xff" * (BLOB_SIZE + 1),
}
JUST_BELOW = {
    "ascii": "a" * (BLOB_SIZE - 1),
    "two bytes": "é" * (BLOB_SIZE // 2 - 1) + "a",
    "three bytes": "世" * (BLOB_SIZE // 3),
    "four bytes": "🦀" * (BLOB_SIZE // 4 - 1) + "abc",
    "bytes": bytes(BLOB_SIZE - 1),
}
DIGEST = hashlib.sha256(b"x").hexdigest()


def make_leaf(name, is_large):
    """Return a leaf; a function, because Hypothesis shows what strategies consist of."""
    return (LARGE if is_large else JUST_BELOW).get(name, b"")


large = st.builds(make_leaf, st.sampled_from(list(LARGE)), st.booleans())
large_hashables = st.recursive(
    large | hashables,
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.frozensets(inner, max_size=3),
    max_leaves=4,
)
large_values = st.recursive(
    large | scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(keys, inner, max_size=3),
        st.dictionaries(st.sampled_from(["$blob", "$attachment", "$$map"]), inner, max_size=1),
        st.sets(large_hashables, max_size=3),
        st.frozensets(large_hashables, max_size=3),
    ),
    max_leaves=8,
)


class Scan:
    """A registered type with a large content."""

    def __init__(self, pixels):
        self.pixels = pixels

    def __eq__(self, other):
        return isinstance(other, Scan) and other.pixels == self.pixels

    __hash__ = None


register_type(
    Scan, name="test.scan", encode=lambda scan: {"p": scan.pixels}, decode=lambda v: Scan(v["p"])
)


def restore_json(made):
    """Decode the JSON form of an encoded value, with the contents in place of the references."""
    contents = made.data.contents if isinstance(made.data, ReferringData) else {}
    return restore_value(from_json(msgspec.json.decode(made.json)), contents)


@given(large_values)
def test_any_value_with_large_leaves_comes_back_equal_in_both_forms(value):
    made = encode_value(value)
    assert is_identical(decode(made.data), value)
    assert is_identical(restore_json(made), value)
    assert made.json == msgspec.json.encode(stored_to_json(made.data))
    assert made.refers == has_references(made.data) == isinstance(made.data, ReferringData)


@given(large_values)
def test_what_is_read_from_json_has_the_same_canonical_bytes(value):
    made = encode_value(value)
    read = from_json(msgspec.json.decode(made.json))
    assert encode_value(read).canonical == made.canonical
    assert canonicalize(encode(read)) == canonicalize(externalize(encode(value)))


@given(large_values)
def test_the_digest_of_a_state_is_the_same_for_inline_values_and_blobs(value):
    inline, stored = Store(), Store()
    inline.set("n", "k", value)
    with keep_references():
        stored.set("n", "k", decode(encode_value(value).data))
    assert inline.snapshot().digest == stored.snapshot().digest
    assert stored_changes(inline.snapshot(), stored.snapshot()) == []
    assert stored_changes(stored.snapshot(), inline.snapshot()) == []


def test_equal_contents_in_another_order_are_no_change():
    image = LARGE["bytes"]
    one, other = Store(), Store()
    one.set("n", "k", {"a": 1, "b": 2, "image": image})
    with keep_references():
        other.set("n", "k", decode(encode_value({"image": image, "b": 2, "a": 1}).data))
    assert stored_changes(one.snapshot(), other.snapshot()) == []
    one.set("n", "k", {"a": 1, "b": 3, "image": image})
    assert [row[:2] for row in stored_changes(one.snapshot(), other.snapshot())] == [("n", "k")]


@pytest.mark.parametrize("value", LARGE.values(), ids=LARGE)
def test_a_value_of_64_kib_is_a_reference(value):
    content = value.encode() if isinstance(value, str) else value
    digest = hashlib.sha256(content).hexdigest()
    reference = BlobReference(digest, len(content), type(value).__name__)
    made = encode_value({"content": [value, "small"]})
    assert len(made.data) < 200
    assert msgspec.json.decode(made.json) == {
        "content": [{"$blob": [digest, len(content), type(value).__name__]}, "small"]
    }
    assert made.data.contents == {digest: content}
    assert find_digests(made.data) == find_tokens(made.json) == {digest}
    with keep_references():
        assert decode(made.data) == {"content": [reference, "small"]}
    assert decode(bytes(made.data)) == {"content": [reference, "small"]}
    assert decode(made.data) == {"content": [value, "small"]}


@pytest.mark.parametrize("value", JUST_BELOW.values(), ids=JUST_BELOW)
def test_a_smaller_value_stays_inline(value):
    made = encode_value([value, value])
    assert type(made.data) is bytes
    assert not made.refers
    assert decode(made.data) == [value, value]


def test_equal_contents_are_one_blob_and_text_and_bytes_of_one_content_too():
    text = LARGE["ascii"]
    made = encode_value([text, text.encode(), {"again": (text,)}])
    assert len(made.data.contents) == 1
    assert decode(made.data) == [text, text.encode(), {"again": (text,)}]


def test_registered_types_and_dict_keys_stay_inline():
    for value in (Scan(LARGE["bytes"]), {LARGE["ascii"]: 1}, {(1, LARGE["ascii"]): 1}):
        made = encode_value([value])
        assert not made.refers
        assert decode(made.data) == [value]
    mixed = [Scan(LARGE["bytes"]), LARGE["more bytes"], {(1, 2): LARGE["ascii"]}]
    made = encode_value(mixed)
    assert len(made.data.contents) == 2
    assert decode(made.data) == mixed
    assert restore_json(made) == mixed


def test_a_large_value_may_be_nested_as_deep_as_any_other():
    tuples = LARGE["bytes"]
    for _ in range(MAX_DEPTH):
        tuples = (tuples,)
    for value in (nest_lists(MAX_DEPTH, LARGE["ascii"]), tuples):
        made = encode_value(value)
        assert is_identical(decode(made.data), value)
        assert is_identical(restore_json(made), value)
    attached = nest_lists(MAX_DEPTH, Attachment(DIGEST, 1))
    assert decode(encode(attached)) == attached
    assert from_json(to_json(attached)) == attached


def test_a_value_inside_a_large_one_can_be_decoded_while_its_blobs_are_read():
    plain = bytes(encode_value(LARGE["ascii"]).data)
    inner = []

    class Contents(dict):
        def __missing__(self, digest):
            inner.append(decode(plain))
            return b"read"

    assert decode(ReferringData(plain, Contents())) == "read"
    assert [type(each) for each in inner] == [BlobReference]


def test_only_the_value_with_a_missing_blob_raises():
    made = encode_value({"image": LARGE["bytes"]})
    with pytest.raises(KeyError):
        decode(ReferringData(made.data, {}))
    assert decode(encode({"image": 1})) == {"image": 1}
    with keep_references():
        assert find_references(decode(ReferringData(made.data, {})))


def test_references_and_attachments_are_values():
    attachment = Attachment(DIGEST, 1, "image/png", "chart.png")
    reference = BlobReference(DIGEST, 1, "bytes")
    value = {"parts": [attachment, (attachment,), {attachment}], "blob": reference}
    assert is_identical(decode(encode(value)), value)
    assert to_json(attachment) == {"$attachment": [DIGEST, 1, "image/png", "chart.png"]}
    assert to_json(Attachment(DIGEST, 1)) == {"$attachment": [DIGEST, 1, None, None]}
    assert to_json(reference) == {"$blob": [DIGEST, 1, "bytes"]}
    assert from_json(to_json(value)) == value
    assert find_references(value) == {reference}
    assert find_digests(encode(attachment)) == {DIGEST}
    assert encode_value(attachment).refers


def test_a_dict_that_looks_like_a_reference_is_a_dict():
    for value in ({"$blob": [DIGEST, 1, "str"]}, {"$attachment": [DIGEST, 1, None, None]}):
        assert from_json(to_json(value)) == value
        assert decode(encode(value)) == value
        assert not encode_value(value).refers


def test_bytes_that_look_like_a_reference_are_bytes():
    for inner in (
        Attachment(DIGEST, 1),
        BlobReference(DIGEST, 1, "str"),
        {"a": Attachment(DIGEST, 1)},
    ):
        value = {"cached": encode(inner)}
        made = encode_value(value)
        assert not made.refers
        assert find_digests(made.data) == set()
        assert not has_references(made.data)
        assert decode(made.data) == restore_json(made) == value
        both = encode_value([encode(inner), Attachment(hashlib.sha256(b"y").hexdigest(), 1)])
        assert find_digests(both.data) == {hashlib.sha256(b"y").hexdigest()}


@given(large_values)
def test_the_digests_of_any_value_are_those_of_its_contents(value):
    made = encode_value(value)
    contents = made.data.contents if isinstance(made.data, ReferringData) else {}
    assert find_digests(made.data) == set(contents)


@pytest.mark.parametrize(
    "items",
    [
        [],
        [DIGEST],
        [DIGEST, 1],
        [DIGEST, -1, "str"],
        [DIGEST, 2**53, "str"],
        [DIGEST, True, "str"],
        [DIGEST, 1.0, "str"],
        [DIGEST, 1, "text"],
        [DIGEST, 1, 2, 3, 4],
        [DIGEST[1:], 1, "str"],
        [DIGEST.upper(), 1, "str"],
        [DIGEST + "\n", 1, "str"],
        [5, 1, "str"],
        [DIGEST, 1, "image/png", 5],
        "text",
        {"a": 1},
    ],
)
def test_malformed_references_are_refused(items):
    for tag, code in (("$blob", BLOB), ("$attachment", ATTACHMENT)):
        with pytest.raises(InvalidDocumentError):
            from_json({tag: items})
        with pytest.raises(InvalidDocumentError):
            decode(msgspec.msgpack.encode(Ext(code, msgspec.msgpack.encode(items))))


@pytest.mark.parametrize(
    "made",
    [
        Attachment("abc", 1),
        Attachment(None, 1),
        Attachment(DIGEST, "1"),
        Attachment(DIGEST, 2**53),
        Attachment(DIGEST, -1),
        Attachment(DIGEST, 1, 5),
        Attachment(DIGEST, 1, name=b"chart"),
        BlobReference(DIGEST, 1, "text"),
        BlobReference("abc", 1, "str"),
    ],
)
def test_a_reference_that_could_not_be_read_is_not_encoded(made):
    for function in (encode, to_json, encode_value):
        with pytest.raises(UnsupportedValueError, match=r"blob reference.*\$\.a\[1\]"):
            function({"a": [0, made]})


def test_an_attachment_with_text_that_cannot_be_stored_is_refused():
    for attachment in (Attachment(DIGEST, 1, name="\ud800"), Attachment(DIGEST, 1, "\ud800")):
        with pytest.raises(UnsupportedValueError, match="surrogate"):
            encode([attachment])


def test_tokens_are_found_wherever_a_digest_stands_alone():
    assert find_tokens(f'"{DIGEST}",{DIGEST}/'.encode()) == {DIGEST}
    assert find_tokens(f"{DIGEST}0".encode()) == set()
    assert find_tokens(DIGEST.upper().encode()) == set()
