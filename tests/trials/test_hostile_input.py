"""Malicious input, one attack per test: it is refused, or treated as plain data."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import os
import subprocess
import sys
import tracemalloc
import zlib

import pytest
import zstandard

import holdfast.importers
from holdfast import (
    Document,
    IntegrityError,
    InvalidDocumentError,
    Session,
    SnapshotManager,
    StateStoreError,
    UnsupportedValueError,
    open_state_store,
)
from holdfast.log import keyframe
from holdfast.snapshots import SnapshotArchive
from holdfast.stores.memory import MemoryStateStore
from holdfast.stores.urls import StoreURL
from holdfast.transfer.copy import copy_sessions
from support.async_tests import async_test
from support.observed_store import (
    HERE,
    keyframe_key,
    list_damage,
    make_session_store,
    record_key,
    save_many,
    segment_key,
    try_call,
)
from support.sample_documents import make_full_document, update_digest

pytestmark = pytest.mark.usefixtures("one_incarnation")

MANAGER = SnapshotManager(state_store=MemoryStateStore())
SECRET = "Xq7tBxZ9hunter"


@pytest.fixture
def frequent_keyframes(monkeypatch):
    """Write small keyframes often."""
    monkeypatch.setattr("holdfast.log.timeline.KEYFRAME_SLACK", 0)
    monkeypatch.setattr("holdfast.log.timeline.MAX_SEGMENTS", 4)


def make_document(**fields):
    """Return a small document as JSON, with some fields replaced."""
    tree = {
        "schema_version": 1,
        "agent_id": "a",
        "session_id": "s",
        "state": {"status": "running", "messages": [], "values": {"plan": 1}},
    }
    return json.dumps({**tree, **fields})


def read(tmp_path, text, name="a.json", **options):
    """Read a file with this content."""
    (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    return MANAGER.from_file(tmp_path / name, **options)


def measure_peak_memory(function):
    """Return the peak memory of a function in bytes."""
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def make_gzip_bomb(start, count):
    """Return gzip data that expands to many megabytes of spaces. Its end is missing."""
    work = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    head = work.compress(start) + work.flush(zlib.Z_FULL_FLUSH)
    # After a full flush the same block can be repeated.
    return head + (work.compress(b" " * (1 << 20)) + work.flush(zlib.Z_FULL_FLUSH)) * count


def test_a_gzip_bomb_is_not_decompressed_to_its_end(tmp_path):
    bomb = make_gzip_bomb(b'{"schema_version": 1, "x": "', 150)

    def refuse():
        with pytest.raises(InvalidDocumentError, match="the compression ratio exceeds 200:1"):
            read(tmp_path, bomb, "bomb.json.gz")

    assert measure_peak_memory(refuse) < 150 << 20


def test_a_zstd_bomb_is_not_decompressed_to_its_end(tmp_path):
    work = zstandard.ZstdCompressor().compressobj()
    parts = [work.compress(b'{"x": "'), *(work.compress(b" " * (1 << 20)) for _ in range(150))]
    with pytest.raises(InvalidDocumentError, match="the compression ratio exceeds 200:1"):
        read(tmp_path, b"".join([*parts, work.flush()]), "bomb.json.zst")


def test_a_zstd_file_with_a_huge_window_is_refused(tmp_path):
    # The header asks for a window of 2 GiB; one empty block follows.
    data = b"\x28\xb5\x2f\xfd" + b"\x00" + bytes([(31 - 10) << 3]) + b"\x01\x00\x00"
    with pytest.raises(InvalidDocumentError, match="damaged or truncated"):
        read(tmp_path, data, "window.json.zst")


def test_a_keyframe_bomb_is_damage_and_not_decompressed_to_its_end():
    bomb = make_gzip_bomb(b'{"format": 1, "seq": 5, "hash": "', 150)

    def refuse():
        with pytest.raises(IntegrityError, match="decompress to too much data"):
            keyframe.decode_keyframe("keyframes/5", bomb)

    assert measure_peak_memory(refuse) < 150 << 20


def test_a_keyframe_of_repetitive_data_can_be_read(monkeypatch):
    monkeypatch.setattr(keyframe, "ALWAYS_ALLOWED_SIZE", 1000)
    changes = {"set": [("state", "zeros", "0" * 1_000_000)], "delete": []}
    data, _ = keyframe.encode_keyframe(5, "ab", (), changes)
    assert keyframe.decode_keyframe("k", data).changes == changes
    assert len(data) > 1_000_000


@async_test
async def test_a_bomb_in_a_backup_is_not_restored_and_does_not_stop_other_sessions(
    tmp_path, monkeypatch, frequent_keyframes
):
    monkeypatch.setattr(keyframe, "ALWAYS_ALLOWED_SIZE", 1 << 20)
    async with open_state_store(f"file://{tmp_path}/backup") as backup:
        await save_many(backup, 6)
        async with Session.open(backup, agent_id="other", session_id="ses_2") as other:
            other.set("a", 1)
        await backup.put(keyframe_key(5), make_gzip_bomb(b'{"format": 1, "seq": 5, "hash": "', 20))
        target = MemoryStateStore()
        copied = await copy_sessions(backup, target)
        verification = await SnapshotArchive(target).verify(location=HERE)
        assert copied.failed or not verification.ok
        again = await Session.open(target, agent_id="other", session_id="ses_2", must_exist=True)
        assert again.get("a") == 1


@async_test
async def test_deeply_nested_stored_entries_are_damage(frequent_keyframes):
    deep = b"[" * 100_000 + b"]" * 100_000
    digest = hashlib.sha256(deep).hexdigest().encode()
    segment = b'{"format":1,"first":3,"last":3,"prev":"","hash":"","digest":"%b","events":%b}'
    sealed = b'{"format":1,"digest":"%b","content":%b}'
    changes = b'{"format":1,"seq":5,"hash":"","chain":[],"digest":"%b","changes":%b}'
    store, snapshots = await make_session_store()
    forged = {
        segment_key(3): segment % (digest, deep),
        keyframe_key(5): gzip.compress(changes % (digest, deep)),
        record_key(snapshots, 2): sealed % (digest, deep),
        HERE.manifest_key: sealed % (digest, deep),
    }
    for key, data in forged.items():
        await store.put(key, data)
    assert set(forged) <= await list_damage(store)


@pytest.mark.parametrize(
    "number", ["1e999", "-1e999", "1" * 5000, "0." + "1" * 5000, "1e-999", "-" + "9" * 30]
)
@pytest.mark.parametrize("where", ['"plan": 1', '"schema_version": 1'])
def test_an_extreme_number_is_refused_or_survives_a_round_trip(tmp_path, number, where):
    text = make_document().replace(where, where[:-1] + number)
    first, refusal = try_call(read, tmp_path, text)
    if refusal is not None:
        assert len(refusal) < 1000
    else:
        MANAGER.to_file(first, tmp_path / "b.json")
        assert MANAGER.from_file(tmp_path / "b.json").digest == first.digest


def test_an_integer_of_a_million_digits_is_refused(tmp_path):
    for value in ({"$int": "9" * 1_000_000}, {"$decimal": "9" * 1_000_000 + "x"}):
        with pytest.raises(InvalidDocumentError) as caught:
            read(tmp_path, make_document(state={"values": {"n": value}}))
        assert len(str(caught.value)) < 1000


def test_unknown_fields_are_nested_no_deeper_than_values(tmp_path):
    deep = json.loads("[" * 600 + "]" * 600)
    event = {"seq": 1, "id": "1", "type": "x", "at": "2026-01-01T00:00:00Z", "changes": {}}
    for fields in ({"x": deep}, {"state": {"x": deep}}, {"events": [{**event, "x": deep}]}):
        with pytest.raises(InvalidDocumentError, match="unknown field .* nested deeper than 128"):
            read(tmp_path, make_document(**fields))
    assert read(tmp_path, make_document(x=[[{"y": []}]])).extra == {"x": [[{"y": []}]]}


def test_a_long_name_is_shortened_in_errors(tmp_path):
    for state in (
        {"values": {"x" * 100_000: {"$unknown": 1}}},
        {"values": {"a": {"$" + "x" * 100_000: 1}}},
        {"namespaces": {"n" * 100_000: {"k" * 100_000: {"$date": "x" * 100_000}}}},
        {"messages": [{"$datetime": "9" * 100_000}]},
    ):
        with pytest.raises(InvalidDocumentError) as caught:
            read(tmp_path, make_document(state=state))
        assert len(str(caught.value)) < 1000


def test_the_digest_covers_the_value_that_a_duplicate_name_decodes_to(tmp_path):
    whole = json.dumps(make_full_document().to_dict())
    first = whole.index('"values": ')
    twice = whole[:first] + '"values": {"plan": "evil"}, ' + whole[first:]
    assert read(tmp_path, twice).digest == full_snapshot_digest(whole)
    last = whole.replace('"namespaces": ', '"values": {"plan": "evil"}, "namespaces": ', 1)
    assert last != whole
    with pytest.raises(InvalidDocumentError, match="does not match its digest"):
        read(tmp_path, last)


def full_snapshot_digest(text):
    return Document.from_dict(json.loads(text)).digest


@pytest.mark.parametrize("text", ['"\\ud800"', '"\\udfff\\ud800"', '{"\\ud800": 1}'])
def test_a_lone_surrogate_in_a_file_is_refused(tmp_path, text):
    with pytest.raises(InvalidDocumentError):
        read(tmp_path, make_document().replace("1}", text + "}", 1))
    (tmp_path / "chat.json").write_text(f'[{{"role": "user", "content": {text}}}]')
    with pytest.raises(InvalidDocumentError, match="surrogate"):
        holdfast.importers.read(str(tmp_path / "chat.json"))


@async_test
async def test_a_nul_is_allowed_in_values_names_and_ids(tmp_path):
    text = make_document(
        agent_id="a\0b", session_id="\0", state={"values": {"\0": "\0", "x": ["\0"]}}
    )
    document = read(tmp_path, text)
    async with open_state_store(f"file://{tmp_path}/store") as store:
        await SnapshotManager(state_store=store).import_session(document)
        session = await Session.open(store, agent_id="a\0b", session_id="\0", must_exist=True)
        assert session.get("\0") == "\0"


HOSTILE_TAGS = [
    {"$type": ["os.system", "touch pwned"]},
    {"$type": ["builtins.eval", "open('pwned', 'w')"]},
    {"$map": [[{"$type": ["os.system", "touch pwned"]}, 1]]},
    {"$$type": ["os.system", "touch pwned"]},
    {"$tuple": [{"$set": [{"$type": ["subprocess.run", ["touch", "pwned"]]}]}]},
    {"__class__": "os.system", "args": ["touch pwned"]},
    {"py/object": "os.system"},
    {"lc": 1, "type": "constructor", "id": ["os", "system"], "kwargs": {"command": "touch pwned"}},
]


def test_names_in_a_document_are_not_imported_or_run(tmp_path):
    files = []
    for number, tag in enumerate(HOSTILE_TAGS):
        path = tmp_path / f"{number}.json"
        path.write_text(make_document(state={"values": {"x": tag}, "messages": [tag]}))
        files.append(str(path))
    program = """
import sys
from holdfast import InvalidDocumentError, SnapshotManager, UnsupportedValueError
from holdfast.stores.memory import MemoryStateStore
manager = SnapshotManager(state_store=MemoryStateStore())
seen = []
sys.addaudithook(lambda event, arguments: seen.append((event, arguments)))
for path in sys.argv[1:]:
    try:
        manager.from_file(path)
    except (InvalidDocumentError, UnsupportedValueError):
        pass
names = ("os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "pickle.find_class")
assert not [each for each in seen if each[0] in names], seen
opened = [str(each[1][0]) for each in seen if each[0] == "open"]
assert opened == sys.argv[1:], opened
"""
    subprocess.run([sys.executable, "-c", program, *files], check=True, cwd=tmp_path)
    assert not (tmp_path / "pwned").exists()


def test_a_dict_that_looks_like_a_tag_is_refused_or_stays_a_dict(tmp_path):
    for tag in HOSTILE_TAGS[:3] + HOSTILE_TAGS[4:5]:
        with pytest.raises((InvalidDocumentError, UnsupportedValueError)):
            read(tmp_path, make_document(state={"values": {"x": tag}}))
    for tag in HOSTILE_TAGS[5:]:
        found = read(tmp_path, make_document(state={"values": {"x": tag}}))
        assert found.to_store().get("state", "x") == tag


def make_forged_document():
    """Return a document with a changed state and a matching digest."""
    tree = make_full_document().to_dict()
    tree["state"]["values"]["plan"] = "wire the money"
    return update_digest(tree)


@async_test
async def test_a_forged_document_is_refused_and_its_dry_run_shows_the_change():
    with pytest.raises(InvalidDocumentError, match="events do not lead to its state"):
        Document.from_dict(make_forged_document())
    document = Document.from_dict(make_forged_document(), allow_modified=True)
    store = MemoryStateStore()
    await SnapshotManager(state_store=store).import_session(document)
    session = await Session.open(store, agent_id=HERE.scope_id, session_id=HERE.session_id)
    *_, last = [event async for event in session.events]
    assert last.type == "session.imported"
    assert ("state", "plan", "wire the money") in last.changes["set"]
    assert (await session.verify()).ok


def test_a_forged_event_is_detected_unless_all_later_hashes_are_forged():
    tree = make_full_document().to_dict()
    tree["events"][1]["data"] = {"said": "something else"}
    with pytest.raises(InvalidDocumentError, match="breaks the hash chain"):
        Document.from_dict(tree)
    del tree["events"][1]["hash"]
    with pytest.raises(InvalidDocumentError, match="breaks the hash chain"):
        Document.from_dict(tree)  # the next event still has the previous hash
    forged = Document.from_dict(tree, allow_modified=True)
    again = Document.from_dict(forged.to_dict())
    assert again.events[1].data == {"said": "something else"}
    # Knowing the hash of the last real event reveals it.
    assert again.events[-1].hash != make_full_document().events[-1].hash


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ada:{SECRET}@onepostgresql://ada:{SECRET}@one:1/agents",
        f"redis://:{SECRET}@cache:6379/0?retryredis://:{SECRET}@cache:6379/0?retry=3",
        f"postgresql://a?da:{SECRET}@db:5432/agents?sslmode=require",
        f"redis://:{SECRET}\udce9@cache/0",
        f"nats://ada:{SECRET}@h/b?x=" + "y" * 5000,
        f"{SECRET}" * 400 + "://x",
    ],
    ids=["two run together", "in an option", "a question mark", "a byte", "long", "scheme"],
)
def test_an_invalid_url_is_one_short_error_without_its_password(url):
    with pytest.raises(StateStoreError) as caught:
        open_state_store(url)
    assert SECRET not in str(caught.value)
    assert len(str(caught.value)) < 500


def test_the_path_of_a_local_store_may_be_undecodable_bytes(tmp_path):
    name = os.fsdecode(b"caf\xe9")

    async def write():
        async with open_state_store(f"file://{tmp_path}/{name}") as store:
            await store.put("a", b"1")

    asyncio.run(write())
    assert [os.fsencode(path.name) for path in tmp_path.iterdir()] == [b"caf\xe9"]
    with pytest.raises(StateStoreError, match="surrogate"):
        StoreURL(f"s3://bucket/{name}")
