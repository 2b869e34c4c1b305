"""Commands show large values as references, and do not read them."""

from __future__ import annotations

import asyncio
import json

import pytest

import holdfast
from support.blob_sessions import CHART, FILE, LONG_TEXT, SESSION, digest_of, record_blobs

STORE = "sqlite:///state.db"
SHOWN_TEXT = f"<text, 122.9 kB, sha256:{digest_of(LONG_TEXT)[:8]}…>"


async def delete_blobs(url):
    """Delete all blobs of a store, so that reading one fails."""
    async with holdfast.open_state_store(url) as store:
        keys = [key async for key in store.list("") if "/blobs/" in key]
        assert keys
        for key in keys:
            await store.delete(key)


@pytest.fixture
def blobs(tmp_path, monkeypatch):
    """Create a store with large values; return its snapshot ids."""

    async def record():
        async with holdfast.open_state_store(STORE) as store:
            return await record_blobs(store)

    monkeypatch.setenv("HOLDFAST_STORE", STORE)
    monkeypatch.setenv("COLUMNS", "120")
    return asyncio.run(record())


@pytest.fixture
def removed(blobs):
    """Create the same store without its blobs."""
    asyncio.run(delete_blobs(STORE))
    return blobs


def test_show_describes_large_values(run, removed):
    shown = run("state", "show", SESSION, "--values", "--messages", "4").out
    assert SHOWN_TEXT in shown
    assert "<image/png, 133.3 kB>" in shown
    assert f'→ store({{"text": {SHOWN_TEXT}}})' in shown
    assert 'chart: <image/png "chart.png", 13 bytes>' in shown
    assert 'report: <application/octet-stream "report.bin", 1.6 MB>' in shown
    shown = run("state", "show", f"{SESSION}@{removed[1]}", "--values").out
    assert "raw: <bytes, 100.0 kB, sha256:" in shown
    assert LONG_TEXT[:40] not in shown


def test_diff_describes_large_values(run, removed):
    first, second, third = removed
    shown = run("state", "diff", f"{SESSION}@{first}", f"{SESSION}@{second}")
    assert shown.code == 0
    assert "<bytes, 100.0 kB, sha256:" in shown.out
    assert '<image/png "chart.png", 13 bytes>' in shown.out
    shown = run("state", "diff", f"{SESSION}@{second}", f"{SESSION}@{third}", "--full").out
    assert "(entire value): <bytes, 100.0 kB, sha256:" in shown
    assert "→ null" in shown
    patch = json.loads(run("state", "diff", SESSION, f"{SESSION}@{second}", "--format", "json").out)
    assert patch[-1]["value"]["$blob"][1:] == [100_008, "bytes"]


def test_replay_describes_large_values(run, removed):
    shown = run("replay", SESSION)
    assert shown.code == 0
    assert f'tool.called {{"argument": {SHOWN_TEXT}}}' in shown.out
    assert '<image/png "chart.png", 13 bytes>' in shown.out
    assert len(shown.out) < 10_000
    events = json.loads(run("replay", SESSION, "--format", "json").out)
    called = next(event for event in events if event["type"] == "tool.called")
    assert called["data"]["argument"]["$blob"][0] == digest_of(LONG_TEXT)


def test_list_does_not_read_large_values(run, removed):
    listed = json.loads(run("state", "list", "--format", "json").out)["items"]
    assert [each["session_id"] for each in listed] == [SESSION]
    assert listed[0]["unfinished_calls"] == 1
    assert run("state", "list", "--session", SESSION).code == 0


# ----------------------------------------------------------------------------------- attachments


def test_attachments_are_listed(run, removed):
    shown = run("state", "show", SESSION, "--attachments").out
    assert digest_of(CHART) in shown
    assert "image/png" in shown
    assert "report.bin" in shown
    listed = json.loads(run("state", "show", SESSION, "--attachments", "--format", "json").out)
    assert {each["name"]: each["size"] for each in listed} == {
        "report.bin": len(FILE),
        "chart.png": len(CHART),
    }
    first = run("state", "show", f"{SESSION}@{removed[0]}", "--attachments").out
    assert first == "no attachments\n"


def test_attachment_is_written_to_a_file_or_stdout(run, blobs, tmp_path):
    for which in ("report.bin", digest_of(FILE), digest_of(FILE)[:6]):
        target = tmp_path / "out.bin"
        done = run("state", "attachment", SESSION, which, "--output", str(target))
        assert done.code == 0
        assert digest_of(FILE) in done.err
        assert target.read_bytes() == FILE
        target.unlink()
    for which in (digest_of(LONG_TEXT), digest_of(LONG_TEXT)[:8]):
        done = run("state", "attachment", SESSION, which, "-o", "-")
        assert (done.code, done.out, done.err) == (0, LONG_TEXT, "")


def test_unknown_attachment_is_an_error(run, blobs):
    for which in ("nothing.png", "abc", digest_of(FILE)[:5]):
        done = run("state", "attachment", SESSION, which, "-o", "out")
        done.assert_failed(which, "--attachments")


def test_missing_or_damaged_attachment_keeps_the_old_file(run, removed, tmp_path):
    target = tmp_path / "chart.png"
    target.write_bytes(b"old")
    done = run("state", "attachment", SESSION, "chart.png", "-o", str(target))
    done.assert_failed(digest_of(CHART), "not stored", "holdfast state verify")
    assert target.read_bytes() == b"old"
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".tmp") == []


def test_unwritable_output_is_an_error(run, blobs, tmp_path):
    done = run("state", "attachment", SESSION, "chart.png", "-o", str(tmp_path / "no" / "such"))
    done.assert_failed("cannot write")
