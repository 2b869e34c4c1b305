"""Results of tools have references to large values, which only a search reads."""

from __future__ import annotations

import json

from support.async_tests import async_test
from support.blob_sessions import AGENT, LONG_TEXT, SESSION, blob_reads, digest_of, record_blobs
from support.mcp_clients import Agent, connect
from support.observed_store import ObservedStore


@async_test
async def test_tools_and_resources_show_references_and_read_no_blobs():
    store = ObservedStore()
    first, second, _ = await record_blobs(store)
    store.forget()
    async with connect(store) as client:
        agent = Agent(client)
        found = await agent.call("diff", agent=AGENT, session=SESSION, from_=first, to=second)
        after = {entry["key"]: entry["after"] for entry in found["entries"]}
        assert json.loads(after["raw"])["$blob"][1:] == [100_008, "bytes"]
        assert json.loads(after["chart"])["$attachment"][2:] == ["image/png", "chart.png"]
        read = await agent.read(f"holdfast://agents/{AGENT}/sessions/{SESSION}")
        assert read["messages"][1]["message"]["content"]["$blob"][0] == digest_of(LONG_TEXT)
        restored = await agent.call("restore", agent=AGENT, session=SESSION, to=second)
        assert restored["values"]["raw"]["$blob"][1:] == [100_008, "bytes"]
        await agent.call("save_checkpoint", agent=AGENT, session=SESSION, tags={"a": "b"})
        await agent.call("list_checkpoints", agent=AGENT, session=SESSION)
        assert blob_reads(store) == []


@async_test
async def test_search_finds_texts_in_blobs_and_skips_missing_ones():
    store = ObservedStore()
    await record_blobs(store)
    async with connect(store) as client:
        agent = Agent(client)
        found = await agent.call("search", agent=AGENT, query="line 3999: the quick")
        assert [match["message_number"] for match in found["matches"]] == [3, 1]
        assert "line 3999" in found["matches"][0]["excerpt"]
        assert (await agent.call("search", agent=AGENT, query="chart.png"))["matches"]
        for key in store.keys_with(f"/blobs/{digest_of(LONG_TEXT)}/"):
            await store.delete(key)
        found = await agent.call("search", agent=AGENT, query="line 3999: the quick")
        assert (found["matches"], found["complete"]) == ([], True)
