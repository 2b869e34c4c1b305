"""The cache of digests on disk."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.workspaces import stat_cache
from holdfast.workspaces.entries import FileEntry
from holdfast.workspaces.stat_cache import (
    StatCache,
    cache_folder,
    cache_path,
    load_cache,
    save_cache,
    save_seq,
)

CACHE = StatCache(
    {
        "a": ((1, 2, 3, 4, 0o100644), FileEntry("0" * 64, 3, 0o644)),
        "b": ((1, 2, 3, 4, 0o120777), FileEntry(link="a")),
    },
    frozenset(["x.log"]),
    frozenset(["sub"]),
    {"": "f"},
    7,
)


def test_a_cache_round_trips():
    save_cache("owner", CACHE)
    assert load_cache("owner") == replace(CACHE, seq=0)
    save_seq("owner", 7)
    assert load_cache("owner") == CACHE
    assert load_cache("another") == StatCache()
    assert cache_path("owner").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-1], lambda data: data + b"x", lambda _: b""]
)
def test_a_damaged_cache_is_not_used(damage):
    save_cache("owner", CACHE)
    path = cache_path("owner")
    path.write_bytes(damage(path.read_bytes()))
    assert load_cache("owner") == StatCache()


def test_a_cache_of_another_version_or_folder_is_not_used(monkeypatch):
    save_cache("owner", CACHE)
    cache_path("owner").rename(cache_path("other"))
    assert load_cache("other") == StatCache()
    monkeypatch.setattr(stat_cache, "VERSION", 2)
    save_cache("owner", CACHE)
    monkeypatch.setattr(stat_cache, "VERSION", 1)
    assert load_cache("owner") == StatCache()


def test_a_cache_that_cannot_be_written_is_not_an_error(cache_home):
    cache_home.write_text("a file")
    save_cache("owner", CACHE)
    save_seq("owner", 7)
    assert load_cache("owner") == StatCache()


def test_old_caches_are_removed(monkeypatch):
    monkeypatch.setattr(stat_cache, "MAX_FILES", 2)
    for number in range(4):
        save_cache(str(number), CACHE)
    assert len(list(cache_folder().iterdir())) == 2
    assert load_cache("3").files == CACHE.files


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "chosen/holdfast/workspaces"),
        ("linux", None, "home/.cache/holdfast/workspaces"),
        ("darwin", None, "home/Library/Caches/holdfast/workspaces"),
        ("win32", "LOCALAPPDATA", "chosen/holdfast/workspaces"),
        ("win32", None, "home/AppData/Local/holdfast/workspaces"),
    ],
)
def test_the_cache_is_where_the_platform_keeps_caches(
    tmp_path, monkeypatch, platform, variable, expected
):
    for name in ("HOLDFAST_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(stat_cache.sys, "platform", platform)
    monkeypatch.setattr(stat_cache.Path, "home", lambda: tmp_path / "home")
    if variable is not None:
        monkeypatch.setenv(variable, str(tmp_path / "chosen"))
    assert cache_folder() == tmp_path / expected
