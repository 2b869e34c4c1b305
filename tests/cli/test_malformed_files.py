"""Malformed files: one error, quickly, and nothing is written."""

from __future__ import annotations

import gzip
import json
import time

import pytest


def not_json(text: bytes) -> bytes:
    return b"agent: research-bot"


def empty(text: bytes) -> bytes:
    return b""


def truncated(text: bytes) -> bytes:
    return text[: len(text) // 2]


def truncated_gzip(text: bytes) -> bytes:
    return gzip.compress(text)[:-20]


def json_list(text: bytes) -> bytes:
    return b"[1, 2]"


def another_object(text: bytes) -> bytes:
    return b'{"schema_version": 1, "name": "x"}'


def newer_schema(text: bytes) -> bytes:
    return json.dumps({**json.loads(text), "schema_version": 99}).encode()


def broken_digest(text: bytes) -> bytes:
    tree = json.loads(text)
    tree["state"]["values"]["plan"] = "something else"
    return json.dumps(tree).encode()


def broken_chain(text: bytes) -> bytes:
    tree = json.loads(text)
    tree["events"][3]["type"] = "something.else"
    return json.dumps(tree).encode()


def nested_value(text: bytes) -> bytes:
    return text.replace(b'"answer"', b"[" * 10_000 + b"]" * 10_000, 1)


def nested_alone(text: bytes) -> bytes:
    return b"[" * 10_000 + b"]" * 10_000


def duplicate_message_keys(text: bytes) -> bytes:
    tree = json.loads(text)
    tree["state"]["message_keys"] = ["000000000000"] * 2
    return json.dumps(tree).encode()


def zeros(text: bytes) -> bytes:
    # One gigabyte in one megabyte: a gzip file may have many members.
    return gzip.compress(bytes(1 << 24)) * 64


BAD = {
    not_json: "not JSON",
    empty: "JSON",
    truncated: "truncated",
    truncated_gzip: "truncated",
    json_list: "JSON",
    another_object: "it lacks agent_id",
    newer_schema: "upgrade",
    broken_digest: "does not match its digest",
    broken_chain: "breaks the hash chain",
    nested_value: "nested",
    nested_alone: "nested",
    duplicate_message_keys: "different keys",
    zeros: "not JSON",
}


@pytest.mark.parametrize("verb", ["show", "import"])
@pytest.mark.parametrize("made", BAD, ids=lambda made: made.__name__)
def test_malformed_file_is_one_error_and_writes_nothing(
    run, document, entries, tmp_path, made, verb
):
    data = made(document.read_bytes())
    document.unlink()
    name = "bad.json.gz" if data[:2] == b"\x1f\x8b" else "bad.json"
    (tmp_path / name).write_bytes(data)
    before, names = entries(), sorted(tmp_path.iterdir())
    started = time.process_time()
    ran = run("state", verb, name)
    assert time.process_time() - started < 1
    ran.assert_failed(BAD[made])
    assert ran.out == ""
    assert len(ran.err) < 800
    assert entries() == before
    assert sorted(tmp_path.iterdir()) == names


@pytest.mark.parametrize("verb", ["show", "import"])
def test_folder_is_refused(run, tmp_path, verb):
    (tmp_path / "x.json").mkdir()
    run("state", verb, "x.json").assert_failed("is a folder")
