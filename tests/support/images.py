"""An image in the forms in which frameworks put it into messages, and what its storage may cost."""

from __future__ import annotations

import base64
import random

IMAGE = random.Random(7).randbytes(5_000_000)
BASE64 = base64.b64encode(IMAGE).decode()
DATA_URL = f"data:image/png;base64,{BASE64}"
TEXT = "a large result of a tool, ☃ " * 20_000
SAVES = 20
REST = 300_000
"""What the log, keyframes and snapshots of a small session may cost besides."""


def check_stored_once(state_store, *contents):
    """Check that an observed store has large contents once, and little else."""
    blobs = state_store.keys_with("/blobs/")
    size = sum(
        len(content.encode() if isinstance(content, str) else content) for content in contents
    )
    assert sum(len(state_store.content[key]) for key in blobs) == size
    assert state_store.bytes <= 1.05 * size + REST
    rest = [key for key in state_store.content if key not in blobs]
    assert sum(len(state_store.content[key]) for key in rest) < REST
