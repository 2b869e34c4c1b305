"""A folder to capture, and a cache folder that is not the user's."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def cache_home(tmp_path, monkeypatch):
    """Use a cache folder for each test."""
    monkeypatch.setenv("HOLDFAST_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path):
    """An empty folder."""
    folder = tmp_path / "root"
    folder.mkdir()
    return folder
