"""This version reads everything that earlier versions wrote."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from compat.write import KINDS, summarize_event, summarize_snapshot
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
    """A copy of what one version wrote."""

    def __init__(self, folder, copy):
        self.home = copy / "session"
        shutil.copytree(folder / "session", self.home)
        self.document = json.loads((folder / "document.json").read_text(encoding="utf-8"))
        self.expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
        self.location = SnapshotLocation(
            self.expected["session_id"], scope_id=self.expected["agent_id"]
        )

    def store(self, query=""):
        return open_state_store(f"file://{self.home}{query}")

    def open_session(self, store):
        return Session.open(
            store,
            agent_id=self.expected["agent_id"],
            session_id=self.expected["session_id"],
            must_exist=True,
        )


@pytest.fixture(params=VERSIONS, ids=lambda path: path.name)
def written(request, tmp_path):
    return Written(request.param, tmp_path)


def test_the_first_version_is_included():
    assert "v1" in [path.name for path in VERSIONS]


def test_it_has_segments_tombstones_and_keyframes_based_on_others(written):
    segments = [json.loads(path.read_bytes()) for path in written.home.rglob("log.~/**/*.json")]
    assert {"events" in each for each in segments} == {True, False}
    frames = [
        json.loads(gzip.decompress(path.read_bytes()))
        for path in written.home.rglob("keyframes.~/**/*.json.gz")
    ]
    assert {bool(each["chain"]) for each in frames} == {True, False}


@async_test
async def test_a_session_has_the_state_that_was_written(written):
    async with written.store() as store:
        session = await written.open_session(store)
        assert session.status == written.expected["status"]
        assert to_json(session.messages) == written.expected["messages"]
        values = {key: to_json(value) for key, value in session.state.items()}
        assert values == written.expected["values"]
        assert session.snapshot().digest == written.expected["digest"]
        assert session.unfinished == []


@async_test
async def test_values_of_every_type_are_equal_and_of_the_same_type(written):
    async with written.store() as store:
        state = (await written.open_session(store)).state
        for name, values in state["kinds"].items():
            assert is_identical(state[name], values), name
            for kind, value in values.items():
                assert is_identical(value, KINDS[name][kind]), f"{name}: {kind}"


@async_test
async def test_a_session_can_be_read_from_a_read_only_store(written):
    async with written.store("?read_only=true") as store:
        session = await written.open_session(store)
        assert session.snapshot().digest == written.expected["digest"]


@async_test
async def test_every_event_has_the_same_data_and_hash(written):
    async with written.store() as store:
        session = await written.open_session(store)
        found = [summarize_event(event) async for event in session.events]
        assert found == written.expected["events"]


@async_test
async def test_every_kept_snapshot_loads(written):
    async with written.store() as store:
        archive = SnapshotArchive(store)
        for expected in written.expected["snapshots"]:
            id_ = expected["snapshot_id"]
            assert await summarize_snapshot(archive, written.location, id_) == expected
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
        session = await written.open_session(store)
        result = await session.once("pay:7", lambda: pytest.fail("it was done"))
        assert result == {"receipt": (4711, "EUR")}


@async_test
async def test_a_session_goes_on(written):
    async with written.store() as store:
        session = await written.open_session(store)
        oldest = written.expected["snapshots"][0]
        await session.restore(oldest["snapshot_id"])
        assert session.message_count == oldest["messages"]
        await session.restore(written.expected["snapshots"][-1]["snapshot_id"])
        session.add_message("user", "many years later")
        await session.save()
        archive = session.archive
        await archive.prune(location=written.location, policy=RetentionPolicy(last=1))
        assert (await session.verify()).damage == []

        again = await written.open_session(store)
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
