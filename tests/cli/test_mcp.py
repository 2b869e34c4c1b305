"""``holdfast mcp``: options. tests/mcp_server runs it."""

from __future__ import annotations

import signal
import socket
import sys

import pytest

from holdfast.mcp_server import http, stdio


@pytest.fixture
def served(monkeypatch):
    """What would be served, instead of serving it."""
    found = []

    async def serve_stdio(store, access):
        options = {"interrupt": signal.getsignal(signal.SIGINT)}
        found.append((repr(store), access, options))

    def serve_http(store, *, access, ready, **options):
        ready("http://127.0.0.1:8001")
        found.append((repr(store), access, options))

    monkeypatch.setattr(stdio, "serve_stdio", serve_stdio)
    monkeypatch.setattr(http, "serve_http", serve_http)
    monkeypatch.delenv("HOLDFAST_TOKEN", raising=False)
    return found


@pytest.fixture
def interruptible():
    """Handle Ctrl-C as in a terminal: a program in the background ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_stdio_is_the_default_and_prints_nothing(run, served):
    ran = run("mcp", "--store", "sqlite:///some.db")
    assert (ran.code, ran.out, ran.err) == (0, "", "")
    ((store, access, options),) = served
    assert "some.db" in store
    assert (access.can_write, access.agents) == (True, None)
    # A thread waits for the client, so Ctrl-C has to end the process.
    assert options["interrupt"] is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_access_can_be_restricted(run, served):
    assert run("mcp", "--read-only", "--agent", "ann", "--agent", "bob").code == 0
    ((_, access, _),) = served
    assert (access.can_write, access.agents) == (False, {"ann", "bob"})
    run("mcp", "--agent", "").assert_usage_error("agent")


def test_http_options(run, served):
    ran = run("mcp", "--http", "--token", "read:0123456789abcdef", "--cors", "https://a.example")
    assert ran.code == 0
    assert ran.out == ""
    assert "MCP server at http://127.0.0.1:8001/mcp; press Ctrl-C to stop" in ran.err
    ((_, _, options),) = served
    assert (options["host"], options["port"]) == ("127.0.0.1", 8001)
    assert [token.scope for token in options["tokens"]] == ["read"]
    assert options["cors_origins"] == ["https://a.example"]


@pytest.mark.parametrize(
    "option",
    [
        ["--host", "127.0.0.1"],
        ["--port", "0"],
        ["--token", "0123456789abcdef"],
        ["--tokens", "tokens.toml"],
        ["--cors", "https://a.example"],
    ],
    ids=lambda option: option[0],
)
def test_options_of_http_need_it(run, served, option):
    run("mcp", *option).assert_usage_error("needs --http")
    assert served == []


def test_wrong_options_are_usage_errors(run, served):
    run("mcp", "--http", "--host", "0.0.0.0").assert_usage_error("needs a token")
    run("mcp", "--http", "--token", "short").assert_usage_error("at least 16 characters")
    run("mcp", "--http", "--cors", "*").assert_usage_error("invalid origin")
    run("mcp", "--http", "--tokens", "none.toml").assert_failed("cannot read none.toml")
    run("mcp", "--store", "nope://x").assert_failed("nope")
    assert served == []


def test_a_port_in_use_is_one_error(run, monkeypatch):
    monkeypatch.delenv("HOLDFAST_TOKEN", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        run("mcp", "--http", "--port", port).assert_failed("cannot listen on 127.0.0.1 port")


@pytest.mark.parametrize("version", ["1.9.4", "3.0.0"])
def test_an_unsupported_sdk_is_one_error(run, monkeypatch, version):
    for name in [each for each in sys.modules if each.startswith("holdfast.mcp_server")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr("holdfast.adapters.requirement.version", lambda _: version)
    run("mcp").assert_failed(f"needs mcp >=2.1,<3, but {version} is installed")
