"""Every route is on the docs page and described in the OpenAPI document."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import holdfast
from holdfast.server import create_app

PAGE = (Path(__file__).parents[2] / "docs" / "server.md").read_text()
SESSION = "/agents/{agent_id}/sessions/{session_id}"


def operations():
    tree = create_app(holdfast.open_state_store("memory://")).openapi()
    for path, methods in tree["paths"].items():
        for method, operation in methods.items():
            yield path, method.upper(), operation


@pytest.mark.parametrize(
    ("path", "method", "operation"),
    [pytest.param(*each, id=each[2]["operationId"]) for each in operations()],
)
def test_route_is_documented(path, method, operation):
    short = path.replace(f"{SESSION}/", "…/")
    assert f"`{method} {path}`" in PAGE or f"`{method} {short}`" in PAGE
    assert operation["description"]
    statuses = [status for status in operation["responses"] if status.startswith("2")]
    assert statuses
    for name in ("400", "401", "403", "404", "422", "503"):
        assert "application/problem+json" in operation["responses"][name]["content"]


def test_documented_routes_exist():
    known = {(method, path) for path, method, _ in operations()}
    for method, path in re.findall(r"`(GET|POST|DELETE) ([^`]+)`", PAGE):
        assert (method, path.replace("…", SESSION)) in known, f"{method} {path}"
