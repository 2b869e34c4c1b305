"""Schemathesis runs all its checks over the OpenAPI description, against a real server."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import holdfast
from holdfast.server import Token
from support.http_server import serve_url

SECRET = "a-token-for-schemathesis"
THOROUGH = os.environ.get("HOLDFAST_HYPOTHESIS") == "thorough"
PHASES = "examples,coverage" + ",fuzzing,stateful" * THOROUGH
# Invalid requests are most of the time, and `test_invalid_requests` has some for every route.
MODE = "all" if THOROUGH else "positive"

# Data that fits the schema may still be rejected: an unknown cursor (400), a stale head (412).
CONFIG = """
[checks.positive_data_acceptance]
expected-statuses = ["2xx", "304", "400", "403", "404", "409", "412"]
"""


async def record(url: str) -> None:
    async with holdfast.open_state_store(url) as store:
        session = await holdfast.Session.open(
            store, agent_id="research-bot", session_id="ses_abc123"
        )
        for number in range(10):
            session.add_message("user", f"question {number}")
            session.set("step", number)
            await session.save(tags={"turn": str(number)})


def test_responses_conform_to_the_openapi_description(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/state.db"
    asyncio.run(record(url))
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    with serve_url(url, tokens=[Token(SECRET)]) as address:
        run = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json"),
                *("--phases", PHASES, "--mode", MODE, "--max-examples", "20"),
                *("--seed", "1", "--no-color"),
                *("--exclude-operation-id", "stream_events"),  # it does not end
                *("--header", f"Authorization: Bearer {SECRET}"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=280,
        )
    assert run.returncode == 0, run.stdout[-20_000:]
    assert re.search(r"Tested: +26\b", run.stdout), run.stdout[-3000:]
