"""A session with large values, an image and attachments."""

from __future__ import annotations

import base64
import hashlib
import random

from holdfast import Session
from holdfast.blobs.keys import CHUNK_SIZE

AGENT, SESSION = "research-bot", "ses_blobs"
PATH = f"/agents/{AGENT}/sessions/{SESSION}"
LONG_TEXT = "\n".join(f"line {number}: the quick brown fox" for number in range(4000))
LARGE_BYTES = b"\x89PNG\r\n\x1a\n" + bytes(100_000)
IMAGE_DATA = base64.b64encode(LARGE_BYTES).decode()
FILE = random.Random(1).randbytes(3 * CHUNK_SIZE + 1000)
"""The content of an attachment: three chunks, and a part of one."""
CHART = b"\x89PNG\r\n\x1a\n" + b"chart"


def digest_of(content):
    """Return the digest of a str or bytes."""
    return hashlib.sha256(content.encode() if isinstance(content, str) else content).hexdigest()


async def record_blobs(store):
    """Record a session with large values in messages, state and events; return its snapshot ids."""
    async with Session.open(store, agent_id=AGENT, session_id=SESSION) as session:
        session.status = "running"
        session.add_message("user", "What is in this report?")
        session.add_message("user", LONG_TEXT)
        first = await session.save()
        source = {"type": "base64", "media_type": "image/png", "data": IMAGE_DATA}
        session.add_message("user", [{"type": "image", "source": source}])
        call = {"type": "tool_use", "id": "call_1", "name": "store", "input": {"text": LONG_TEXT}}
        session.add_message("assistant", [call])
        session.set("raw", LARGE_BYTES)
        session.set("report", await session.attach(FILE, name="report.bin"))
        session.set("chart", await session.attach(CHART, name="chart.png"))
        session.record("tool.called", {"argument": LONG_TEXT})
        second = await session.save()
        session.set("raw", None)
        third = await session.save()
    return first.snapshot_id, second.snapshot_id, third.snapshot_id


def blob_reads(store):
    """Return the keys of blobs that were read from an observed store."""
    return [key for key in store.read if "/blobs/" in key]
