"""Schemathesis over the OpenAPI description, against a real server, with all of its checks on."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import holdfast
from holdfast.server import Token
from support.http_server import serving

SECRET = "a-token-for-schemathesis"

# What is valid by its shape may be refused for what it says: a cursor that nobody gave out (400),
# a head that the session no longer has (412).
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


def test_schemathesis_finds_nothing(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/state.db"
    asyncio.run(record(url))
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    with serving(url, tokens=[Token(SECRET)]) as address:
        run = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{address}/openapi.json"),
                *("--max-examples", "5", "--seed", "1", "--no-color"),
                *("--header", f"Authorization: Bearer {SECRET}"),
            ],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=280,
        )
    assert run.returncode == 0, run.stdout[-20_000:]
    assert re.search(r"Tested: +24\b", run.stdout), run.stdout[-3000:]
