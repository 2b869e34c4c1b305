"""The cost of reading a document is limited before it is parsed."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import holdfast
from holdfast import DocumentLimits, InvalidDocumentError, StateStoreError
from holdfast.documents.limits import DocumentMeter, DocumentTooLargeError

HEAD = b'{"schema_version":1,"agent_id":"a","session_id":"s","state":{'


def wrap_state(state):
    return HEAD + state + b"}}"


def repeat_item(item, count):
    return b",".join([item] * count)


ATTACKS = {
    "empty lists as messages": wrap_state(b'"messages":[' + repeat_item(b"[]", 2_000_000) + b"]"),
    "empty objects as messages": wrap_state(b'"messages":[' + repeat_item(b"{}", 2_000_000) + b"]"),
    "zeros as messages": wrap_state(b'"messages":[' + repeat_item(b"0", 3_000_000) + b"]"),
    "lists in one message": wrap_state(b'"messages":[[' + repeat_item(b"[]", 2_000_000) + b"]]"),
    "empty texts": wrap_state(b'"messages":[' + repeat_item(b'""', 2_000_000) + b"]"),
    "nothing but quotes": wrap_state(b'"messages":[' + b'""' * 3_000_000),
    "nesting": wrap_state(b'"messages":[' + b"[" * 3_000_000 + b"]" * 3_000_000 + b"]"),
    "nested objects": wrap_state(b'"messages":[' + b'{"a":' * 1_000_000 + b"}" * 1_000_000 + b"]"),
    "tagged values": wrap_state(b'"messages":[[' + repeat_item(b'{"$tuple":[]}', 700_000) + b"]]"),
    "a name again and again": wrap_state(b'"values":{' + repeat_item(b'"a":0', 1_000_000) + b"}"),
    "unknown fields": HEAD + b'},"x":[' + repeat_item(b"[]", 2_000_000) + b"]}",
    "events": HEAD + b'},"events":[' + repeat_item(b'{"seq":1,"type":"x"}', 400_000) + b"]}",
    "digits": wrap_state(b'"messages":[' + b"1" * 6_000_000 + b"]"),
    "backslashes": wrap_state(b'"messages":["' + b"\\" * 6_000_001 + b'"]'),
}


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress], ids=["gz", "zst"])
@pytest.mark.parametrize("name", ATTACKS)
def test_a_small_file_cannot_take_much_time(tmp_path, name, pack):
    path = tmp_path / "document.json.gz"
    path.write_bytes(pack(ATTACKS[name]))
    assert path.stat().st_size < 50_000
    began = time.process_time()
    with pytest.raises(InvalidDocumentError):
        holdfast.read_document(path)
    assert time.process_time() - began < 1


MEASURE = """
import resource, sys
import holdfast
from holdfast.documents import files
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    holdfast.read_document(sys.argv[1])
except holdfast.InvalidDocumentError:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted in other units elsewhere")
@pytest.mark.parametrize("name", ["empty lists as messages", "nothing but quotes"])
def test_a_small_file_cannot_take_much_memory(tmp_path, name):
    path = tmp_path / "document.json.gz"
    path.write_bytes(gzip.compress(ATTACKS[name]))
    ran = subprocess.run(
        [sys.executable, "-c", MEASURE, path], capture_output=True, text=True, check=True
    )
    assert int(ran.stdout) < 100 * 1024  # kilobytes


@pytest.mark.parametrize("name", ["empty lists as messages", "zeros as messages"])
def test_an_uncompressed_file_is_limited_in_objects(tmp_path, name):
    path = tmp_path / "document.json"
    path.write_bytes(ATTACKS[name])
    with pytest.raises(DocumentTooLargeError, match="more than 1,000,000 values and names"):
        holdfast.read_document(path, limits=DocumentLimits(max_objects=1_000_000))


def test_structure_inside_strings_is_not_counted(tmp_path):
    path = tmp_path / "document.json.gz"
    text = json.dumps(json.dumps([{"a": [1, 2, "\\", '"']}] * 100_000))
    path.write_bytes(gzip.compress(wrap_state(b'"messages":[' + text.encode() + b"]")))
    limits = DocumentLimits(max_objects=100)
    assert len(holdfast.read_document(path, limits=limits).state.messages) == 1


def test_a_document_that_readers_would_refuse_is_not_written(tmp_path):
    store = holdfast.Store()
    store.set("state", "grid", [0] * 400_000)
    snapshot = holdfast.Document(snapshot=store.snapshot(), agent_id="a", session_id="s")
    with pytest.raises(
        StateStoreError, match=r"readers refuse as a decompression bomb; write it as \.json"
    ):
        holdfast.write_document(snapshot, tmp_path / "a.json.gz")
    assert list(tmp_path.iterdir()) == []
    holdfast.write_document(snapshot, tmp_path / "a.json")
    assert holdfast.read_document(tmp_path / "a.json").digest == snapshot.digest


@pytest.mark.parametrize("fields", [{"max_bytes": 0}, {"max_objects": -1}, {"max_bytes": 1.5}])
def test_limits_must_be_positive_ints(fields):
    with pytest.raises(ValueError, match="must be a positive int, got"):
        DocumentLimits(**fields)


def count_values(tree):
    """Count the values and names of JSON data, without one per list and object."""
    if isinstance(tree, dict):
        return 1 + 2 * len(tree) - bool(tree) + sum(count_values(each) for each in tree.values())
    if isinstance(tree, list):
        return 1 + len(tree) - bool(tree) + sum(count_values(each) for each in tree)
    return 0


TREES = st.recursive(
    st.none() | st.integers() | st.text('\\"[]{},:a\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('\\"[]{},:a\n'), inner),
    max_leaves=20,
)


@given(TREES, st.integers(1, 7))
def test_objects_are_counted_in_any_chunks(tree, size):
    text = json.dumps(tree).encode()
    meter = DocumentMeter("text")
    for at in range(0, len(text), size):
        meter.count(text[at : at + size])
    assert meter.objects == count_values(tree)


def test_counting_takes_linear_time():
    def work(count):
        meter = DocumentMeter("text")
        began = time.process_time()
        for _ in range(count):
            meter.count(repeat_item(b'{"a\\"":[]}', 50_000))
        return time.process_time() - began

    work(1)
    assert work(16) < 12 * max(work(4), 0.01)
