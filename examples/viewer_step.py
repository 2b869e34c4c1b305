"""The last step of the examples: start the server, and read a session as the viewer does."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from urllib.parse import quote


def show_in_viewer(url: str, agent_id: str, session_id: str) -> None:
    """Serve a store, print the address of a session and what the viewer shows of it.

    In a terminal the server runs until you press Enter.
    """
    command = [sys.executable, "-m", "holdfast", "serve", "--store", url, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:  # noqa: S603
        try:
            address = read_address(server)
            path = f"agents/{quote(agent_id, safe='')}/sessions/{quote(session_id, safe='')}"
            with urllib.request.urlopen(f"{address}/{path}/state", timeout=30) as response:  # noqa: S310
                state = json.load(response)
            page = "/".join(quote(each, safe="") for each in (agent_id, session_id))
            print(f"   {address}/#/{page}")
            print(f"   {len(state['state']['messages'])} messages, status {state['state']['status']}")
            if sys.stdin.isatty():
                input("   Press Enter to stop the server ")
        finally:
            server.terminate()


def read_address(server: subprocess.Popen[str]) -> str:
    """Return the address that the server prints when it is ready."""
    assert server.stderr is not None  # noqa: S101
    for line in server.stderr:
        for word in line.split():
            if word.startswith("http://"):
                return word.rstrip(";/")
    raise RuntimeError("the server did not start")
