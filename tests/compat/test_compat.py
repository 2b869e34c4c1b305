"""What earlier versions have written is read by this one, to the last value."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from compat.write import KINDS
from holdfast import (
    Catalog,
    Document,
    RetentionPolicy,
    Session,
    SnapshotArchive,
    SnapshotLocation,
    open_state_store,
    replay,
)
from holdfast.testing.snapshot_checks import is_identical
from holdfast.values import to_json
from support.async_tests import async_test

BLOCK = re.compile(r"^```json\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VERSIONS = sorted(path for path in Path(__file__).parent.glob("v*") if path.is_dir())


class Written:
    """What one version wrote, copied to where it may be changed."""

    def __init__(self, folder, copy):
        self.home = copy / "session"
        shutil.copytree(folder / "session", self.home)
        self.document = json.loads((folder / "document.json").read_text(encoding="utf-8"))
        self.expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        self.location = SnapshotLocation(
            self.expected["session_id"], scope_id=self.expected["agent_id"]
        )

    def store(self, **options):
        asked = "&".join(f"{name}={value}" for name, value in options.items())
        return open_state_store(f"file://{self.home}?{asked}" if asked else f"file://{self.home}")

    def opening(self, store):
        return Session.open(
            store,
            agent_id=self.expected["agent_id"],
            session_id=self.expected["session_id"],
            must_exist=True,
        )


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def written(request, tmp_path):
    return Written(request.param, tmp_path)


def test_there_is_something_to_read():
    assert "v1" in [path.name for path in VERSIONS]


def test_it_has_segments_stubs_and_keyframes_that_build_on_others(written):
    segments = [json.loads(path.read_bytes()) for path in written.home.rglob("log.~/**/*.json")]
    assert {"events" in each for each in segments} == {True, False}
    frames = [
        json.loads(gzip.decompress(path.read_bytes()))
        for path in written.home.rglob("keyframes.~/**/*.json.gz")
    ]
    assert {bool(each["chain"]) for each in frames} == {True, False}


@async_test
async def test_a_session_is_as_it_was_left(written):
    async with written.store() as store:
        session = await written.opening(store)
        assert session.status == written.expected["status"]
        assert to_json(session.messages) == written.expected["messages"]
        values = {key: to_json(value) for key, value in session.state.items()}
        assert values == written.expected["values"]
        assert session.snapshot().digest == written.expected["digest"]
        assert session.unfinished == []


@async_test
async def test_values_of_every_type_come_back_equal_and_of_the_same_type(written):
    async with written.store() as store:
        state = (await written.opening(store)).state
        for name, values in state["kinds"].items():
            assert is_identical(state[name], values), name
            for kind, value in values.items():
                assert is_identical(value, KINDS[name][kind]), f"{name}: {kind}"


@async_test
async def test_a_session_can_be_read_where_nothing_can_be_written(written):
    async with written.store(read_only="true") as store:
        session = await written.opening(store)
        assert session.snapshot().digest == written.expected["digest"]


@async_test
async def test_every_event_is_there_and_its_hash_is_the_same(written):
    async with written.store() as store:
        session = await written.opening(store)
        found = [
            {
                "seq": event.seq,
                "id": event.id,
                "type": event.type,
                "at": to_json(event.at),
                "data": to_json(event.data),
                "hash": event.hash,
            }
            async for event in session.events
        ]
        assert found == written.expected["events"]


@async_test
async def test_every_kept_snapshot_loads(written):
    async with written.store() as store:
        archive = SnapshotArchive(store)
        for expected in written.expected["snapshots"]:
            found = await archive.load_snapshot(
                location=written.location, snapshot_id=expected["snapshot_id"]
            )
            assert expected == {
                "snapshot_id": found.snapshot_id,
                "parent_id": found.parent_id,
                "created_at": to_json(found.created_at),
                "tags": found.tags,
                "seq": found.event_log_count,
                "status": found.state.status,
                "messages": len(found.state.messages),
                "unfinished": found.unfinished,
                "digest": found.digest,
            }
        ids = await archive.list_snapshot_ids(location=written.location)
        assert ids == [each["snapshot_id"] for each in written.expected["snapshots"]]
        latest = await archive.load_snapshot(location=written.location)
        assert latest.snapshot_id == written.expected["latest"]


@async_test
async def test_the_manifest_and_the_index_are_read(written):
    async with written.store() as store:
        manifest = await SnapshotArchive(store).load_manifest(location=written.location)
        assert to_json(manifest.started_at) == written.expected["started_at"]
        assert manifest.log_start.seq == written.expected["floor"] > 0
        assert manifest.extra == written.expected["extra"]
        entry = await Catalog(store).latest_session(written.expected["agent_id"])
        assert entry.location == written.location
        assert await Catalog(store).locations(entry.session_id) == [written.location]


@async_test
async def test_all_that_is_stored_checks_out(written):
    async with written.store() as store:
        found = await SnapshotArchive(store).verify(location=written.location)
        assert found.damage == []
        for name, count in written.expected["verified"].items():
            assert getattr(found, name) == count, name


@async_test
async def test_what_was_done_once_is_not_done_again(written):
    async with written.store() as store:
        session = await written.opening(store)
        result = await session.once("pay:7", lambda: pytest.fail("it was done"))
        assert result == {"receipt": (4711, "EUR")}


@async_test
async def test_a_session_goes_on(written):
    async with written.store() as store:
        session = await written.opening(store)
        oldest = written.expected["snapshots"][0]
        await session.restore(oldest["snapshot_id"])
        assert session.message_count == oldest["messages"]
        await session.restore(written.expected["snapshots"][-1]["snapshot_id"])
        session.add_message("user", "many years later")
        await session.save()
        archive = session.archive
        await archive.prune(location=written.location, policy=RetentionPolicy(last=1))
        assert (await session.verify()).damage == []

        again = await written.opening(store)
        messages = [*written.expected["messages"], again.messages[-1]]
        assert to_json(again.messages) == messages


def test_a_document_is_read_and_written_as_it_was(written):
    found = Document.from_dict(written.document)
    expected = written.expected["document"]
    assert found.snapshot_id == expected["snapshot_id"]
    assert found.tags == expected["tags"]
    assert found.digest == written.expected["digest"]
    assert to_json(found.state.messages) == written.expected["messages"]
    assert len(found.events) == expected["events"]
    assert [step.after.digest for step in replay(found)][-1] == written.expected["digest"]
    again = found.to_dict()
    assert Document.from_dict(again).to_dict() == again
    if written.document["schema_version"] == again["schema_version"]:
        assert again == written.document


def test_a_document_has_the_form_that_the_specification_gives(written):
    jsonschema = pytest.importorskip("jsonschema")
    page = Path(__file__).parents[2] / "docs" / "spec" / "document.md"
    schemas = [json.loads(block) for block in BLOCK.findall(page.read_text(encoding="utf-8"))]
    jsonschema.Draft202012Validator(schemas[-1]).validate(written.document)
