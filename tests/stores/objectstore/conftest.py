"""Fixtures for the tests of object stores."""

from __future__ import annotations

import uuid

import pytest

from servers.cutting_proxy import CuttingProxy


@pytest.fixture
def prefix():
    return f"tests/{uuid.uuid4()}"


@pytest.fixture
def proxy(s3_server):
    with CuttingProxy(s3_server.port) as proxy:
        yield proxy


@pytest.fixture
def no_credentials(monkeypatch):
    """An environment without credentials."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch
