"""Shorter ways to the same bytes: what is done quickly is what the longer way does."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import (
    ConflictError,
    Document,
    InvalidDocumentError,
    SnapshotManager,
    Store,
    UnsupportedValueError,
)
from holdfast.documents.encode import CHUNK_BYTES, encode_chunks
from holdfast.log.changes import encode_canonical_changes
from holdfast.log.event import (
    draft_event,
    draft_from_json,
    event_to_compact_json,
    format_time,
    parse_time,
)
from holdfast.snapshots.incarnation import Incarnation
from holdfast.snapshots.manifest import SnapshotManifest
from holdfast.stores.memory import MemoryStateStore
from holdfast.transfer import import_document
from holdfast.values.binary_encoding import canonicalize, encode
from holdfast.values.json_encoding import encode_canonical
from support.async_tests import async_test
from support.conversations import contents, opened
from support.faults import Fault, FaultyStateStore
from support.observed_store import Watched
from support.sample_values import deep, text, values

pytestmark = pytest.mark.usefixtures("one_incarnation")


async def large(state_store=None, *, messages=60):
    """A session that is worth a keyframe when it is imported."""
    session = await opened(state_store or MemoryStateStore())
    for number in range(messages):
        session.add_message("user", f"{number} " + "long " * 400)
        await session.commit()
    return session


def whole(found):
    """The text of a document."""
    return b"".join(found)


# --------------------------------------------------------------------------------- single values


@given(values)
def test_the_canonical_bytes_of_a_value_are_those_of_its_packed_form(value):
    assert encode_canonical(value) == canonicalize(encode(value))


@pytest.mark.parametrize("value", [2**53, -(2**70), float("inf"), {"$x": 1}, {1: 2}, (1,), -0.0])
def test_what_json_cannot_say_has_the_same_canonical_bytes(value):
    for each in (value, [value], {"b": value, "a": [value]}):
        assert encode_canonical(each) == canonicalize(encode(each))


def test_a_value_without_canonical_bytes_is_refused_with_the_way_to_it():
    with pytest.raises(UnsupportedValueError, match="lone surrogate") as refused:
        encode_canonical({"a": ["fine", "\ud800"]})
    assert refused.value.path == "$.a[1]"
    with pytest.raises(UnsupportedValueError, match="nested more than"):
        encode_canonical(deep(100_000))


@given(st.lists(st.tuples(text, text, values), max_size=3), st.lists(st.tuples(text, text)))
def test_the_canonical_bytes_of_changes_are_those_of_a_dict_of_them(sets, deletes):
    as_a_dict = {"set": [list(item) for item in sets], "delete": [list(pair) for pair in deletes]}
    assert encode_canonical_changes({"set": sets, "delete": deletes}) == canonicalize(
        encode(as_a_dict)
    )


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_a_time_is_written_to_the_microsecond_always(moment):
    for each in (moment, moment.replace(microsecond=0), moment.replace(microsecond=1)):
        written = format_time(each)
        assert written == each.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        assert parse_time(written) == each
        assert parse_time(written).tzinfo is dt.UTC


def test_fields_of_an_event_that_nobody_knows_are_kept_and_others_share_nothing():
    tree = event_to_compact_json(draft_event("a", set_=[("n", "k", 1)]))
    one, two = draft_from_json(tree), draft_from_json(tree)
    assert one.extra == {}
    assert one.extra is not two.extra
    assert draft_from_json({**tree, "later": [1]}).extra == {"later": [1]}


# ----------------------------------------------------------------------------------- the document


@async_test
async def test_a_document_that_is_never_there_as_a_whole_has_the_same_text():
    session = await large()
    session.set("plan", {1: (2, 3)})
    session.status = "completed"
    await session.commit()
    for found in (
        await session.export(tags={"a": "b"}),
        replace(await session.export(), extra={"x": [], "y": {}}, state_extra={"z": [1, {}]}),
    ):
        pieces = list(found.chunks())
        assert whole(pieces) == whole(encode_chunks(found.to_dict()))
        assert min(map(len, pieces[:-1])) >= CHUNK_BYTES


@pytest.mark.parametrize("space", ["messages", "state", "session", "own", "once"])
def test_every_namespace_of_somebodys_own_has_the_same_text_and_comes_back(space):
    store = Store()
    store.set(space, "key", {"a": dt.date(2026, 1, 2)})
    for snapshot in (Store().snapshot(), store.snapshot()):
        found = Document(snapshot=snapshot, agent_id="bot", session_id="ses")
        assert whole(found.chunks()) == whole(encode_chunks(found.to_dict()))
        assert Document.from_dict(found.to_dict()).digest == found.digest


def test_the_text_of_a_document_has_a_line_for_each_item():
    tree = {"a": 1, "state": {"messages": [], "values": {"x": [1]}, "more": {}}, "events": [{}]}
    expected = (
        b'{\n "a": 1,\n "state": {\n  "messages": [],\n  "values": {\n  "x": [1]},\n'
        b'  "more": {}},\n "events": [\n  {}]\n}\n'
    )
    assert whole(encode_chunks(tree)) == expected
    tree["events"] = iter(tree["events"])
    tree["state"]["messages"] = iter([])
    assert whole(encode_chunks(tree)) == expected


# --------------------------------------------------------------------------------- an export


@async_test
async def test_an_export_reads_the_log_and_no_keyframe():
    session = await large(messages=300)
    store = session.state_store
    keys = [key async for key in store.list(f"{session.location.prefix}keyframes/")]
    assert keys
    expected = await session.export()
    for key in keys:
        await store.put(key, b"damaged")
    found = await SnapshotManager(store).export_session("bot")
    assert (found.digest, found.events) == (expected.digest, expected.events)
    assert found.position == session.log.head


# --------------------------------------------------------------------------------- an import


@pytest.mark.parametrize(
    "change",
    [
        {"seq": 9},
        {"prev": "00"},
        {"hash": "00"},
        {"data": "other"},
        {"at": dt.datetime(2026, 1, 1, tzinfo=dt.UTC)},
    ],
    ids=str,
)
@async_test
async def test_events_that_are_no_chain_are_not_imported(change):
    found = await (await large(messages=3)).export()
    for at in range(len(found.events)):
        events = list(found.events)
        events[at] = replace(events[at], **change)
        store = Watched()
        with pytest.raises(InvalidDocumentError, match=r"are no chain|begin at|from 1"):
            await SnapshotManager(store).import_session(replace(found, events=tuple(events)))
        assert not store.keys_with("")


@pytest.mark.parametrize("kind", ["error", "unknown"])
@async_test
async def test_a_keyframe_that_cannot_be_written_does_not_fail_an_import(kind, caplog):
    found = await (await large()).export()
    store = FaultyStateStore(MemoryStateStore())
    store.plan(Fault(2, kind))
    with caplog.at_level(logging.WARNING):
        result = await SnapshotManager(store).import_session(found)
    assert result.created
    assert "was put off to the next commit" in caplog.text
    assert contents(await opened(store)) == [each["content"] for each in found.state.messages]


@async_test
async def test_a_keyframe_that_is_there_already_stays():
    found = await (await large()).export()
    store = MemoryStateStore()
    await SnapshotManager(store).import_session(found)
    (key,) = [key async for key in store.list("") if "/keyframes/" in key]
    before = await store.get(key)
    events = import_document.prepare_events(found)
    new = import_document.NewSessionWriter(
        await Incarnation.read(store, found.location), found, events
    )
    await new.keep(replace(new.keyframe(), key=key))
    assert await store.get(key) == before


@async_test
async def test_an_import_that_loses_the_race_leaves_no_keyframe():
    found = await (await large()).export()
    store = MemoryStateStore()
    events = import_document.prepare_events(found)
    new = import_document.NewSessionWriter(
        await Incarnation.read(store, found.location), found, events
    )
    key = found.location.manifest_key
    await store.put(key, SnapshotManifest().encode())
    with pytest.raises(ConflictError, match="was created concurrently"):
        await new.write()
    assert [key async for key in store.list("")] == [key]


def test_a_keyframe_is_packed_while_the_loop_goes_on():
    found = asyncio.run(exported())
    threads = set()

    class Told(import_document.NewSessionWriter):
        def keyframe(self):
            threads.add(threading.current_thread())
            return super().keyframe()

    async def work():
        store = MemoryStateStore()
        incarnation = await Incarnation.read(store, found.location)
        await Told(incarnation, found, import_document.prepare_events(found)).write()
        return [key async for key in store.list("") if "/keyframes/" in key]

    assert len(asyncio.run(work())) == 1
    assert threading.main_thread() not in threads
    assert len(threads) == 1


async def exported():
    """A document of a large session."""
    return await (await large()).export()
