"""The artifact service: versions, shared files, large content, damage."""

from __future__ import annotations

import asyncio
import math
import shutil
from pathlib import Path

import pytest
from google.adk.errors.input_validation_error import InputValidationError
from google.genai import types

from adapters.adk.scripted_agent import IDS, S1
from holdfast.adapters.adk import HoldfastArtifactService
from holdfast.blobs.keys import CHUNK_SIZE
from holdfast.errors import IntegrityError, UnsupportedValueError
from holdfast.stores.memory import MemoryStateStore
from support.async_tests import async_test
from support.images import IMAGE, SAVES, TEXT, check_stored_once
from support.observed_store import ObservedStore

PNG = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"\x89PNG\xff"))
CHART = {**S1, "filename": "chart/é.png"}


@async_test
async def test_versions_survive_their_process(new_artifacts):
    large = types.Part(
        inline_data=types.Blob(mime_type="video/mp4", data=b"\x00mp4" * (CHUNK_SIZE // 3))
    )
    async with new_artifacts() as service:
        assert await service.save_artifact(**CHART, artifact=PNG) == 0
        assert await service.save_artifact(**CHART, artifact=large, custom_metadata={"a": [1]}) == 1
        await service.save_artifact(**IDS, filename="user:me.txt", artifact=types.Part(text="I é"))
    async with new_artifacts() as service:
        assert await service.load_artifact(**CHART) == large
        assert await service.load_artifact(**CHART, version=0) == PNG
        assert await service.load_artifact(**CHART, version=2) is None
        assert await service.list_versions(**CHART) == [0, 1]
        assert await service.list_artifact_keys(**S1) == ["chart/é.png", "user:me.txt"]
        assert await service.list_artifact_keys(**IDS) == ["user:me.txt"]
        shared = await service.load_artifact(**IDS, session_id="s9", filename="user:me.txt")
        assert shared == types.Part(text="I é")
        described = await service.list_artifact_versions(**CHART)
        assert [each.mime_type for each in described] == ["image/png", "video/mp4"]
        assert described[1].custom_metadata == {"a": [1]}
        assert described[1] == await service.get_artifact_version(**CHART)
        assert described[1].canonical_uri.startswith("holdfast://apps/shop/users/ana/sessions/s1/")
        await service.delete_artifact(**CHART)
        assert await service.load_artifact(**CHART) is None
        assert await service.list_artifact_keys(**S1) == ["user:me.txt"]
        keys = [key async for key in service.state_store.list()]
        assert not [key for key in keys if "chart" in key]


@async_test
async def test_concurrent_writers_get_different_versions():
    async with HoldfastArtifactService(MemoryStateStore()) as service:
        parts = [types.Part(text=str(number)) for number in range(8)]
        saved = await asyncio.gather(
            *(service.save_artifact(**CHART, artifact=part) for part in parts)
        )
        assert sorted(saved) == list(range(8))
        for number, part in zip(saved, parts, strict=True):
            assert await service.load_artifact(**CHART, version=number) == part


@async_test
async def test_references_are_followed_within_a_user():
    async with HoldfastArtifactService(MemoryStateStore()) as service:
        await service.save_artifact(**CHART, artifact=PNG)
        uri = "artifact://apps/shop/users/{}/sessions/{}/artifacts/{}/versions/0"

        def refer(*names):
            return types.Part(file_data=types.FileData(file_uri=uri.format(*names)))

        alias = {**S1, "filename": "alias"}
        await service.save_artifact(**alias, artifact=refer("ana", "s1", "chart/é.png"))
        assert await service.load_artifact(**alias) == PNG
        for names in (("bob", "s1", "x"), ("ana", "s2", "x")):
            with pytest.raises(InputValidationError, match="scope"):
                await service.save_artifact(**alias, artifact=refer(*names))
        loop = {**S1, "filename": "loop"}
        await service.save_artifact(**loop, artifact=refer("ana", "s1", "loop"))
        with pytest.raises(InputValidationError, match="depth"):
            await service.load_artifact(**loop)
        other = types.Part(file_data=types.FileData(file_uri="gs://b/f", mime_type="text/csv"))
        await service.save_artifact(**alias, artifact=other)
        assert await service.load_artifact(**alias) == other
        assert (await service.get_artifact_version(**alias)).mime_type == "text/csv"


@async_test
async def test_bad_input_is_refused_and_nothing_is_written():
    async with HoldfastArtifactService(MemoryStateStore()) as service:
        with pytest.raises(InputValidationError, match="pass session_id"):
            await service.save_artifact(**IDS, filename="a", artifact=PNG)
        with pytest.raises(InputValidationError, match="no content"):
            await service.save_artifact(**CHART, artifact=types.Part())
        with pytest.raises(InputValidationError, match="traversal"):
            await service.save_artifact(**{**CHART, "user_id": ".."}, artifact=PNG)
        with pytest.raises(UnsupportedValueError, match="custom_metadata"):
            await service.save_artifact(**CHART, artifact=PNG, custom_metadata={"a": object()})
        assert [key async for key in service.state_store.list()] == []
        assert await service.get_artifact_version(**CHART) is None
        assert await service.list_artifact_versions(**CHART) == []
        assert await service.load_artifact(**CHART, version=-1) is None


@async_test
async def test_odd_parts_and_metadata_come_back_equal():
    async with HoldfastArtifactService(MemoryStateStore()) as service:
        for blob in (
            types.Blob(mime_type="\ud800", data=b"x", display_name="\udfff"),
            types.Blob(mime_type="a/b", data=b""),
            types.Blob(mime_type="a/b"),
        ):
            part = types.Part(inline_data=blob)
            metadata = {"a": "\ud800", "b": math.inf}
            await service.save_artifact(**CHART, artifact=part, custom_metadata=metadata)
            assert await service.load_artifact(**CHART) == part
            assert (await service.get_artifact_version(**CHART)).custom_metadata == metadata
        with pytest.raises(InputValidationError, match="lone surrogate"):
            await service.save_artifact(**S1, filename="\ud800", artifact=PNG)


@async_test
async def test_damage_is_found():
    store = MemoryStateStore()
    async with HoldfastArtifactService(store) as service:
        content = types.Blob(mime_type="a/b", data=b"x" * 200_000)
        await service.save_artifact(**CHART, artifact=types.Part(inline_data=content))
        (chunk,) = [key async for key in store.list() if "/blobs/" in key]
        (record,) = [key async for key in store.list() if "/versions/" in key]
        await store.put(chunk, b"y" * 200_000)
        with pytest.raises(IntegrityError, match="version 0 of artifact 'chart/é.png' is damaged"):
            await service.load_artifact(**CHART)
        await store.delete(chunk)
        with pytest.raises(IntegrityError, match="damaged"):
            await service.load_artifact(**CHART)
        for text in (b"no json", b"[1]", b'{"digest": 1}', b'{"digest": "", "chunks": [1]}'):
            await store.put(record, text)
            with pytest.raises(IntegrityError, match="damaged"):
                await service.get_artifact_version(**CHART)
        digest = b"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        await store.put(record, b'{"content": "", "part": {"no": 1}, "digest": "%s"}' % digest)
        with pytest.raises(IntegrityError, match="not a part of ADK"):
            await service.load_artifact(**CHART)
        await store.put(record, b'{"content": "", "create_time": "x", "digest": "%s"}' % digest)
        with pytest.raises(IntegrityError, match="not a part of ADK"):
            await service.list_artifact_versions(**CHART)
        await store.put(record, b'{"content": "??", "digest": "%s"}' % digest)
        with pytest.raises(IntegrityError, match="damaged"):
            await service.load_artifact(**CHART)


@async_test
async def test_equal_contents_of_a_file_are_stored_once():
    store = ObservedStore()
    async with HoldfastArtifactService(store) as service:
        part = types.Part(inline_data=types.Blob(mime_type="image/png", data=IMAGE))
        other = types.Part(text=TEXT)
        for number in range(SAVES):
            assert await service.save_artifact(**CHART, artifact=part) == number
        await service.save_artifact(**CHART, artifact=other)
        check_stored_once(store, IMAGE, TEXT)
        again = HoldfastArtifactService(store)
        assert await again.load_artifact(**CHART, version=3) == part
        assert await again.load_artifact(**CHART) == other
        await again.delete_artifact(**CHART)
        assert store.content == {}


@async_test
async def test_contents_that_earlier_versions_stored_are_read_and_deleted(tmp_path):
    home = tmp_path / "store"
    shutil.copytree(Path(__file__).parents[2] / "compat" / "before-blobs", home)
    old = {"app_name": "shop", "user_id": "ana", "session_id": "s1", "filename": "chart.png"}
    async with HoldfastArtifactService.from_url(f"file://{home}") as service:
        assert await service.list_versions(**old) == [0, 1]
        assert (await service.load_artifact(**old, version=0)).inline_data.data == b"small"
        found = await service.load_artifact(**old)
        assert found.inline_data.data == bytes(range(256)) * 300
        large = types.Part(inline_data=types.Blob(mime_type="image/png", data=b"x" * 100_000))
        assert await service.save_artifact(**old, artifact=large) == 2
        assert await service.load_artifact(**old) == large
        chunks = [key async for key in service.state_store.list() if "/chunks/" in key]
        await service.state_store.delete(chunks[1])
        with pytest.raises(IntegrityError, match="version 1 of artifact .* is damaged"):
            await service.load_artifact(**old, version=1)
        await service.delete_artifact(**old)
        assert [key async for key in service.state_store.list("adk/")] == []
