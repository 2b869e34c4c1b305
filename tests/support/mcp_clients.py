"""Clients of the MCP server: in this process, of a program on stdio, and byte by byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager

from mcp import Client, StdioServerParameters

from holdfast.mcp_server import create_server

COMMAND = [sys.executable, "-m", "holdfast", "mcp"]
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


class Agent:
    """Calls tools and returns their results as data."""

    def __init__(self, client):
        self.client = client

    async def call(self, tool, **arguments):
        """Call a tool that must succeed."""
        if "from_" in arguments:
            arguments["from"] = arguments.pop("from_")
        result = await self.client.call_tool(tool, arguments)
        assert not result.is_error, result.content[0].text
        assert json.loads(result.content[0].text) == result.structured_content
        return result.structured_content

    async def fail(self, tool, **arguments):
        """Call a tool that must fail; return the text of the error."""
        if "from_" in arguments:
            arguments["from"] = arguments.pop("from_")
        result = await self.client.call_tool(tool, arguments)
        assert result.is_error, result.structured_content
        (content,) = result.content
        assert "\n" not in content.text
        assert "Traceback" not in content.text
        return content.text

    async def read(self, uri):
        """Read a resource as data."""
        (content,) = (await self.client.read_resource(uri)).contents
        assert content.mime_type == "application/json"
        return json.loads(content.text)


def connect(store, access=None):
    """Return a client of a server in this process."""
    return Client(create_server(store, access))


def program_environment():
    """Return the environment of a program that imports what the tests import."""
    return {**os.environ, "PYTHONPATH": ":".join(sys.path), "NO_COLOR": "1"}


def connect_program(url, *options):
    """Return a client of a new program."""
    return Client(
        StdioServerParameters(
            command=COMMAND[0],
            args=[*COMMAND[1:], "--store", url, *options],
            env=program_environment(),
        )
    )


class RawProgram:
    """A program that is spoken to line by line, so that it can be killed at any moment."""

    def __init__(self, process):
        self.process = process
        self._number = 0

    def send_line(self, line):
        """Send one line as it is."""
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def send(self, method, params):
        """Send a request; return its number."""
        self._number += 1
        message = {"jsonrpc": "2.0", "id": self._number, "method": method, "params": params}
        self.send_line(json.dumps(message))
        return self._number

    def read_line(self):
        """Read one line of protocol; None at the end."""
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith("\n") else None

    def initialize(self):
        """Do the handshake."""
        self.send("initialize", INITIALIZE)
        assert self.read_line()["result"]["serverInfo"]["name"] == "holdfast"
        self.send_line('{"jsonrpc": "2.0", "method": "notifications/initialized"}')

    def call(self, tool, **arguments):
        """Call a tool and return the response."""
        number = self.send("tools/call", {"name": tool, "arguments": arguments})
        response = self.read_line()
        assert response is None or response["id"] == number
        return response


@contextmanager
def start_raw(url, *options):
    """Run the program for the duration of a block."""
    with subprocess.Popen(
        [*COMMAND, "--store", url, *options],
        env=program_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            program = RawProgram(process)
            program.initialize()
            yield program
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
