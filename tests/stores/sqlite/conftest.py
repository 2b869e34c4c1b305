"""Fixtures for the tests of SQLite."""

from __future__ import annotations

import pytest


@pytest.fixture
def path(tmp_path):
    return tmp_path / "state.db"
